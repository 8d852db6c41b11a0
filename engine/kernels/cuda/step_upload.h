// StepUpload: a step's table on its way to the device: built on the host, copied once, through page-locked
// memory and without waiting. The device memory keeps its address, so that graphs find it again, until a
// table outgrows it. Owner thread of the GPU's engine only.
#pragma once

#include <span>

#include "absl/status/status.h"
#include "engine/device/cuda/handles.h"
#include "engine/device/memory.h"
#include "engine/kernels/cuda/launch.h"
#include "engine/kernels/cuda/plan.h"

namespace baton::kernels::cuda {

class StepUpload {
 public:
  StepUpload(cudaStream_t stream, device::Memory& memory) : stream_(stream), memory_(memory) {}

  // Memory for a table of so many words; waits for the last table where it has to grow. True if the device
  // memory has moved.
  bool Reserve(int64_t words);
  // Copies the table in the order of the stream. True if the device memory has moved.
  bool Send(const StepTable& table);
  // The table that was sent last.
  const StepView& view() const { return view_; }

 private:
  const cudaStream_t stream_;
  device::Memory& memory_;
  device::Memory::Buffer device_;
  device::cuda::PinnedBytes host_;
  device::cuda::Event copied_;  // after which host_ may be written again
  int64_t capacity_ = 0;        // words
  StepView view_;
};

}  // namespace baton::kernels::cuda
