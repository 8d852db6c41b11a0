#include "tests/fuzz/tiny_engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <utility>

#include "absl/strings/str_replace.h"
#include "common/base/check.h"
#include "common/base/random.h"
#include "engine/sequence_kv.h"

namespace baton::fuzz {
namespace {

namespace fs = std::filesystem;

constexpr int kHidden = 16, kHeads = 2, kKvHeads = 1, kHeadDim = 8, kInner = 16, kLayers = 2;

constexpr char kConfig[] =
    R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 16,
        "intermediate_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1,
        "head_dim": 8, "vocab_size": VOCABULARY, "max_position_embeddings": 512, "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0, "hidden_act": "silu", "tie_word_embeddings": true, "eos_token_id": 2,
        "torch_dtype": "float32"})";

// Appends a tensor of draws around `mean` to header and data.
void AddTensor(uint64_t seed, const std::string& name, std::vector<int> shape, float mean,
               std::string& header, std::string& data) {
  int64_t count = 1;
  std::string extents;
  for (int extent : shape) {
    count *= extent;
    extents += fmt::format("{}{}", extents.empty() ? "" : ",", extent);
  }
  const size_t begin = data.size();
  for (int64_t i = 0; i < count; ++i) {
    // Wide enough that greedy answers don't fall into one token for ever.
    const auto value = mean + static_cast<float>(UniformAt(seed, begin + i) - 0.5);
    data.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  header += fmt::format("{}\"{}\":{{\"dtype\":\"F32\",\"shape\":[{}],\"data_offsets\":[{},{}]}}",
                        header.empty() ? "{" : ",", name, extents, begin, data.size());
}

// A folder that lives as long as the process.
class Folder {
 public:
  Folder(int vocabulary, uint64_t seed) {
    std::string pattern = fs::temp_directory_path() / "baton-fuzz-XXXXXX";
    BATON_CHECK(mkdtemp(pattern.data()) != nullptr);
    path_ = pattern;
    std::ofstream(path_ / "config.json")
        << absl::StrReplaceAll(kConfig, {{"VOCABULARY", fmt::format("{}", vocabulary)}});
    std::string header, data;
    AddTensor(seed, "model.embed_tokens.weight", {vocabulary, kHidden}, 0, header, data);
    for (int layer = 0; layer < kLayers; ++layer) {
      const std::string prefix = fmt::format("model.layers.{}.", layer);
      AddTensor(seed, prefix + "input_layernorm.weight", {kHidden}, 1, header, data);
      AddTensor(seed, prefix + "self_attn.q_proj.weight", {kHeads * kHeadDim, kHidden}, 0, header, data);
      AddTensor(seed, prefix + "self_attn.k_proj.weight", {kKvHeads * kHeadDim, kHidden}, 0, header, data);
      AddTensor(seed, prefix + "self_attn.v_proj.weight", {kKvHeads * kHeadDim, kHidden}, 0, header, data);
      AddTensor(seed, prefix + "self_attn.o_proj.weight", {kHidden, kHeads * kHeadDim}, 0, header, data);
      AddTensor(seed, prefix + "post_attention_layernorm.weight", {kHidden}, 1, header, data);
      AddTensor(seed, prefix + "mlp.gate_proj.weight", {kInner, kHidden}, 0, header, data);
      AddTensor(seed, prefix + "mlp.up_proj.weight", {kInner, kHidden}, 0, header, data);
      AddTensor(seed, prefix + "mlp.down_proj.weight", {kHidden, kInner}, 0, header, data);
    }
    AddTensor(seed, "model.norm.weight", {kHidden}, 1, header, data);
    header += "}";
    std::string length(8, '\0');
    for (size_t i = 0; i < 8; ++i) length[i] = static_cast<char>(uint64_t{header.size()} >> (8 * i));
    std::ofstream(path_ / "model.safetensors", std::ios::binary) << length << header << data;
  }
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  std::string path() const { return path_; }

 private:
  fs::path path_;
};

std::vector<int32_t> Key(const std::vector<TokenId>& tokens) {
  std::vector<int32_t> key;
  for (TokenId token : tokens) key.push_back(token.value());
  return key;
}

// The bound of each cache of results; a prompt costs a few milliseconds to compute again.
constexpr size_t kMaxRemembered = 4096;

}  // namespace

std::unique_ptr<engine::Engine> MakeTinyEngine(int64_t blocks, int vocabulary, const std::string& backend,
                                               uint64_t seed, bool drafts) {
  static std::map<std::pair<int, uint64_t>, std::unique_ptr<Folder>> folders;
  std::unique_ptr<Folder>& folder = folders[{vocabulary, seed}];
  if (folder == nullptr) folder = std::make_unique<Folder>(vocabulary, seed);
  engine::EngineOptions options = {
      .model_folder = folder->path(), .backend = backend, .threads = 1, .kv_blocks = blocks};
  if (drafts) options.draft_weights = model::WeightPrecision::kInt4;
  auto engine = engine::Engine::Load(options);
  BATON_CHECK(engine.ok()) << engine.status();
  return *std::move(engine);
}

std::vector<TokenId> TinyPrompt(int which, int64_t size) {
  std::vector<TokenId> tokens;
  for (int64_t i = 0; i < size; ++i) {
    tokens.emplace_back(static_cast<int32_t>(3 + (i * 31 + (i < kBlockTokens ? 0 : 17 * which)) % 57));
  }
  return tokens;
}

SoloAnswers::SoloAnswers() : engine_(MakeTinyEngine(2 * BlocksFor(kMaxPrompt + 2 * kMaxAnswer))) {}

std::span<const float> SoloAnswers::Forward(std::span<const TokenId> tokens, int64_t first, int64_t end,
                                            std::span<const BlockId> blocks) {
  engine::Batch batch;
  batch.Add({.tokens = tokens.subspan(static_cast<size_t>(first), static_cast<size_t>(end - first)),
             .first_position = first,
             .blocks = blocks,
             .logit_rows = 1});
  return engine_->Forward(batch, [](int) {}).logits(0);
}

void SoloAnswers::Land(std::span<const TokenId> tokens, const kv::ReusableSpan& span,
                       std::span<const BlockId> blocks) {
  const std::vector<TokenId> canonical = kv::CanonicalTokens(span, tokens);
  const std::vector<BlockId> own = engine_->pool().Allocate(kv::CanonicalBlocks(span)).value();
  Forward(canonical, 0, std::ssize(canonical), own);
  const kv::ReusableSpan landed = kv::LandedPart(span);
  engine_->Land({.from = own,
                 .from_position = kv::CanonicalPosition(span, landed.begin),
                 .to = blocks,
                 .to_position = landed.begin,
                 .tokens = landed.tokens()});
  engine_->pool().Release(own);
}

const SoloAnswers::Prefilled& SoloAnswers::Prefill(const std::vector<TokenId>& tokens,
                                                   const std::vector<kv::ReusableSpan>& spans) {
  auto key = Key(tokens);
  for (const kv::ReusableSpan& span : spans) {
    key.push_back(-static_cast<int32_t>(span.begin) - 1);
    key.push_back(-static_cast<int32_t>(span.end) - 1);
  }
  if (const auto found = prefilled_.find(key); found != prefilled_.end()) return found->second;
  if (prefilled_.size() >= kMaxRemembered) prefilled_.clear();
  Prefilled& prefilled = prefilled_[key];
  const auto size = static_cast<int64_t>(tokens.size());
  const std::vector<BlockId> blocks = engine_->pool().Allocate(BlocksFor(size)).value();
  for (BlockId block : blocks) std::ranges::fill(engine_->store().layers(block, 0, kLayers), std::byte{0});
  int64_t computed = 0;
  for (const kv::ReusableSpan& span : spans) {
    const kv::ReusableSpan landed = kv::LandedPart(span);
    Forward(tokens, computed, landed.begin, blocks);
    Land(tokens, span, blocks);
    computed = landed.end;
  }
  const std::span<const float> logits = Forward(tokens, computed, size, blocks);
  prefilled.logits.assign(logits.begin(), logits.end());
  for (BlockId block : blocks) {
    auto& layers = prefilled.layers.emplace_back();
    for (int layer = 0; layer < kLayers; ++layer) {
      const auto bytes = engine_->store().layers(block, layer, 1);
      layers.emplace_back(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    }
  }
  engine_->pool().Release(blocks);
  return prefilled;
}

sampling::Params SoloAnswers::ParamsOf(bool penalised) {
  if (!penalised) return {.temperature = 0};
  return {.temperature = 0,
          .repetition_penalty = 1.25f,
          .presence_penalty = 0.125f,
          .frequency_penalty = 0.5f,
          .logit_bias = {{TokenId(7), 0.5f}}};
}

const engine::SoloRun& SoloAnswers::Answer(const std::vector<TokenId>& prompt, bool penalised) {
  auto& answers = answers_[penalised ? 1 : 0];
  const auto key = Key(prompt);
  if (const auto found = answers.find(key); found != answers.end()) return found->second;
  if (answers.size() >= kMaxRemembered) answers.clear();
  return answers[key] =
             engine::GenerateSolo(*engine_, prompt, ParamsOf(penalised), kMaxAnswer, {}, 0).value();
}

bool SoloAnswers::SameLayer(const Prefilled& prefilled, int64_t tokens, int64_t index, int layer,
                            std::string_view bytes) const {
  const std::string& right = prefilled.layers.at(index).at(layer);
  if (bytes.size() != right.size()) return false;
  const int64_t rows = std::min<int64_t>(tokens - index * kBlockTokens, kBlockTokens);
  const auto same = [&](int64_t at) {
    return std::memcmp(right.data() + at * sizeof(float), bytes.data() + at * sizeof(float), sizeof(float)) ==
           0;
  };
  for (int64_t d = 0; d < kHeadDim; ++d) {
    for (int64_t row = 0; row < rows; ++row) {
      // kv_layout.h: keys lie with tokens innermost, values with head_dim innermost.
      if (!same(d * kBlockTokens + row)) return false;
      if (!same((kBlockTokens + row) * kHeadDim + d)) return false;
    }
  }
  return true;
}

SoloAnswers& TheSoloAnswers() {
  static SoloAnswers answers;
  return answers;
}

}  // namespace baton::fuzz
