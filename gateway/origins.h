// Origins: which web pages may use the gateway. A browser lets any page send a simple request to any server,
// also to one on the user's own machine, and says only whose page it is (`Origin`; the Fetch standard). So a
// request from another site's page is refused unless it has a key of ours, which no simple request can have,
// or the operator has named its origin; pages that are named may read the answers too (CORS). A server on a
// loopback address takes pages under a local host's name alone: under any other, a foreign page may have been
// led here (DNS rebinding). Immutable; any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "gateway/http/exchange.h"

namespace baton::gateway {

class Origins {
 public:
  // `allowed`: "https://chat.example.com"; "null" and "file://", which pages without a site have; or "*" for
  // all. `listen`: the server's own address.
  Origins(std::vector<std::string> allowed, std::string_view listen);
  // INVALID_ARGUMENT: it is no origin.
  static absl::Status Check(std::string_view origin);

  // Empty: it may be answered.
  std::string WhyRefused(const http::Request& request) const;
  // It is a browser's question whether a page that is named may send a request.
  bool IsPreflight(const http::Request& request) const;
  http::Response Preflight(const http::Request& request) const;
  // These let a browser show the page the answer to this request.
  http::Headers HeadersFor(const http::Request& request) const;

 private:
  bool Allowed(std::string_view origin) const;

  const std::vector<std::string> allowed_;
  const bool local_;  // the server's address is a loopback one
};

}  // namespace baton::gateway
