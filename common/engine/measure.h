// MeasureStepCost: what a step takes on this engine, here and now: a few chunks of a prompt that nobody asked
// for and a few decode steps, computed in blocks that go back as they came, free and unpublished. For the
// start of a worker, before it takes work: on the engine's thread, while nothing else runs on it. On a small
// model it takes milliseconds; on a large one it ends with the step during which `budget` has run out, at the
// earliest after a chunk of one block and one decode step.
#pragma once

#include <cstdint>

#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/engine/engine.h"
#include "common/forecast/step_forecast.h"

namespace baton::engine {

struct MeasureOptions {
  // Rows of the longest chunk: what a step of this worker has at most.
  int64_t chunk_tokens = 512;
  absl::Duration budget = absl::Seconds(2);
};

// The prior if the pool has no block for it.
forecast::StepCost MeasureStepCost(Engine& engine, const MeasureOptions& options, const Clock& clock);

}  // namespace baton::engine
