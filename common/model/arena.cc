#include "common/model/arena.h"

#include <algorithm>
#include <new>

namespace baton::model {
namespace {

constexpr std::align_val_t kAlignment{64};
constexpr int64_t kValuesPerLine = 64 / sizeof(float);

int64_t RoundUp(int64_t values) { return (values + kValuesPerLine - 1) / kValuesPerLine * kValuesPerLine; }

}  // namespace

void Arena::Free::operator()(float* memory) const { ::operator delete[](memory, kAlignment); }

Arena::Run Arena::Allocate(int64_t values) {
  auto* memory =
      static_cast<float*>(::operator new[](static_cast<size_t>(values) * sizeof(float), kAlignment));
  return {std::unique_ptr<float[], Free>(memory), values};
}

void Arena::Reset() {
  if (runs_.size() > 1) {
    runs_.clear();
    runs_.push_back(Allocate(taken_));
  }
  used_ = 0;
  taken_ = 0;
}

kernels::Matrix Arena::Take(int64_t rows, int64_t cols) {
  const int64_t stride = RoundUp(cols);
  const int64_t values = rows * stride;
  if (runs_.empty() || used_ + values > runs_.back().values) {
    runs_.push_back(Allocate(std::max<int64_t>(values, kValuesPerLine)));
    used_ = 0;
  }
  float* data = runs_.back().memory.get() + used_;
  used_ += values;
  taken_ += values;
  return {data, rows, cols, stride};
}

int64_t Arena::bytes() const {
  int64_t values = 0;
  for (const Run& run : runs_) values += run.values;
  return values * static_cast<int64_t>(sizeof(float));
}

}  // namespace baton::model
