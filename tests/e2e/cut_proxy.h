// CutProxy: stands between clients and a server, byte for byte, and breaks connections when it is told to, so
// that what is on its way is lost. The server may move to another address. Its own threads.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace baton::e2e {

class CutProxy {
 public:
  // `target`: HOST:PORT in IPv4.
  explicit CutProxy(std::string target);
  ~CutProxy();

  // HOST:PORT.
  const std::string& address() const { return address_; }
  // For connections that are made from now on.
  void SetTarget(std::string target);
  // Resets the oldest connection that is open; false: there is none.
  bool Cut();

 private:
  struct Connection {
    int client = -1, server = -1;
    std::atomic<bool> cut{false};
    std::atomic<bool> over{false};
    std::thread pump;
  };
  void Accept();
  static void Pump(Connection& connection);

  int listener_ = -1;
  std::string address_;
  std::atomic<bool> stopping_{false};
  absl::Mutex mutex_;
  std::string target_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<Connection>> connections_ ABSL_GUARDED_BY(mutex_);
  std::thread accept_;
};

}  // namespace baton::e2e
