// TrafficWatch: reads a router's metrics page once a second, on a thread of its own, and describes the last
// seconds in one line. It ends within milliseconds of its destructor, whatever the router does.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <thread>

#include "absl/time/time.h"
#include "cli/serve/child.h"

namespace baton::cli {

// The body of http://ADDRESS/metrics; empty if it did not come within `patience`, or `stop_fd` became
// readable.
std::optional<std::string> FetchMetrics(const std::string& address, absl::Duration patience, int stop_fd);

class TrafficWatch {
 public:
  // `address`: host:port. `show` is called on the watch's thread; with "" while the router does not answer.
  TrafficWatch(std::string address, std::function<void(std::string)> show);
  ~TrafficWatch();
  TrafficWatch(const TrafficWatch&) = delete;
  TrafficWatch& operator=(const TrafficWatch&) = delete;

 private:
  void Run();

  const std::string address_;
  const std::function<void(std::string)> show_;
  const Descriptor stop_;
  std::thread thread_;
};

}  // namespace baton::cli
