// Arena: scratch memory for the activations of one forward pass. It grows to the largest batch seen and is
// then reused, so that a steady load allocates nothing. Rows start on 64-byte borders. Owned by a decoder,
// engine thread only; a Matrix is valid until the next Reset.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "common/kernels/kernels.h"

namespace baton::model {

class Arena {
 public:
  // Takes everything back. What was taken in the last round is one run of memory in this one.
  void Reset();
  // Uninitialised.
  kernels::Matrix Take(int64_t rows, int64_t cols);
  int64_t bytes() const;

 private:
  struct Free {
    void operator()(float* memory) const;
  };
  struct Run {
    std::unique_ptr<float[], Free> memory;
    int64_t values = 0;
  };
  static Run Allocate(int64_t values);

  std::vector<Run> runs_;  // one, unless this round outgrew it
  int64_t used_ = 0;       // of the last run
  int64_t taken_ = 0;      // in this round, of all runs
};

}  // namespace baton::model
