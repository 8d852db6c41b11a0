#include "decode_service/peer_addresses.h"

#include <fmt/format.h>
#include <netdb.h>
#include <sys/socket.h>

#include <memory>
#include <set>
#include <string_view>

namespace baton::decode_service {
namespace {

constexpr std::string_view kDns = "dns:///";

}  // namespace

std::vector<std::string> PeerAddresses(const std::string& peer) {
  const size_t colon = peer.rfind(':');
  if (!peer.starts_with(kDns) || colon <= kDns.size()) return {peer};
  const std::string host = peer.substr(kDns.size(), colon - kDns.size()), port = peer.substr(colon + 1);
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* first = nullptr;
  if (getaddrinfo(host.c_str(), nullptr, &hints, &first) != 0) return {peer};
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> all(first, &freeaddrinfo);
  std::set<std::string> addresses;
  for (const addrinfo* one = first; one != nullptr; one = one->ai_next) {
    char text[NI_MAXHOST];
    if (getnameinfo(one->ai_addr, one->ai_addrlen, text, sizeof text, nullptr, 0, NI_NUMERICHOST) != 0) {
      continue;
    }
    addresses.insert(one->ai_family == AF_INET6 ? fmt::format("[{}]:{}", text, port)
                                                : fmt::format("{}:{}", text, port));
  }
  if (addresses.empty()) return {peer};
  return {addresses.begin(), addresses.end()};
}

}  // namespace baton::decode_service
