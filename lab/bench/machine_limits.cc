#include "lab/bench/machine_limits.h"

#include <sys/mman.h>

#include <atomic>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lab/bench/machine_limits.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace baton::lab::bench {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using F = hn::ScalableTag<float>;

// Enough chains for a latency of 5 cycles on 2 units, and for 16 registers.
constexpr int kChains = 12;

int64_t MultiplyAdds(int64_t rounds, float seed, float* sink) {
  const F f;
  hn::Vec<F> sum[kChains];
  for (int i = 0; i < kChains; ++i) sum[i] = hn::Set(f, seed * static_cast<float>(i));
  const auto a = hn::Set(f, seed * 0.5f), b = hn::Set(f, seed);
  for (int64_t r = 0; r < rounds; ++r) {
    for (int i = 0; i < kChains; ++i) sum[i] = hn::MulAdd(sum[i], a, b);
  }
  for (int i = 1; i < kChains; ++i) sum[0] = hn::Add(sum[0], sum[i]);
  *sink = hn::GetLane(sum[0]);
  return rounds * kChains * static_cast<int64_t>(hn::Lanes(f)) * 2;
}

void Read(const float* data, int64_t count, float* sink) {
  const F f;
  const auto lanes = static_cast<int64_t>(hn::Lanes(f));
  hn::Vec<F> sum[8];
  for (auto& s : sum) s = hn::Zero(f);
  for (int64_t i = 0; i + 8 * lanes <= count; i += 8 * lanes) {
    for (int v = 0; v < 8; ++v) sum[v] = hn::Add(sum[v], hn::LoadU(f, data + i + v * lanes));
  }
  for (int i = 1; i < 8; ++i) sum[0] = hn::Add(sum[0], sum[i]);
  *sink = hn::GetLane(sum[0]);
}

}  // namespace HWY_NAMESPACE
}  // namespace baton::lab::bench
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace baton::lab::bench {

HWY_EXPORT(MultiplyAdds);
HWY_EXPORT(Read);

namespace {
// Keeps the compiler from dropping results that are not read.
std::atomic<float> kept{1.0f};
}  // namespace

int64_t RunMultiplyAdds(device::ThreadPool& pool, int64_t rounds) {
  std::atomic<int64_t> total{0};
  pool.ParallelFor(pool.threads(), [&](int64_t) {
    float result;
    total += HWY_DYNAMIC_DISPATCH(MultiplyAdds)(rounds, 1.0f, &result);
    kept = result;
  });
  return total;
}

ReadBuffer::ReadBuffer(int64_t count) : count_(count) {
  constexpr size_t kHugePage = size_t{2} << 20;
  const size_t bytes = (static_cast<size_t>(count) * sizeof(float) + kHugePage - 1) / kHugePage * kHugePage;
  memory_.reset(static_cast<float*>(std::aligned_alloc(kHugePage, bytes)));
  madvise(memory_.get(), bytes, MADV_HUGEPAGE);
  for (int64_t i = 0; i < count; ++i) memory_[static_cast<size_t>(i)] = 1;
}

int64_t ReadAll(device::ThreadPool& pool, std::span<const float> data) {
  constexpr int64_t kPart = 1 << 18;
  const int64_t parts = static_cast<int64_t>(data.size()) / kPart;
  pool.ParallelFor(parts, [&](int64_t part) {
    float result;
    HWY_DYNAMIC_DISPATCH(Read)(data.data() + part * kPart, kPart, &result);
    kept = result;
  });
  return parts * kPart * static_cast<int64_t>(sizeof(float));
}

}  // namespace baton::lab::bench
#endif
