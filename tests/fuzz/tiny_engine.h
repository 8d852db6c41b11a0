// A model of a few kilobytes, engines on it, and what such an engine alone makes of a prompt: what the
// schedulers' interpreters compare with. Not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "engine/solo.h"
#include "protocol/reusable_span.h"

namespace baton::fuzz {

// Which random weights a tiny model has: two of different seeds agree about nothing.
inline constexpr uint64_t kTinySeed = 7;

// A new engine with so many KV blocks. The same weights each time, for one vocabulary and seed. drafts: with
// a copy of them in 4 bits (Engine::ForwardDraft).
std::unique_ptr<engine::Engine> MakeTinyEngine(int64_t blocks, int vocabulary = 60,
                                               const std::string& backend = "reference",
                                               uint64_t seed = kTinySeed, bool drafts = false);

// Texts that share their first block and differ after it: token `i` of text `which`.
std::vector<TokenId> TinyPrompt(int which, int64_t size);

class SoloAnswers {
 public:
  struct Prefilled {
    // [block][layer]: the bytes of the KV; of a block that isn't full, the rows of no token are zero.
    std::vector<std::vector<std::string>> layers;
    std::vector<float> logits;  // of the last position
  };

  SoloAnswers();

  // With reusable spans: what docs/chunk-reuse.md defines, one thing after the other.
  const Prefilled& Prefill(const std::vector<TokenId>& tokens,
                           const std::vector<kv::ReusableSpan>& spans = {});
  // kMaxAnswer tokens, greedy, or so with penalties and a bias.
  const engine::SoloRun& Answer(const std::vector<TokenId>& prompt, bool penalised = false);
  static sampling::Params ParamsOf(bool penalised);
  static constexpr int64_t kMaxAnswer = 24;
  // The longest prompt.
  static constexpr int64_t kMaxPrompt = 160;

  // True if `bytes`, a layer of a block, holds the KV of the prompt's block `index` of `tokens` tokens. Rows
  // of no token are not looked at.
  bool SameLayer(const Prefilled& prefilled, int64_t tokens, int64_t index, int layer,
                 std::string_view bytes) const;

 private:
  // Computes tokens [first, end) of a sequence; the logits of the last.
  std::span<const float> Forward(std::span<const TokenId> tokens, int64_t first, int64_t end,
                                 std::span<const BlockId> blocks);
  // Computes and lands a span of the prompt whose blocks these are.
  void Land(std::span<const TokenId> tokens, const kv::ReusableSpan& span, std::span<const BlockId> blocks);

  std::unique_ptr<engine::Engine> engine_;
  std::map<std::vector<int32_t>, Prefilled> prefilled_;
  std::map<std::vector<int32_t>, engine::SoloRun> answers_[2];  // without and with penalties
};

// One for the process: it remembers what it was asked.
SoloAnswers& TheSoloAnswers();

}  // namespace baton::fuzz
