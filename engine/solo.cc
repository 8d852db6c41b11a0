#include "engine/solo.h"

#include <algorithm>
#include <utility>

#include "common/base/digest.h"
#include "common/base/status.h"
#include "engine/reused_spans.h"
#include "engine/sequence_kv.h"
#include "protocol/prompt_chain.h"

namespace baton::engine {

absl::StatusOr<SoloRun> GenerateSolo(Engine& engine, std::span<const TokenId> prompt,
                                     const sampling::Params& params, int64_t max_tokens,
                                     std::span<const TokenId> stops, int64_t chunk,
                                     std::vector<kv::ReusableSpan> spans,
                                     const std::function<void(std::span<const float>)>& seen) {
  if (prompt.empty()) return absl::InvalidArgumentError("prompt is empty");
  ReusedSpans reused(engine, kv::PromptChain(engine.RootFor(kv::TenantSalt("")), std::move(spans)), prompt);
  BATON_RETURN_IF_ERROR(reused.Reserve(0));
  BATON_ASSIGN_OR_RETURN(const std::vector<BlockId> blocks,
                         engine.pool().Allocate(BlocksFor(static_cast<int64_t>(prompt.size()) + max_tokens)));
  sampling::Sampler sampler;
  sampling::History history;
  history.AddPrompt(prompt);
  std::vector<TokenId> tokens(prompt.begin(), prompt.end());
  SoloRun run;
  Batch batch;
  for (size_t span = reused.NextMissing(0); span < reused.size(); span = reused.NextMissing(span)) {
    const int64_t rows = chunk > 0 ? std::min(chunk, reused.remaining(span)) : reused.remaining(span);
    batch.Clear();
    batch.Add(reused.RowsOf(span, rows));
    engine.Forward(batch, [](int) {});
    reused.Computed(span, rows);
  }
  while (reused.Land(std::ssize(prompt), blocks) > 0) {
  }
  size_t computed = 0;
  while (static_cast<int64_t>(run.tokens.size()) < max_tokens) {
    computed = static_cast<size_t>(reused.SkipLanded(static_cast<int64_t>(computed)));
    const size_t rest = tokens.size() - computed;
    size_t rows = chunk > 0 ? std::min<size_t>(chunk, rest) : rest;
    if (computed < prompt.size()) {
      const auto first = static_cast<int64_t>(computed);
      rows = std::min(rows, static_cast<size_t>(reused.EndOfRows(first) - first));
    }
    batch.Clear();
    batch.Add({.tokens = std::span(tokens).subspan(computed, rows),
               .first_position = static_cast<int64_t>(computed),
               .blocks = blocks,
               .logit_rows = rows == rest ? 1 : 0});
    const StepResult result = engine.Forward(batch, [](int) {});
    computed += rows;
    if (rows < rest) continue;
    const std::span<const float> logits = result.logits(0);
    if (seen != nullptr) seen(logits);
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
