// Links: when bytes arrive. Every worker has a port each way that carries its transfers one after the other;
// a transfer is over when both ends' ports have carried it. A port that waits for no transfer stands for one
// that shares its bandwidth fairly: the same bytes are through at the same time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace baton::cli::simulate {

class Links {
 public:
  Links(size_t workers, double bandwidth, double latency)
      : bandwidth_(bandwidth), latency_(latency), out_(workers), in_(workers) {}

  // The time of the last byte of a transfer that is asked for at `now`.
  double Send(double now, size_t from, size_t to, int64_t bytes) {
    const double seconds = static_cast<double>(bytes) / bandwidth_;
    out_[from] = std::max(now, out_[from]) + seconds;
    in_[to] = std::max(now, in_[to]) + seconds;
    return std::max(out_[from], in_[to]) + latency_;
  }
  double latency() const { return latency_; }

 private:
  const double bandwidth_;
  const double latency_;
  std::vector<double> out_;  // busy until
  std::vector<double> in_;
};

}  // namespace baton::cli::simulate
