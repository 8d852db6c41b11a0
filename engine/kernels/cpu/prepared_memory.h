// PreparedMemory: room for rows of x as a RowKernel or an IntegerKernel makes them (format.h). Their strides
// are whole lines of a cache, and so each row begins with one. Of one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace baton::kernels::cpu {

class PreparedMemory {
 public:
  // Room for `bytes` at least; what was there is lost.
  std::byte* Take(int64_t bytes) {
    const auto lines = static_cast<size_t>((bytes + kLineBytes - 1) / kLineBytes);
    if (lines > lines_.size()) lines_ = std::vector<Line>(lines);
    return data();
  }
  // Null before the first Take.
  std::byte* data() { return reinterpret_cast<std::byte*>(lines_.data()); }

 private:
  static constexpr int64_t kLineBytes = 64;
  struct alignas(kLineBytes) Line {
    std::byte bytes[kLineBytes];
  };
  std::vector<Line> lines_;
};

}  // namespace baton::kernels::cpu
