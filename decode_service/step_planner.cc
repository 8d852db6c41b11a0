#include "decode_service/step_planner.h"

#include <algorithm>
#include <limits>

#include "common/base/check.h"
#include "engine/chunk_planner.h"

namespace baton::decode_service {

using State = PlannerSequence::State;

StepPlanner::StepPlanner(const StepLimits& limits) : limits_(limits) {
  BATON_CHECK(limits_.chunk_tokens >= kBlockTokens && limits_.token_budget >= kBlockTokens &&
              limits_.logit_rows >= kBlockTokens);
}

StepPlan StepPlanner::Plan(std::span<const PlannerSequence> sequences, bool answers_wait,
                           const forecast::StepForecast& forecast) const {
  StepPlan plan;
  for (const PlannerSequence& sequence : sequences) {
    if (sequence.state != State::kRunning) continue;
    PlannedRows planned = {.id = sequence.id, .first = sequence.size - 1, .rows = 1, .logit_rows = 1};
    if (sequence.future_draw.has_value()) {
      // The future token may be its last, and then there is no place for another.
      if (sequence.size + 1 >= sequence.max_tokens) continue;
      planned.first = sequence.size;
      planned.future_draw = sequence.future_draw;
    }
    planned.drafted = sequence.drafted;
    planned.rows += sequence.drafted;
    planned.logit_rows += sequence.drafted;
    plan.sequences.push_back(planned);
    ++plan.load.running;
    plan.load.context += sequence.size;
    plan.load.AddDrafted(sequence.size, sequence.drafted);
  }
  // Running sequences never wait for the budget. Prompts take what they leave, and at least one block a step.
  // What rows of prompts add is known by the line, so what they add it to is, too.
  engine::ChunkLimits limits = {
      .chunk_tokens = limits_.chunk_tokens,
      .token_budget =
          std::max<int64_t>(limits_.token_budget - plan.load.running - plan.load.drafted, kBlockTokens)};
  if (plan.load.running > 0 || answers_wait) limits.seconds = limits_.slo_tpot - forecast.Line(plan.load);
  engine::ChunkPlanner chunks(limits, forecast.cost());
  int64_t logits_left = limits_.logit_rows;
  for (const PlannerSequence& sequence : sequences) {
    if (sequence.state != State::kPrefilling) continue;
    const int64_t remaining = sequence.size - sequence.computed;
    const bool logits = sequence.prompt_logits_from.has_value();
    if (logits && logits_left == 0) continue;  // later prompts need none
    const int64_t rows =
        chunks.Take(sequence.computed, logits ? std::min(remaining, logits_left) : remaining);
    if (rows == 0) break;
    int64_t logit_rows = rows == remaining ? 1 : 0;
    if (logits) {
      const int64_t wanted =
          sequence.computed + rows - std::max(sequence.computed, *sequence.prompt_logits_from);
      logit_rows = std::max(logit_rows, wanted);
      logits_left -= std::min(logits_left, std::max<int64_t>(0, wanted));
    }
    plan.sequences.push_back({.id = sequence.id,
                              .prompt = true,
                              .first = sequence.computed,
                              .rows = rows,
                              .logit_rows = logit_rows});
    plan.load.AddRows(sequence.computed, rows);
  }
  return plan;
}

int64_t StepPlanner::TokensWithBlocks(const PlannerSequence& sequence) {
  return sequence.size + (sequence.future_draw.has_value() ? 1 : 0);
}

std::optional<SequenceId> StepPlanner::Victim(std::span<const PlannerSequence> sequences) {
  for (auto sequence = sequences.rbegin(); sequence != sequences.rend(); ++sequence) {
    if (sequence->preemptible) return sequence->id;
  }
  return std::nullopt;
}

}  // namespace baton::decode_service
