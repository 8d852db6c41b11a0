// Timing for benchmarks.
#pragma once

#include <algorithm>
#include <chrono>
#include <vector>

namespace baton::bench {

// How long `work` takes.
inline double Seconds(const auto& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// 0 of nothing; of an even number of values, the mean of the two in the middle.
inline double Median(std::vector<double> values) {
  std::ranges::sort(values);
  const size_t n = values.size();
  return n == 0 ? 0 : (values[(n - 1) / 2] + values[n / 2]) / 2;
}

}  // namespace baton::bench
