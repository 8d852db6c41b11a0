#include "tests/unit/engine/model/model_folder.h"

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>

#include "common/base/check.h"

namespace baton::model {

namespace fs = std::filesystem;

std::string SafetensorsBytes(const std::string& header, std::string_view data) {
  std::string bytes(8, '\0');
  for (size_t i = 0; i < 8; ++i) bytes[i] = static_cast<char>(uint64_t{header.size()} >> (8 * i));
  return bytes + header + std::string(data);
}

ModelFolder::ModelFolder(const std::string& golden) {
  std::string pattern = fs::temp_directory_path() / "baton-model-XXXXXX";
  BATON_CHECK(mkdtemp(pattern.data()) != nullptr);
  path_ = pattern;
  fs::copy(fs::path(BATON_SOURCE_DIR) / "tests/golden/models/data" / golden, path_,
           fs::copy_options::recursive);
}

ModelFolder::~ModelFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

std::string ModelFolder::Read(const std::string& file) const {
  std::ifstream in(path_ / file, std::ios::binary);
  BATON_CHECK(in.good()) << file;
  return {std::istreambuf_iterator<char>(in), {}};
}

void ModelFolder::Write(const std::string& file, std::string_view bytes) const {
  std::ofstream out(path_ / file, std::ios::binary | std::ios::trunc);
  out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  BATON_CHECK(out.good()) << file;
}

void ModelFolder::Remove(const std::string& file) const { BATON_CHECK(fs::remove(path_ / file)) << file; }

void ModelFolder::EditJson(const std::string& file, const std::function<void(nlohmann::json&)>& edit) const {
  auto json = nlohmann::json::parse(Read(file));
  edit(json);
  Write(file, json.dump());
}

void ModelFolder::EditTensors(const std::function<void(nlohmann::json&, std::string&)>& edit) const {
  const std::string bytes = Read("model.safetensors");
  uint64_t length = 0;
  std::memcpy(&length, bytes.data(), 8);
  auto header = nlohmann::json::parse(bytes.substr(8, length));
  std::string data = bytes.substr(8 + length);
  edit(header, data);
  Write("model.safetensors", SafetensorsBytes(header.dump(), data));
}

}  // namespace baton::model
