// Links: when bytes arrive. Every worker has a port each way that carries its transfers one after the other,
// and another pair of ports for those to workers of its own domain (a node's NVLink beside its network); a
// transfer is over when both ends' ports have carried it. A port that waits for no transfer stands for one
// that shares its bandwidth fairly: the same bytes are through at the same time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace baton::lab::simulate {

class Links {
 public:
  // `domains`: of each worker; 0: it is near nobody.
  Links(std::vector<int> domains, double bandwidth, double near_bandwidth, double latency)
      : domains_(std::move(domains)),
        latency_(latency),
        far_(bandwidth, domains_.size()),
        near_(near_bandwidth, domains_.size()) {}

  // The time of the last byte of a transfer that is asked for at `now`.
  double Send(double now, size_t from, size_t to, int64_t bytes) {
    Ports& ports = domains_[from] != 0 && domains_[from] == domains_[to] ? near_ : far_;
    const double seconds = static_cast<double>(bytes) / ports.bandwidth;
    ports.out[from] = std::max(now, ports.out[from]) + seconds;
    ports.in[to] = std::max(now, ports.in[to]) + seconds;
    return std::max(ports.out[from], ports.in[to]) + latency_;
  }
  int domain(size_t worker) const { return domains_[worker]; }
  double latency() const { return latency_; }

 private:
  struct Ports {
    Ports(double per_second, size_t workers) : bandwidth(per_second), out(workers), in(workers) {}
    const double bandwidth;
    std::vector<double> out;  // busy until
    std::vector<double> in;
  };
  const std::vector<int> domains_;
  const double latency_;
  Ports far_, near_;
};

}  // namespace baton::lab::simulate
