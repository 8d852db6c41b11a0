// MeasureStepCost: measures how long steps take on this engine: it computes a few chunks of a made-up prompt
// and a few decode steps, in blocks that go back to the pool free and unpublished. For the start of a worker,
// before it takes work, on the engine's thread. With a small model it takes milliseconds; with a large one it
// ends with the step during which `budget` runs out, at the earliest after a chunk of one block and one
// decode step.
#pragma once

#include <cstdint>

#include "absl/time/time.h"
#include "common/base/clock.h"
#include "engine/engine.h"
#include "protocol/forecast/step_forecast.h"

namespace baton::engine {

struct MeasureOptions {
  // Rows of the longest chunk: the most that a step of this worker has.
  int64_t chunk_tokens = 512;
  absl::Duration budget = absl::Seconds(2);
  // Steps of Engine::ForwardDraft rather than the model's own.
  bool drafts = false;
};

// The prior if the pool has no block for it.
forecast::StepCost MeasureStepCost(Engine& engine, const MeasureOptions& options, const Clock& clock);

}  // namespace baton::engine
