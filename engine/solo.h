// Solo: the engine alone, one prompt at a time, no services, no cache, no chunks but those asked for: what
// the relay's tokens are compared with.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/engine.h"
#include "engine/sampling/sampler.h"
#include "protocol/reusable_span.h"

namespace baton::engine {

struct SoloRun {
  std::vector<TokenId> tokens;
  // CRC32C over the float32 logits from which each token was drawn.
  std::vector<uint32_t> logits_digests;
};

// Prefills `prompt` in chunks of `chunk` tokens (0: at once) and generates `max_tokens` tokens, stopping
// after one of `stops`. RESOURCE_EXHAUSTED if the pool is too small. The tokens of `spans`, which passed
// CheckReusable, land (reused_spans.h); their canonical blocks stay in the prefix cache. seen: called with
// the logits of each token.
absl::StatusOr<SoloRun> GenerateSolo(Engine& engine, std::span<const TokenId> prompt,
                                     const sampling::Params& params, int64_t max_tokens,
                                     std::span<const TokenId> stops, int64_t chunk,
                                     std::vector<kv::ReusableSpan> spans = {},
                                     const std::function<void(std::span<const float>)>& seen = nullptr);

}  // namespace baton::engine
