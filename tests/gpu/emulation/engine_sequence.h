// A sequence on an engine of the emulated runtime, for tests of what becomes of its KV.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/engine.h"

namespace baton::gpu {

// The model that ships, on so many GPUs: those named, or the first.
inline std::unique_ptr<engine::Engine> Load(int tp, std::vector<int> devices = {}) {
  auto engine = engine::Engine::Load({.model_folder = BATON_SOURCE_DIR "/models/baton-tiny",
                                      .backend = "cuda",
                                      .threads = tp,
                                      .tp = tp,
                                      .kv_bytes = 1 << 20,
                                      .key_dtype = tensor::DType::kBF16,
                                      .value_dtype = tensor::DType::kBF16,
                                      .devices = std::move(devices)});
  EXPECT_TRUE(engine.ok()) << engine.status();
  return engine.ok() ? *std::move(engine) : nullptr;
}

// A sequence of random tokens that the engine computes step by step.
class Sequence {
 public:
  Sequence(engine::Engine& engine, int64_t tokens)
      : engine_(engine),
        tokens_(static_cast<size_t>(tokens)),
        blocks_(*engine.pool().Allocate(BlocksFor(tokens))) {
    Restart(7);
  }
  ~Sequence() { engine_.pool().Release(blocks_); }

  // The KV of its first tokens has come from elsewhere.
  void Arrived(int64_t tokens) { computed_ = tokens; }
  int64_t computed() const { return computed_; }
  // Another sequence of as many tokens, in the same blocks.
  void Restart(uint32_t seed) {
    std::mt19937 random(seed);
    const auto vocabulary = static_cast<uint32_t>(engine_.config().vocabulary);
    for (TokenId& token : tokens_) token = TokenId(static_cast<int32_t>(random() % vocabulary));
    computed_ = 0;
  }

  // The next `rows` tokens; logits of the last of them, or none.
  std::vector<float> Step(
      int64_t rows, bool logits, absl::FunctionRef<void(int)> layer_done = [](int) {}) {
    engine::Batch batch;
    batch.Add(
        {.tokens = std::span(tokens_).subspan(static_cast<size_t>(computed_), static_cast<size_t>(rows)),
         .first_position = computed_,
         .blocks = blocks_,
         .logit_rows = logits ? 1 : 0});
    const engine::StepResult result = engine_.Forward(batch, layer_done);
    computed_ += rows;
    return {result.logits().begin(), result.logits().end()};
  }
  // Where a layer of all blocks lies.
  std::vector<std::span<std::byte>> Pieces(int layer) const {
    std::vector<std::span<std::byte>> pieces;
    for (const BlockId block : blocks_) engine_.store().AppendPieces(block, layer, 1, pieces);
    return pieces;
  }

 private:
  engine::Engine& engine_;
  std::vector<TokenId> tokens_;
  std::vector<BlockId> blocks_;
  int64_t computed_ = 0;
};

inline std::string Contents(engine::Engine& engine, std::span<const std::span<std::byte>> pieces) {
  std::string bytes;
  for (const auto piece : pieces) {
    std::string part(piece.size(), '\0');
    EXPECT_TRUE(
        engine.store().memory().Download(piece.data(), part.data(), static_cast<int64_t>(part.size())).ok());
    bytes += part;
  }
  return bytes;
}

}  // namespace baton::gpu
