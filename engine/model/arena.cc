#include "engine/model/arena.h"

#include <algorithm>

#include "common/base/check.h"

namespace baton::model {
namespace {

constexpr int64_t kLineBytes = 64;

int64_t RoundUp(int64_t bytes) { return (bytes + kLineBytes - 1) / kLineBytes * kLineBytes; }

}  // namespace

Arena::Run Arena::Allocate(int64_t bytes) {
  absl::StatusOr<device::Memory::Buffer> memory = memory_->Allocate(bytes);
  // Like operator new: a step that can't have its scratch memory can't be half done.
  BATON_CHECK(memory.ok()) << " activations: " << memory.status().ToString();
  ++growths_;
  return {*std::move(memory), bytes};
}

void Arena::Reset() {
  if (runs_.size() > 1) {
    runs_.clear();
    runs_.push_back(Allocate(taken_));
  }
  used_ = 0;
  taken_ = 0;
}

kernels::Matrix Arena::Take(int64_t rows, int64_t cols, tensor::DType dtype) {
  const int64_t row_bytes = RoundUp(cols * tensor::SizeOf(dtype));
  const int64_t bytes = rows * row_bytes;
  if (runs_.empty() || used_ + bytes > runs_.back().bytes) {
    runs_.push_back(Allocate(std::max<int64_t>(bytes, kLineBytes)));
    used_ = 0;
  }
  std::byte* data = runs_.back().memory.get() + used_;
  used_ += bytes;
  taken_ += bytes;
  return {data, rows, cols, row_bytes / tensor::SizeOf(dtype), dtype};
}

int64_t Arena::bytes() const {
  int64_t bytes = 0;
  for (const Run& run : runs_) bytes += run.bytes;
  return bytes;
}

}  // namespace baton::model
