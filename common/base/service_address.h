// ServiceAddress: where a service is, as lists and flags name it: an address, HOST:PORT, or a name,
// dns:///HOST:PORT, each of whose IP addresses is one of the service's processes. Pure; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace baton {

struct ServiceAddress {
  std::string host;  // without brackets
  uint16_t port = 0;
  bool is_name = false;  // of many

  // INVALID_ARGUMENT quotes what is wrong and says what is right.
  static absl::StatusOr<ServiceAddress> Parse(std::string_view text);
  // As it stands in a list.
  std::string text() const;
};

// IPv6 addresses in brackets.
std::string JoinHostPort(std::string_view host, uint16_t port);

}  // namespace baton
