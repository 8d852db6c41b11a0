// StoreAddress: where a server of the Redis protocol listens. Pure; any thread.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace baton::router::store {

struct StoreAddress {
  std::string host;
  int port = 6379;
  std::string socket;  // a path instead of host and port; empty: none
  std::string user;    // of the server's access list; empty: the default one
  int database = 0;

  // For logs and errors.
  std::string Text() const;
  bool operator==(const StoreAddress&) const = default;
};

// From redis://[USER@]HOST[:PORT][/DATABASE] or unix://PATH. INVALID_ARGUMENT says what is wrong with it; a
// password in it is refused and not shown.
absl::StatusOr<StoreAddress> ParseStoreAddress(std::string_view url);

}  // namespace baton::router::store
