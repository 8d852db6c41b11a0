// docs/models.md is as the code's own tables say: of each family by the config.json of its golden models,
// alone and with each way of quantization.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "engine/model/shard.h"
#include "engine/model/weights.h"
#include "text/config/config.h"
#include "text/config/family.h"
#include "text/config/gguf_config.h"
#include "text/config/quantization.h"

namespace baton::model {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

constexpr char kPageHead[] =
    R"(<!-- Made by tests/unit/engine/model/known_models_test.cc from the tables in text/config. Change those. -->
# Models that load

A model folder loads if its `architectures`, or without these its `model_type`, stands here; any other is refused by name, and so is
an option of a known one that Baton does not implement: `baton model inspect FOLDER` says which. The backends `cpu` and `reference`
run all of them, from BF16, F16 or F32 and with any `--weights`. The column `cuda` is about these, too: GPUs take no quantized weights.

The last columns are the values of `quant_method` in `quantization_config`; `baton` is that of `baton model quantize`.

)";

constexpr char kPageTail[] = R"(
- `mistral3` is its part for text, which `text_config` describes; tensors of `vision_tower` and `multi_modal_projector` are passed over.
- `phi3`, and any other with `longrope`: all positions have the long factors if `max_position_embeddings` goes beyond
  `original_max_position_embeddings`, else the short ones ([DECISIONS, N27](../DECISIONS.md#n27-longrope-takes-its-factors-by-the-context)).
- `hunyuan_v1_dense`: an `alpha` of dynamic rope stretches its theta once, whatever the length.
- OLMo's norms of queries and keys are over all heads together, which no rank of `--tp` has.
)";

// The config.json of each golden model of the family, in order of their names, without quantization.
std::vector<json> ConfigsOf(const Family& family) {
  std::map<fs::path, json> found;
  for (const auto& entry : fs::directory_iterator(BATON_SOURCE_DIR "/tests/golden/models/data")) {
    std::ifstream file(entry.path() / "config.json");
    if (!file) continue;
    json config = json::parse(file);
    if (config["architectures"][0] != family.architecture) continue;
    config.erase("quantization_config");
    found[entry.path()] = std::move(config);
  }
  std::vector<json> configs;
  for (auto& [path, config] : found) configs.push_back(std::move(config));
  return configs;
}

// The least that each method's reader wants.
json Quantized(json config, std::string_view method) {
  json& fields = config["quantization_config"];
  fields = {{"quant_method", method}};
  if (method == "gptq") fields.update({{"bits", 4}, {"group_size", 128}});
  if (method == "baton") fields["numerics"] = kTransformedIntegers;
  if (method == "compressed-tensors") {
    fields["config_groups"] = {{"group_0", {{"weights", {{"num_bits", 8}}}}}};
  }
  return config;
}

// A row of the page. cuda: by all goldens, of which some may have an option that it refuses.
std::string Row(const Family& family) {
  const std::vector<json> goldens = ConfigsOf(family);
  if (goldens.empty()) return "";
  size_t refused = 0;
  std::string option;
  bool mixture = false, splits = false;
  for (const json& golden : goldens) {
    const auto config = ModelConfig::FromJson(golden.dump());
    EXPECT_TRUE(config.ok()) << config.status();
    if (!config.ok()) return "";
    mixture |= config->experts.experts > 0;
    if (const std::string name = HostOnly(*config); !name.empty()) {
      option = name;
      ++refused;
    }
    splits |= CheckDivides(*config, 2).ok();
  }
  const std::string cuda = mixture                     ? "no"
                           : refused == 0              ? "yes"
                           : refused == goldens.size() ? "no: " + option
                                                       : "not with " + option;
  const std::string_view gguf = GgufArchitectureOf(family.architecture);
  std::string row = fmt::format("| `{}` | `{}` | {} | {} | {} |", family.model_type, family.architecture,
                                cuda, splits ? "yes" : "no", gguf.empty() ? "no" : fmt::format("`{}`", gguf));
  for (const std::string_view method : kQuantizationMethods) {
    const bool loads = ModelConfig::FromJson(Quantized(goldens.front(), method).dump()).ok();
    row += loads ? " yes |" : " no |";
  }
  return row + "\n";
}

std::string Page() {
  std::string page = kPageHead;
  page += "| `model_type` | architecture | cuda | --tp | GGUF |";
  for (const std::string_view method : kQuantizationMethods) page += fmt::format(" {} |", method);
  page += "\n|---|---|---|---|---|";
  for (size_t i = 0; i < std::size(kQuantizationMethods); ++i) page += "---|";
  page += "\n";
  for (const Family& family : Families()) {
    const std::string row = Row(family);
    EXPECT_NE(row, "") << family.architecture << " has no golden model";
    page += row;
  }
  return page + kPageTail;
}

TEST(KnownModelsTest, ThePageIsWhatTheTablesSay) {
  const fs::path path = fs::path(BATON_SOURCE_DIR) / "docs/models.md";
  std::ostringstream written;
  written << std::ifstream(path).rdbuf();
  const std::string page = Page();
  const fs::path made = fs::path(testing::TempDir()) / "models.md";
  if (written.str() != page) std::ofstream(made) << page;
  EXPECT_EQ(written.str(), page) << "copy " << made << " to docs/models.md";
}

}  // namespace
}  // namespace baton::model
