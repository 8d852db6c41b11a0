// DrawTable: the draws of a step as one run of bytes that is uploaded at once, and where in it kernels find
// what. No CUDA in here: it is built and tested everywhere. Plain data, any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/kernels/draw.h"

namespace baton::kernels::cuda {

// SeenTokens, whose tokens lie one after the other: those of its prompt, then those of its output.
struct SeenRun {
  int32_t slot = 0;
  int32_t first = 0;
  int32_t prompt = 0;
  int32_t output = 0;
};

// The table as kernels see it.
struct DrawView {
  const RowDraw* rows = nullptr;
  int row_count = 0;
  bool all_greedy = false;  // no row has a temperature
  const TokenBias* biases = nullptr;
  const SeenRun* seen = nullptr;
  int seen_count = 0;
  const int32_t* tokens = nullptr;  // of all runs
  const uint32_t* masks = nullptr;
};

class DrawTable {
 public:
  explicit DrawTable(const StepDraws& draws);
  // The size of its table, without making it.
  static int64_t BytesOf(const StepDraws& draws);

  std::span<const std::byte> bytes() const { return bytes_; }
  // A view of a copy of the bytes at `base`, aligned to 8.
  DrawView View(const std::byte* base) const;

 private:
  int row_count_;
  bool all_greedy_;
  int seen_count_;
  size_t biases_ = 0, seen_ = 0, tokens_ = 0, masks_ = 0;  // where they begin
  std::vector<std::byte> bytes_;
};

}  // namespace baton::kernels::cuda
