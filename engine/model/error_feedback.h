// ErrorFeedback: rounds rows of weights to the lattice (lattice.h) so that columns make up for what those
// before them have lost, in products with activations like those of a text: GPTQ (Frantar et al., arXiv
// 2210.17323), in the form of LDLQ, which gives the same (Chee et al., arXiv 2307.13304).
//
//   H = X^T X + 0.01 mean(diagonal) I = (I + A) D (I + A)^T,  A strictly upper triangular
//   q[k] = round(w[k] + sum over j < k of (w[j] - q[j]) A[j][k])
//
// X are rows of activations. A row's loss (w - q) H (w - q)^T is the sum over k of D[k] times the square of
// what column k has lost beyond its feedback, so each column does the best that those before it leave.
// Immutable, any thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/device/thread_pool.h"
#include "engine/model/lattice.h"

namespace baton::model {

class ErrorFeedback {
 public:
  // Rows that Round takes at once.
  static constexpr int64_t kRows = 16;

  // moments: X^T X, [cols][cols], symmetric. INVALID_ARGUMENT: it is not finite, or no such product.
  static absl::StatusOr<ErrorFeedback> Create(std::vector<float> moments, int64_t cols,
                                              device::ThreadPool& pool);

  int64_t cols() const { return cols_; }
  // Rounds up to kRows rows of finite numbers [rows][cols], which it writes over. out: of each row; its scale
  // is returned in `scales`.
  void Round(std::span<float> rows, std::span<const LatticeRow> out, std::span<float> scales) const;

 private:
  ErrorFeedback(int64_t cols) : cols_(cols) {}
  // The panel of group g: A's rows [0, 16 g + 16), its 16 columns each.
  const float* panel(int64_t g) const {
    return feedback_.data() + kLatticeGroup * kLatticeGroup * g * (g + 1) / 2;
  }

  int64_t cols_;
  std::vector<float> feedback_;
};

}  // namespace baton::model
