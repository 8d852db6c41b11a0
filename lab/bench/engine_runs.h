// EngineRuns: how long an engine takes for a prompt and for a step of decode, of made-up tokens and KV. One
// thread, that of the engine.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "common/base/clock.h"
#include "common/base/ids.h"
#include "engine/engine.h"

namespace baton::lab::bench {

double SecondsOf(const Clock& clock, const std::function<void()>& work);

class EngineRuns {
 public:
  // Blocks of a step of `batch` sequences with `depth` tokens each.
  static int64_t BlocksOfStep(int64_t batch, int64_t depth) { return batch * BlocksFor(depth + 1); }

  // Works in as many blocks, which the engine's pool has free, and writes numbers into them.
  EngineRuns(engine::Engine& engine, int64_t blocks, const Clock& clock);
  ~EngineRuns();
  EngineRuns(const EngineRuns&) = delete;
  EngineRuns& operator=(const EngineRuns&) = delete;

  // Seconds of a prompt, in chunks, that ends with the logits of one row.
  double Prompt(int64_t tokens, int64_t chunk);
  // Seconds of a step, in the mean over so many, each at the same depth.
  double Step(int64_t batch, int64_t depth, int steps);

 private:
  void Fill(int64_t count);

  engine::Engine& engine_;
  const Clock& clock_;
  const std::vector<BlockId> blocks_;
  std::vector<TokenId> tokens_;
  engine::Batch batch_;
};

}  // namespace baton::lab::bench
