// StepPlanner: which rows the decode worker's next step computes. Every running sequence goes on by one
// token, and has rows for those drafted tokens that are to be checked; prompts that this worker prefills
// itself get chunks beside them, under the token budget and within the seconds that the step may take while
// answers wait. It sees numbers only: no engine, no pool, no clock, no I/O. The scheduler reserves the
// blocks, fills the batch and hands out the tokens.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "common/base/ids.h"
#include "protocol/forecast/step_forecast.h"

namespace baton::decode_service {

struct StepLimits {
  // Rows of one prompt in one step, and of all prompts and running sequences together. Both at least a block.
  int64_t chunk_tokens = 256;
  int64_t token_budget = 512;
  // Seconds that a step with rows of prompts, or with drafted tokens, may take while answers run: what each
  // of them waits for its next token. A block of a prompt goes into the step in any case, so that prompts
  // make progress.
  double slo_tpot = forecast::kDefaultSloTpot;
  // Rows of prompts in one step of all of which logits are wanted: at least a block.
  int64_t logit_rows = 256;
};

// What the planner knows of a sequence.
struct PlannerSequence {
  enum class State {
    kRunning,     // its next token is drawn from the row of its last token
    kPrefilling,  // its prompt, or its tokens after a preemption, are computed here
    kWaiting,     // others fill its blocks, or its client has to read first
    kPreempted,   // it holds no blocks
  };
  SequenceId id{0};
  State state = State::kWaiting;
  int64_t size = 0;        // tokens: prompt and answer
  int64_t computed = 0;    // tokens whose KV is in its blocks
  int64_t max_tokens = 0;  // of prompt and answer together
  // Its next token is a future token: the one that this draw of the step in flight gives.
  std::optional<int32_t> future_draw;
  // Tokens after its last one that are drafted and to be checked, for which it has blocks. 0 with a future
  // draw.
  int64_t drafted = 0;
  // Logits are wanted of all rows of its prompt from this position on; nothing: of the last alone.
  std::optional<int64_t> prompt_logits_from;
  // It may give up its blocks for others, and be computed again later.
  bool preemptible = false;
};

struct PlannedRows {
  SequenceId id{0};
  bool prompt = false;
  int64_t first = 0;  // position of the first row
  int64_t rows = 0;
  int64_t logit_rows = 0;              // as in engine::BatchRows
  std::optional<int32_t> future_draw;  // the row's token, if it is a future token
  int64_t drafted = 0;                 // of `rows`, the last so many are of drafted tokens
};

struct StepPlan {
  std::vector<PlannedRows> sequences;  // running ones in order of arrival, then prompts in order of arrival
  forecast::StepLoad load;

  bool empty() const { return sequences.empty(); }
  bool has_prompts() const { return load.rows > 0; }
  bool has_drafts() const { return load.drafted > 0; }
};

class StepPlanner {
 public:
  // CHECK-fails if a limit is less than a block.
  explicit StepPlanner(const StepLimits& limits);

  double slo_tpot() const { return limits_.slo_tpot; }
  void SetSloTpot(double seconds) { limits_.slo_tpot = seconds; }

  // `sequences`: in order of arrival. answers_wait: there are sequences that will run as soon as their last
  // blocks arrive, besides those that run now. forecast: what the worker's steps take.
  StepPlan Plan(std::span<const PlannerSequence> sequences, bool answers_wait,
                const forecast::StepForecast& forecast) const;

  // Tokens for which a running sequence must have blocks before its row is planned.
  static int64_t TokensWithBlocks(const PlannerSequence& sequence);
  // The sequence that gives up its blocks when the pool has none left: the youngest that may. None if no
  // sequence may.
  static std::optional<SequenceId> Victim(std::span<const PlannerSequence> sequences);

 private:
  StepLimits limits_;
};

}  // namespace baton::decode_service
