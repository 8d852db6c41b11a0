// StepForecast: how long a worker's next step takes, by what is in it:
//
//     seconds = base + sequence * running + context * (tokens that they attend to)
//             + token * rows + pair * (pairs of a computed row of a prompt and a token that it attends to)
//
// Workers measure the five at their start (engine/measure.h) and learn them from every step; routers begin
// with what workers say of themselves. Plain data, one thread at a time.
#pragma once

#include <cstdint>
#include <span>

#include "common/forecast/linear_fit.h"
#include "common/forecast/prefill_forecast.h"

namespace baton::forecast {

struct StepLoad;

// Seconds. The defaults are a mid-size model on a current accelerator, until somebody has measured.
struct StepCost {
  double base = 10e-3;
  double sequence = 50e-6;
  double context = 50e-9;
  double token = 50e-6;
  double pair = 1e-9;

  // The part of a step that the rows of prompts take.
  double PromptSeconds(const StepLoad& load) const;
  // Of prompts, with nothing else in their steps.
  PrefillCost prefill() const { return {.base = base, .token = token, .pair = pair}; }
  friend bool operator==(const StepCost&, const StepCost&) = default;
};

// Another process's word: all finite, none below zero, and some above it.
bool Plausible(const StepCost& cost);

struct StepLoad {
  int64_t running = 0;  // sequences, a row each
  int64_t context = 0;  // tokens that those attend to
  int64_t rows = 0;     // of prompts
  double pairs = 0;     // that those make

  // `count` further rows of a prompt behind `first` tokens.
  void AddRows(int64_t first, int64_t count);
};

class StepForecast {
 public:
  explicit StepForecast(const StepCost& prior);
  double Seconds(const StepLoad& load) const;
  // The part of it that the rows of prompts take.
  double PromptSeconds(const StepLoad& load) const;
  void Observe(const StepLoad& load, double seconds);
  struct Measured {
    StepLoad load;
    double seconds = 0;
  };
  // What was measured on purpose, all of it at once and alike, in place of what was observed before.
  void Fit(std::span<const Measured> measured);
  StepCost cost() const;

 private:
  LinearFit<5> fit_;
};

// The most rows of a prompt, behind `first` tokens, that take no longer than `seconds`, at these costs of a
// row and of a pair.
int64_t RowsWithin(double seconds, double token, double pair, int64_t first);

// Seconds per token after the first that answers may take. Routers and decode workers: --slo-tpot of both.
inline constexpr double kDefaultSloTpot = 0.05;

}  // namespace baton::forecast
