// ConnectionLedger: how many connections a server has, in all and by address, and whether another may come.
// Shared by the acceptor, which enters them, and the connections, which leave on gRPC's threads. Any thread.
#pragma once

#include <sys/socket.h>

#include <functional>
#include <string>
#include <unordered_map>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace baton::rpc {

struct ConnectionLimits {
  // Connections at a time, and from one address (IPv6: one /64 network), which never gets more than three
  // quarters.
  int total = 4096;
  int per_address = 1024;
};

// The key of one address: an IPv4 address, or an IPv6 network of 64 bits. Empty, and without a limit of its
// own: anything else.
std::string AddressKey(const sockaddr_storage& peer);

class ConnectionLedger {
 public:
  explicit ConnectionLedger(const ConnectionLimits& limits);

  // Null: entered. Otherwise the reason, with the flag that sets the limit.
  const char* Enter(const std::string& key);
  void Leave(const std::string& key);
  int total() const;

 private:
  const ConnectionLimits limits_;
  mutable absl::Mutex mutex_;
  std::unordered_map<std::string, int> by_address_ ABSL_GUARDED_BY(mutex_);
  int total_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace baton::rpc
