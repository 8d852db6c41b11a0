#include "common/engine/solo.h"

#include <algorithm>

#include "common/base/digest.h"
#include "common/base/status.h"
#include "common/engine/sequence_kv.h"

namespace baton::engine {

absl::StatusOr<SoloRun> GenerateSolo(Engine& engine, std::span<const TokenId> prompt,
                                     const sampling::Params& params, int64_t max_tokens,
                                     std::span<const TokenId> stops, int64_t chunk) {
  if (prompt.empty()) return absl::InvalidArgumentError("prompt is empty");
  BATON_ASSIGN_OR_RETURN(const std::vector<BlockId> blocks,
                         engine.pool().Allocate(BlocksFor(static_cast<int64_t>(prompt.size()) + max_tokens)));
  sampling::Sampler sampler;
  sampling::History history;
  history.AddPrompt(prompt);
  std::vector<TokenId> tokens(prompt.begin(), prompt.end());
  SoloRun run;
  Batch batch;
  size_t computed = 0;
  while (static_cast<int64_t>(run.tokens.size()) < max_tokens) {
    const size_t rest = tokens.size() - computed;
    const size_t rows = chunk > 0 ? std::min<size_t>(chunk, rest) : rest;
    batch.Clear();
    batch.Add({.tokens = std::span(tokens).subspan(computed, rows),
               .first_position = static_cast<int64_t>(computed),
               .blocks = blocks,
               .logit_rows = rows == rest ? 1 : 0});
    const StepResult result = engine.Forward(batch, [](int) {});
    computed += rows;
    if (rows < rest) continue;
    const std::span<const float> logits = result.logits(0);
    run.logits_digests.push_back(Crc32c(std::as_bytes(logits)));
    const auto draw = sampler.Sample(logits, params, history, tokens.size(), std::nullopt);
    if (!draw.ok()) {
      engine.pool().Release(blocks);
      return draw.status();
    }
    const TokenId token = draw->token;
    history.AddOutput(token);
    tokens.push_back(token);
    run.tokens.push_back(token);
    if (std::find(stops.begin(), stops.end(), token) != stops.end()) break;
  }
  engine.pool().Release(blocks);
  return run;
}

}  // namespace baton::engine
