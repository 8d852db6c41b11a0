// This machine's limits: the yardstick for the kernels' figures.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>

#include "engine/device/thread_pool.h"

namespace baton::lab::bench {

// Runs independent chains of float32 multiply-adds in registers on every thread of the pool. Returns the
// number of floating-point operations done: divide by the time.
int64_t RunMultiplyAdds(device::ThreadPool& pool, int64_t rounds);

// Memory for ReadAll, in huge pages where the system gives them, as packed weights are: filled with ones.
class ReadBuffer {
 public:
  explicit ReadBuffer(int64_t count);
  std::span<const float> data() const { return {memory_.get(), static_cast<size_t>(count_)}; }

 private:
  struct Free {
    void operator()(float* memory) const { std::free(memory); }
  };
  int64_t count_;
  std::unique_ptr<float[], Free> memory_;
};

// Reads all of `data`, split over the pool's threads. Returns the bytes read.
int64_t ReadAll(device::ThreadPool& pool, std::span<const float> data);

}  // namespace baton::lab::bench
