#include "common/base/service_address.h"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace baton {
namespace {

constexpr std::string_view kDns = "dns:///";

// One way to write an IPv6 address, so that the same one from two sources is seen to be the same.
std::string Canonical(std::string_view host) {
  in6_addr address;
  char text[INET6_ADDRSTRLEN];
  if (inet_pton(AF_INET6, std::string(host).c_str(), &address) == 1 &&
      inet_ntop(AF_INET6, &address, text, sizeof(text)) != nullptr) {
    return text;
  }
  return std::string(host);
}

}  // namespace

std::string JoinHostPort(std::string_view host, uint16_t port) {
  const bool plain = host.find(':') == std::string_view::npos;
  return plain ? fmt::format("{}:{}", host, port) : fmt::format("[{}]:{}", host, port);
}

std::string ServiceAddress::text() const {
  return (is_name ? std::string(kDns) : "") + JoinHostPort(host, port);
}

absl::StatusOr<ServiceAddress> ServiceAddress::Parse(std::string_view text) {
  const auto wrong = [text](std::string_view why) {
    return absl::InvalidArgumentError(
        fmt::format("\"{}\" {}: write HOST:PORT, [IPV6]:PORT or dns:///NAME:PORT", text, why));
  };
  ServiceAddress address;
  std::string_view rest = text;
  address.is_name = rest.starts_with(kDns);
  if (address.is_name) rest.remove_prefix(kDns.size());
  if (rest.find('/') != std::string_view::npos) return wrong("is no address");
  const size_t colon = rest.rfind(':');
  if (colon == std::string_view::npos) return wrong("has no port");
  const std::string_view port = rest.substr(colon + 1);
  const auto parsed = std::from_chars(port.data(), port.data() + port.size(), address.port);
  if (parsed.ec != std::errc() || parsed.ptr != port.data() + port.size() || address.port == 0) {
    return wrong("has no port from 1 to 65535");
  }
  std::string_view host = rest.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) {
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != std::string_view::npos) {
    return wrong("has an IPv6 address without brackets");
  }
  const auto stray = [](char c) { return static_cast<unsigned char>(c) <= ' ' || c == '[' || c == ']'; };
  if (host.empty() || std::any_of(host.begin(), host.end(), stray)) return wrong("has no host");
  address.host = Canonical(host);
  return address;
}

}  // namespace baton
