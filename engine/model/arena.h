// Arena: scratch memory for the activations of one forward pass. It grows to the largest batch seen and is
// then reused, so that a steady load allocates nothing. Rows start on 64-byte borders; equal rounds get equal
// addresses once it has stopped growing. Owned by a decoder, engine thread only; a Matrix is valid until the
// next Reset.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/device/memory.h"
#include "engine/kernels/kernels.h"

namespace baton::model {

class Arena {
 public:
  explicit Arena(device::Memory& memory = device::HostMemory()) : memory_(&memory) {}

  // Takes everything back. What was taken in the last round is one run of memory in this one.
  void Reset();
  // Uninitialised.
  kernels::Matrix Take(int64_t rows, int64_t cols, tensor::DType dtype = tensor::DType::kF32);
  int64_t bytes() const;
  // How often it has taken or moved memory: while it stays, equal rounds get equal addresses.
  int64_t growths() const { return growths_; }

 private:
  struct Run {
    device::Memory::Buffer memory;
    int64_t bytes = 0;
  };
  Run Allocate(int64_t bytes);

  device::Memory* memory_;
  std::vector<Run> runs_;  // one, unless this round outgrew it
  int64_t used_ = 0;       // bytes of the last run
  int64_t taken_ = 0;      // bytes in this round, of all runs
  int64_t growths_ = 0;
};

}  // namespace baton::model
