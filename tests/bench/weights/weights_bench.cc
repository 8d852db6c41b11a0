// Quality lost by weights: a model with each --weights, and other folders of the same model whose weights
// were rounded by others, against the model as stored.
#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "engine/device/thread_pool.h"
#include "tests/golden/weights/quality.h"

namespace baton {
namespace {

int Run(const std::string& model, const std::vector<std::string>& weights,
        const std::vector<std::string>& others) {
  const auto load = [](const std::string& folder, model::WeightPrecision precision) {
    return engine::Engine::Load({.model_folder = folder,
                                 .kv_bytes = int64_t{64} << 20,
                                 .key_dtype = tensor::DType::kF32,
                                 .value_dtype = tensor::DType::kF32,
                                 .weights = precision});
  };
  const auto texts = Conversations(model);
  const auto stored = load(model, model::WeightPrecision::kStored);
  const auto print = [&](const std::string& what, auto other) {
    if (!stored.ok() || !other.ok()) {
      std::fprintf(stderr, "%s\n", (stored.ok() ? other : stored).status().ToString().c_str());
      return false;
    }
    std::printf("%s: %s\n", what.c_str(),
                Describe(lab::Compare(**stored, **other, texts, device::UsableCores())).c_str());
    std::fflush(stdout);
    return true;
  };
  for (const auto& [name, precision] : model::WeightPrecisions()) {
    if (std::ranges::count(weights, name) != 0 && !print(name, load(model, precision))) return 1;
  }
  for (const std::string& other : others) {
    if (!print(other, load(other, model::WeightPrecision::kStored))) return 1;
  }
  return 0;
}

}  // namespace
}  // namespace baton

int main(int argc, char** argv) {
  CLI::App app("Quality of weights");
  std::string model = "models/baton-tiny";
  std::vector<std::string> weights, others;
  app.add_option("--model", model, "Folder with eval/recall.jsonl")->capture_default_str();
  app.add_option("--weights", weights, "Precisions of --weights");
  app.add_option("--other", others, "Folders of the same model with other weights");
  CLI11_PARSE(app, argc, argv);
  return baton::Run(model, weights, others);
}
