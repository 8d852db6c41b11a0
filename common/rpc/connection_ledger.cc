#include "common/rpc/connection_ledger.h"

#include <netinet/in.h>

#include <algorithm>

#include "common/base/check.h"

namespace baton::rpc {

std::string AddressKey(const sockaddr_storage& peer) {
  if (peer.ss_family == AF_INET) {
    const in_addr& address = reinterpret_cast<const sockaddr_in*>(&peer)->sin_addr;
    return {reinterpret_cast<const char*>(&address), sizeof(address)};
  }
  if (peer.ss_family != AF_INET6) return "";
  const in6_addr& address = reinterpret_cast<const sockaddr_in6*>(&peer)->sin6_addr;
  const auto* const bytes = reinterpret_cast<const char*>(&address);
  return IN6_IS_ADDR_V4MAPPED(&address) ? std::string(bytes + 12, 4) : std::string(bytes, 8);
}

ConnectionLedger::ConnectionLedger(const ConnectionLimits& limits)
    : limits_({.total = limits.total,
               .per_address = std::min(limits.per_address, std::max(1, limits.total / 4 * 3))}) {}

const char* ConnectionLedger::Enter(const std::string& key) {
  absl::MutexLock lock(&mutex_);
  if (total_ >= limits_.total) return "all connections are taken (--max-connections)";
  if (!key.empty()) {
    const auto of_address = by_address_.find(key);
    if (of_address != by_address_.end() && of_address->second >= limits_.per_address) {
      return "its address has as many connections as one may have (--max-connections-per-address)";
    }
    ++by_address_[key];
  }
  ++total_;
  return nullptr;
}

void ConnectionLedger::Leave(const std::string& key) {
  absl::MutexLock lock(&mutex_);
  --total_;
  if (key.empty()) return;
  const auto of_address = by_address_.find(key);
  BATON_CHECK(of_address != by_address_.end()) << "a connection left that had not entered";
  if (--of_address->second == 0) by_address_.erase(of_address);
}

int ConnectionLedger::total() const {
  absl::MutexLock lock(&mutex_);
  return total_;
}

}  // namespace baton::rpc
