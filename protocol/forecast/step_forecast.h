// StepForecast: how long a worker's next step takes, by what is in it:
//
//     seconds = base + sequence * (running + drafted) + context * (tokens that running ones attend to)
//             + token * rows + pair * (pairs of a computed row of a prompt and a token that it attends to)
//
// A row of a drafted token costs what a running sequence's does, logits included, but that the sequence's KV
// is read for all its rows at once: there it counts like a row of a prompt.
//
// Of steps without prompts, it learns besides how far each number of rows is from that line (row_curve.h).
//
// Workers measure the five at their start (engine/measure.h) and learn them from every step; routers begin
// with the costs that workers report. Plain data, one thread at a time.
#pragma once

#include <cstdint>
#include <span>

#include "absl/functional/function_ref.h"
#include "protocol/forecast/linear_fit.h"
#include "protocol/forecast/prefill_forecast.h"
#include "protocol/forecast/row_curve.h"

namespace baton::forecast {

struct StepLoad;

// Seconds. The defaults are a mid-size model on a current accelerator, used until a worker has measured.
struct StepCost {
  double base = 10e-3;
  double sequence = 50e-6;
  double context = 50e-9;
  double token = 50e-6;
  double pair = 1e-9;

  // The part of a step that the rows of prompts take.
  double PromptSeconds(const StepLoad& load) const;
  // Rows of prompts, with nothing else in the step.
  PrefillCost prefill() const { return {.base = base, .token = token, .pair = pair}; }
  friend bool operator==(const StepCost&, const StepCost&) = default;
};

// Whether costs that another process reported are valid: all finite, none negative, some positive.
bool Plausible(const StepCost& cost);

struct StepLoad {
  int64_t running = 0;  // sequences, a row each
  int64_t context = 0;  // tokens that those attend to
  int64_t rows = 0;     // of prompts
  double pairs = 0;     // that those make
  int64_t drafted = 0;  // rows of drafted tokens of running sequences
  double drafted_pairs = 0;

  // `count` further rows of a prompt behind `first` tokens.
  void AddRows(int64_t first, int64_t count);
  // `count` further rows of drafted tokens behind `first` tokens.
  void AddDrafted(int64_t first, int64_t count);
};

class StepForecast {
 public:
  explicit StepForecast(const StepCost& prior);
  double Seconds(const StepLoad& load) const;
  // By cost() alone, to which the cost of more rows adds up.
  double Line(const StepLoad& load) const;
  // The part of it that the rows of prompts take.
  double PromptSeconds(const StepLoad& load) const;
  // For a step without rows of prompts: the time that it would take without its drafted rows, as a share of
  // what it takes, in (0, 1].
  double PlainShare(const StepLoad& load) const;
  void Observe(const StepLoad& load, double seconds);
  struct Measured {
    StepLoad load;
    double seconds = 0;
  };
  // Replaces all earlier observations by these, which were measured on purpose and count alike.
  void Fit(std::span<const Measured> measured);
  StepCost cost() const;

 private:
  LinearFit<5> fit_;
  RowCurve rows_;  // of steps without prompts
};

// The maximum number of rows of a prompt, after its first `first` tokens, that take no longer than `seconds`,
// at these costs of a row and of a pair.
int64_t RowsWithin(double seconds, double token, double pair, int64_t first);

// The seconds that a step may take, so that an answer that gets a token of each meets a TPOT of `slo_tpot`
// seconds: 95% of it, for contexts grow while answers go on. A single answer's step takes `alone` seconds;
// where that is longer, nothing keeps the target, and it is twice that.
double TargetOfStep(double slo_tpot, double alone);

// The largest number of answers, in 1 .. `most`, at which a step keeps to that, where step_seconds(n), never
// decreasing, is what one of n answers takes.
int64_t AnswersInTime(double slo_tpot, int64_t most, absl::FunctionRef<double(int64_t)> step_seconds);

}  // namespace baton::forecast
