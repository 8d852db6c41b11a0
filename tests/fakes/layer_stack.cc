#include "tests/fakes/layer_stack.h"

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <system_error>

#include "common/base/check.h"
#include "nlohmann/json.hpp"

namespace baton {
namespace {

namespace fs = std::filesystem;

std::string ReadAll(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  BATON_CHECK(file.good()) << path.string();
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// The layer: 12 for "model.layers.12.mlp..."; -1: none.
int LayerOf(const std::string& tensor) {
  constexpr char kPrefix[] = "model.layers.";
  return tensor.starts_with(kPrefix) ? std::atoi(tensor.c_str() + std::strlen(kPrefix)) : -1;
}

}  // namespace

LayerStack::LayerStack(const std::string& source, int layers) {
  std::string pattern = (fs::temp_directory_path() / "baton-layers-XXXXXX").string();
  BATON_CHECK(mkdtemp(pattern.data()) != nullptr) << pattern;
  folder_ = pattern;
  for (const auto& entry : fs::directory_iterator(source)) {
    const std::string name = entry.path().filename().string();
    if (entry.is_regular_file() && name != "model.safetensors" && name != "config.json") {
      fs::copy_file(entry.path(), folder_ / name);
    }
  }
  nlohmann::json config = nlohmann::json::parse(ReadAll(fs::path(source) / "config.json"));
  BATON_CHECK(layers >= 1);
  const int has = config.at("num_hidden_layers").get<int>();
  config["num_hidden_layers"] = layers;
  std::ofstream(folder_ / "config.json") << config;
  const std::string file = ReadAll(fs::path(source) / "model.safetensors");
  uint64_t length = 0;
  BATON_CHECK(file.size() > sizeof length);
  std::memcpy(&length, file.data(), sizeof length);
  const auto header = nlohmann::json::parse(file.substr(sizeof length, length));
  nlohmann::json kept;
  std::string data;
  const auto keep = [&](const std::string& name, const nlohmann::json& tensor, bool zero) {
    const auto begin = tensor.at("data_offsets").at(0).get<size_t>();
    const size_t size = tensor.at("data_offsets").at(1).get<size_t>() - begin;
    kept[name] = tensor;
    kept[name]["data_offsets"] = {data.size(), data.size() + size};
    data += zero ? std::string(size, '\0') : file.substr(sizeof length + length + begin, size);
  };
  for (const auto& [name, tensor] : header.items()) {
    const int layer = LayerOf(name);
    if (name == "__metadata__" || layer >= layers) continue;
    keep(name, tensor, false);
    if (layer != 0) continue;
    // A layer adds the products of these two to the residual stream: of zeros, nothing.
    const bool adds = name.ends_with("o_proj.weight") || name.ends_with("down_proj.weight");
    const std::string rest = name.substr(name.find(".0.") + 2);
    for (int more = has; more < layers; ++more)
      keep("model.layers." + std::to_string(more) + rest, tensor, adds);
  }
  const std::string text = kept.dump();
  length = text.size();
  std::ofstream(folder_ / "model.safetensors", std::ios::binary)
      .write(reinterpret_cast<const char*>(&length), sizeof length)
      .write(text.data(), static_cast<std::streamsize>(text.size()))
      .write(data.data(), static_cast<std::streamsize>(data.size()));
}

LayerStack::~LayerStack() {
  std::error_code ignored;
  fs::remove_all(folder_, ignored);
}

}  // namespace baton
