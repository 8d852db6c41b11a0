#include "tests/fuzz/model_shapes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_split.h"
#include "common/base/check.h"
#include "common/base/random.h"
#include "common/base/status.h"
#include "common/tensor/dtype.h"
#include "engine/engine.h"
#include "engine/model/checkpoint.h"
#include "engine/model/weights.h"
#include "engine/solo.h"
#include "nlohmann/json.hpp"
#include "tests/fuzz/source_folder.h"
#include "text/config/config.h"
#include "text/config/quantization.h"

namespace baton::fuzz {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using tensor::DType;

// Configs of tests/golden/models: each family, and each rope and window.
constexpr const char* kFamilies[] = {
    "llama-mha",      "llama-bias",   "llama-yarn",   "llama3-rope", "llama-dynamic", "llama-linear",
    "mistral-window", "qwen2-window", "qwen3-window", "qwen3-moe",   "qwen2-moe",     "mixtral",
    "olmoe",          "gpt-oss",      "glm4-moe",     "smollm3",     "granite",       "seed-oss",
    "arcee",          "ministral3",   "hunyuan-v1",   "ernie4-5",    "olmo2",         "olmo3",
    "phi3-long",      "phi3-short"};

// -1: the field is taken away.
constexpr int kSizes[] = {-1, 1,  2,  3,  5,  7,  8,  10,  14,  16,  20,
                          24, 31, 32, 50, 64, 65, 96, 100, 128, 130, 200};
constexpr int kHeadSizes[] = {-1, 1,  2,  4,  6,   8,   10,  12,  16,  20,  24, 34,
                              50, 60, 64, 72, 100, 128, 130, 254, 256, 258, 320};
constexpr int kCounts[] = {-1, 0, 1, 2, 3, 4, 5, 6, 7, 8, 12};
constexpr int kLengths[] = {0, 1, 2, 5, 15, 16, 17, 24, 64, 100, 256};
constexpr int kVocabularies[] = {1, 2, 3, 7, 16, 63, 64, 65, 150, 157, 400};

struct Field {
  const char* name;
  std::span<const int> values;
};
const Field kFields[] = {{"hidden_size", kSizes},
                         {"head_dim", kHeadSizes},
                         {"head_dim", kHeadSizes},
                         {"num_attention_heads", kCounts},
                         {"num_key_value_heads", kCounts},
                         {"intermediate_size", kSizes},
                         {"moe_intermediate_size", kSizes},
                         {"shared_expert_intermediate_size", kSizes},
                         {"num_hidden_layers", kCounts},
                         {"vocab_size", kVocabularies},
                         {"sliding_window", kLengths},
                         {"max_window_layers", kCounts},
                         {"max_position_embeddings", kLengths},
                         {"original_max_position_embeddings", kLengths},
                         {"no_rope_layer_interval", kCounts},
                         {"num_experts", kCounts},
                         {"num_local_experts", kCounts},
                         {"n_routed_experts", kCounts},
                         {"n_shared_experts", kCounts},
                         {"n_group", kCounts},
                         {"topk_group", kCounts},
                         {"first_k_dense_replace", kCounts},
                         {"decoder_sparse_step", kCounts},
                         {"num_experts_per_tok", kCounts}};
// A model of more parameters is not tried.
constexpr int64_t kMostParameters = 2'000'000;

// A folder that is written once its tensors are known.
class Folder {
 public:
  Folder() {
    std::string pattern = fs::temp_directory_path() / "baton-shapes-XXXXXX";
    BATON_CHECK(mkdtemp(pattern.data()) != nullptr);
    path_ = pattern;
  }
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  std::string path() const { return path_; }

  void WriteConfig(const json& config) const { std::ofstream(path_ / "config.json") << config.dump(); }

  void Add(const std::string& name, const std::vector<int64_t>& shape) {
    int64_t values = 1;
    for (const int64_t extent : shape) values *= extent;
    tensors_.push_back({name, shape, values});
  }
  // Values are drawn by `seed`, small enough that sums over a row stay near 1; without a seed, all are zero.
  void WriteTensors(DType dtype, std::optional<uint64_t> seed) const {
    json header = json::object();
    int64_t end = 0;
    for (const Tensor& tensor : tensors_) {
      const int64_t begin = end;
      end += tensor.values * tensor::SizeOf(dtype);
      header[tensor.name] = {{"dtype", dtype == DType::kF32 ? "F32" : "BF16"},
                             {"shape", tensor.shape},
                             {"data_offsets", {begin, end}}};
    }
    const std::string text = header.dump();
    const uint64_t size = text.size();
    const std::string path = path_ / "model.safetensors";
    std::ofstream file(path, std::ios::binary);
    file.write(reinterpret_cast<const char*>(&size), sizeof size) << text;
    if (seed.has_value()) {
      uint64_t draw = 0;
      for (const Tensor& tensor : tensors_) {
        const bool norm = tensor.name.find("norm") != std::string::npos;
        const float spread = norm ? 0.2f : 2 / std::sqrt(static_cast<float>(tensor.shape.back()));
        for (int64_t i = 0; i < tensor.values; ++i) {
          const auto around = static_cast<float>(UniformAt(*seed, draw++) - 0.5);
          Put(file, dtype, (norm ? 1.0f : 0.0f) + spread * around);
        }
      }
    }
    BATON_CHECK(file.flush().good()) << path;
    file.close();
    if (!seed.has_value()) fs::resize_file(path, sizeof size + size + static_cast<uint64_t>(end));
  }

 private:
  struct Tensor {
    std::string name;
    std::vector<int64_t> shape;
    int64_t values = 0;
  };
  static void Put(std::ofstream& file, DType dtype, float value) {
    if (dtype == DType::kF32) {
      file.write(reinterpret_cast<const char*>(&value), sizeof value);
      return;
    }
    const uint16_t half = tensor::ToBF16(value);
    file.write(reinterpret_cast<const char*>(&half), sizeof half);
  }

  fs::path path_;
  std::vector<Tensor> tensors_;
};

struct MissingTensor {
  std::string name;
  std::vector<int64_t> shape;
};

// Reads what the loader says of a tensor that it lacks: tensor "NAME" [64, 80] is missing. Nothing: it says
// something else.
std::optional<MissingTensor> MissingIn(std::string_view message) {
  constexpr std::string_view kBefore = "tensor \"", kBetween = "\" [", kAfter = "] is missing";
  const size_t before = message.find(kBefore);
  const size_t between = message.find(kBetween, before);
  const size_t after = message.find(kAfter, between);
  if (before == message.npos || between == message.npos || after == message.npos) return std::nullopt;
  const size_t name = before + kBefore.size(), shape = between + kBetween.size();
  MissingTensor missing{.name = std::string(message.substr(name, between - name)), .shape = {}};
  const std::vector<std::string> extents =
      absl::StrSplit(absl::string_view(message.data() + shape, after - shape), ", ");
  for (const std::string& extent : extents) missing.shape.push_back(std::stoll(extent));
  return missing;
}

// Asks the loader which tensors the config wants, one after the other. An error: what it refuses.
absl::Status AddMissing(const model::ModelConfig& config, DType dtype, Folder& folder) {
  constexpr int kMostTensors = 2000;
  folder.Add("model.norm.weight", {config.hidden});
  for (int i = 0; i < kMostTensors; ++i) {
    folder.WriteTensors(dtype, std::nullopt);
    BATON_ASSIGN_OR_RETURN(const model::Checkpoint checkpoint, model::Checkpoint::Open(folder.path()));
    const absl::Status checked = model::CheckWeights(folder.path(), checkpoint, config, {});
    const auto missing = MissingIn(std::string(checked.message()));
    if (checked.ok() || !missing.has_value()) return checked;
    folder.Add(missing->name, missing->shape);
  }
  return absl::InternalError("there is no end of tensors");
}

// The logits of each token of an answer.
using Logits = std::vector<std::vector<float>>;

struct Work {
  std::vector<TokenId> prompt;
  int64_t answer = 0;
  int64_t chunk = 0;
};

absl::StatusOr<Logits> Answer(const engine::EngineOptions& options, const Work& work) {
  BATON_ASSIGN_OR_RETURN(const auto engine, engine::Engine::Load(options));
  Logits logits;
  BATON_RETURN_IF_ERROR(
      engine::GenerateSolo(*engine, work.prompt, {.temperature = 0}, work.answer, {}, work.chunk, {},
                           [&](std::span<const float> row) { logits.emplace_back(row.begin(), row.end()); })
          .status());
  return logits;
}

// Compares token by token, up to the first at which the likeliest differs: another one may be as good.
absl::Status Compare(const Logits& expected, const Logits& actual) {
  constexpr float kTolerance = 2e-5f;
  const auto likeliest = [](const std::vector<float>& row) {
    return std::max_element(row.begin(), row.end()) - row.begin();
  };
  for (size_t t = 0; t < expected.size(); ++t) {
    float size = 1, apart = 0;
    for (size_t i = 0; i < expected[t].size(); ++i) {
      size = std::max(size, std::abs(expected[t][i]));
      apart = std::max(apart, std::abs(expected[t][i] - actual[t][i]));
    }
    if (!(apart <= kTolerance * size)) {
      return absl::InternalError(fmt::format("logits of token {} are {} apart, of up to {}", t, apart, size));
    }
    if (likeliest(expected[t]) != likeliest(actual[t])) break;
  }
  return absl::OkStatus();
}

class ModelShapes {
 public:
  explicit ModelShapes(std::span<const uint8_t> bytes) : bytes_(bytes) {}

  absl::StatusOr<bool> Run() {
    const json config = DrawConfig();
    const absl::StatusOr<bool> ran = Try(config);
    if (ran.ok()) return ran;
    return absl::InternalError(fmt::format("{}: {}", std::string(ran.status().message()), config.dump()));
  }

 private:
  absl::StatusOr<bool> Try(const json& drawn) {
    Folder folder;
    folder.WriteConfig(drawn);
    const auto config = model::ModelConfig::Load(folder.path());
    if (!config.ok()) return Refused(config.status());
    if (config->parameters() > kMostParameters || config->context < 2) return false;
    const DType dtype = Pick({DType::kF32, DType::kBF16});
    if (const absl::Status added = AddMissing(*config, dtype, folder); !added.ok()) return Refused(added);
    folder.WriteTensors(dtype, uint64_t{1} + Next());

    engine::EngineOptions options{.model_folder = folder.path(), .threads = 2, .kv_bytes = int64_t{16} << 20};
    const bool exact = Next() % 2 == 0;  // else it only has to run
    if (exact) {
      options.weights = model::WeightPrecision::kF32;  // bfloat16's products round activations
    } else {
      DrawPrecisions(options);
    }
    // A mixture gets one token: for one of many, two experts may be as good as each other.
    const bool one = exact && !config->expert_layers.empty();
    Work work;
    const int64_t tokens = 1 + Next() % (one ? 1 : std::min<int64_t>(40, config->context - 1));
    for (int64_t i = 0; i < tokens; ++i) {
      work.prompt.emplace_back(static_cast<int32_t>((i * 7 + Next()) % config->vocabulary));
    }
    work.answer = one ? 1 : std::min<int64_t>(3, config->context - tokens);
    work.chunk = Next() % 20;

    Logits logits[2];
    for (const bool cpu : {false, true}) {
      options.backend = cpu ? "cpu" : "reference";
      absl::StatusOr<Logits> answer = Answer(options, work);
      if (!answer.ok()) return Refused(answer.status());
      logits[cpu] = *std::move(answer);
    }
    if (exact) BATON_RETURN_IF_ERROR(Compare(logits[0], logits[1]));
    return true;
  }

  // A refusal says what it is that can't be.
  static absl::StatusOr<bool> Refused(const absl::Status& status) {
    if (absl::IsInvalidArgument(status) && status.message().size() > 10) return false;
    return absl::InternalError(fmt::format("refused as \"{}\"", status.ToString()));
  }

  json DrawConfig() {
    const std::string family = kFamilies[Next() % std::size(kFamilies)];
    std::ifstream file(InSource(("tests/golden/models/data/" + family + "/config.json").c_str()));
    json config = json::parse(file);
    config["eos_token_id"] = 0;  // which every vocabulary has
    for (int edits = Next() % 12; edits > 0; --edits) {
      const Field& field = kFields[Next() % std::size(kFields)];
      const int value = field.values[Next() % field.values.size()];
      if (value < 0) {
        config.erase(field.name);
      } else {
        config[field.name] = value;
      }
    }
    // A list by layer is as long as there are layers, mostly.
    if (config.contains("layer_types") && config.value("num_hidden_layers", 0) > 0 && Next() % 8 != 0) {
      json types = json::array();
      for (int l = 0; l < config["num_hidden_layers"]; ++l) {
        types.push_back(Next() % 2 == 0 ? "full_attention" : "sliding_attention");
      }
      config["layer_types"] = types;
    }
    if (config.contains("no_rope_layers") && config.value("num_hidden_layers", 0) > 0 && Next() % 8 != 0) {
      json turned = json::array();
      for (int l = 0; l < config["num_hidden_layers"]; ++l) turned.push_back(Next() % 2);
      config["no_rope_layers"] = turned;
    }
    if (config.contains("partial_rotary_factor"))
      config["partial_rotary_factor"] = Pick({0.25, 0.5, 0.3, 1.0});
    return config;
  }

  void DrawPrecisions(engine::EngineOptions& options) {
    options.key_dtype = Pick({DType::kF32, DType::kBF16, DType::kI8, DType::kI4});
    options.value_dtype = Pick({DType::kF32, DType::kBF16, DType::kI8, DType::kI4});
    options.weights = Pick({model::WeightPrecision::kStored, model::WeightPrecision::kBF16,
                            model::WeightPrecision::kInt8, model::WeightPrecision::kInt4});
    options.tp = 1 + Next() % 2;
  }

  uint8_t Next() {
    if (bytes_.empty()) return 0;
    const uint8_t byte = bytes_.front();
    bytes_ = bytes_.subspan(1);
    return byte;
  }
  template <typename T>
  T Pick(std::initializer_list<T> from) {
    return from.begin()[Next() % from.size()];
  }

  std::span<const uint8_t> bytes_;
};

}  // namespace

absl::StatusOr<bool> RunModelShapes(std::span<const uint8_t> bytes) { return ModelShapes(bytes).Run(); }

}  // namespace baton::fuzz
