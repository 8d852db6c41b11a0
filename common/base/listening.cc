#include "common/base/listening.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <limits>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace baton {
namespace {

uint16_t PortOf(int socket) {
  sockaddr_storage bound = {};
  socklen_t size = sizeof(bound);
  if (getsockname(socket, reinterpret_cast<sockaddr*>(&bound), &size) != 0) return 0;
  return ntohs(bound.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6*>(&bound)->sin6_port
                                           : reinterpret_cast<const sockaddr_in*>(&bound)->sin_port);
}

void SetPort(sockaddr* address, uint16_t port) {
  if (address->sa_family == AF_INET6) reinterpret_cast<sockaddr_in6*>(address)->sin6_port = htons(port);
  if (address->sa_family == AF_INET) reinterpret_cast<sockaddr_in*>(address)->sin_port = htons(port);
}

// A listening socket, or -1. Connections inherit its options.
int ListenOn(const sockaddr* address, socklen_t size, bool both_families, absl::Duration user_timeout) {
  const int listening = socket(address->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (listening < 0) return -1;
  if (address->sa_family != AF_UNIX) {
    const int yes = 1;
    const auto milliseconds = static_cast<unsigned>(absl::ToInt64Milliseconds(user_timeout));
    // Connections that an earlier process left behind do not count as a taken port.
    setsockopt(listening, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    setsockopt(listening, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
    setsockopt(listening, IPPROTO_TCP, TCP_USER_TIMEOUT, &milliseconds, sizeof(milliseconds));
  }
  if (address->sa_family == AF_INET6) {
    const int only_ipv6 = both_families ? 0 : 1;
    setsockopt(listening, IPPROTO_IPV6, IPV6_V6ONLY, &only_ipv6, sizeof(only_ipv6));
  }
  if (bind(listening, address, size) == 0 && listen(listening, SOMAXCONN) == 0) return listening;
  close(listening);
  return -1;
}

absl::Status CantListen(const std::string& address) {
  return absl::UnavailableError(
      absl::StrCat("can't listen on ", address, ": is the port taken or the host not this machine's?"));
}

absl::StatusOr<Listening> ListenUnix(const std::string& address) {
  const std::string path = address.substr(std::strlen("unix:"));
  sockaddr_un to = {};
  to.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof(to.sun_path)) {
    return absl::InvalidArgumentError(
        absl::StrCat("listen address \"", address, "\": a path of 1 to ", sizeof(to.sun_path) - 1, " bytes"));
  }
  std::memcpy(to.sun_path, path.data(), path.size());
  const int listening = ListenOn(reinterpret_cast<const sockaddr*>(&to), sizeof(to), false, {});
  if (listening < 0) return CantListen(address);
  return Listening{.sockets = {{listening, AF_UNIX}}, .address = address};
}

}  // namespace

absl::StatusOr<Listening> ListenTcp(const std::string& address, absl::Duration user_timeout) {
  const size_t colon = address.rfind(':');
  uint32_t number = 0;
  if (colon == std::string::npos || !absl::SimpleAtoi(address.substr(colon + 1), &number) ||
      number > std::numeric_limits<uint16_t>::max()) {
    return absl::InvalidArgumentError(
        absl::StrCat("listen address \"", address, "\": use host:port, with a port from 0 to 65535"));
  }
  const std::string host = address.substr(0, colon), port = absl::StrCat(number);
  const bool bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
  const std::string name = bracketed ? host.substr(1, host.size() - 2) : host;
  const bool wildcard = name == "0.0.0.0" || name == "::" || name.empty();
  // A wildcard: one IPv6 socket for both families, or IPv4 where the machine has no IPv6.
  const std::vector<std::string> names =
      wildcard ? std::vector<std::string>{"::", "0.0.0.0"} : std::vector<std::string>{name};
  Listening result;
  uint16_t shared_port = 0;
  for (const std::string& one_name : names) {
    if (wildcard && !result.sockets.empty()) break;
    addrinfo hints = {};
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
    addrinfo* found = nullptr;
    if (getaddrinfo(one_name.c_str(), port.c_str(), &hints, &found) != 0) continue;
    for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
      // The port that the system chose for the first address is used for all.
      if (shared_port != 0) SetPort(one->ai_addr, shared_port);
      const int listening = ListenOn(one->ai_addr, one->ai_addrlen, wildcard, user_timeout);
      if (listening < 0) continue;
      result.sockets.push_back({listening, one->ai_family});
      if (shared_port == 0) shared_port = PortOf(listening);
    }
    freeaddrinfo(found);
  }
  if (result.sockets.empty()) return CantListen(address);
  result.address = absl::StrCat(host, ":", shared_port);
  return result;
}

absl::StatusOr<Listening> Listen(const std::string& address, absl::Duration user_timeout) {
  return absl::StartsWith(address, "unix:") ? ListenUnix(address) : ListenTcp(address, user_timeout);
}

}  // namespace baton
