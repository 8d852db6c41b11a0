#include "lab/bench/engine_runs.h"

#include <algorithm>
#include <cstddef>
#include <span>

#include "absl/time/time.h"
#include "common/base/check.h"

namespace baton::lab::bench {

double SecondsOf(const Clock& clock, const std::function<void()>& work) {
  const absl::Time begin = clock.Now();
  work();
  return absl::ToDoubleSeconds(clock.Now() - begin);
}

EngineRuns::EngineRuns(engine::Engine& engine, int64_t blocks, const Clock& clock)
    : engine_(engine), clock_(clock), blocks_(*engine.pool().Allocate(blocks)) {
  // Pages that were never written are all one page of zeros, which no memory has to be read for.
  const std::vector<std::byte> bytes(static_cast<size_t>(engine_.store().layout().block_bytes()),
                                     std::byte{0x3C});
  std::vector<std::span<std::byte>> pieces;
  for (const BlockId block : blocks_) {
    engine_.store().AppendPieces(block, 0, engine_.store().layout().layers, pieces);
  }
  for (const std::span<std::byte> piece : pieces) {
    const absl::Status written =
        engine_.store().memory().Upload(bytes.data(), piece.data(), std::ssize(piece));
    BATON_CHECK(written.ok()) << written;
  }
}

EngineRuns::~EngineRuns() { engine_.pool().Release(blocks_); }

double EngineRuns::Prompt(int64_t tokens, int64_t chunk) {
  Fill(tokens);
  return SecondsOf(clock_, [&] {
    for (int64_t first = 0; first < tokens; first += chunk) {
      const int64_t rows = std::min(chunk, tokens - first);
      batch_.Clear();
      batch_.Add({.tokens = std::span(tokens_).subspan(static_cast<size_t>(first), static_cast<size_t>(rows)),
                  .first_position = first,
                  .blocks = blocks_,
                  .logit_rows = first + rows == tokens ? 1 : 0});
      engine_.Forward(batch_, [](int) {});
    }
  });
}

double EngineRuns::Step(int64_t batch, int64_t depth, int steps) {
  Fill(batch);
  const auto each = static_cast<size_t>(BlocksFor(depth + 1));
  const double seconds = SecondsOf(clock_, [&] {
    for (int step = 0; step < steps; ++step) {
      batch_.Clear();
      for (size_t s = 0; s < static_cast<size_t>(batch); ++s) {
        batch_.Add({.tokens = std::span(tokens_).subspan(s, 1),
                    .first_position = depth,
                    .blocks = std::span(blocks_).subspan(s * each, each),
                    .logit_rows = 1});
      }
      engine_.Forward(batch_, [](int) {});
    }
  });
  return seconds / steps;
}

void EngineRuns::Fill(int64_t count) {
  tokens_.clear();
  for (int64_t i = 0; i < count; ++i) {
    tokens_.emplace_back(static_cast<int32_t>(i * 7919 % engine_.config().vocabulary));
  }
}

}  // namespace baton::lab::bench
