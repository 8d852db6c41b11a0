// SecurityOptions: the files behind rpc::Security, as flags name them. Plain data.
#pragma once

#include <string>

#include "absl/time/time.h"

namespace baton::rpc {

struct SecurityOptions {
  // PEM. What we show to clients and to peers; both or neither.
  std::string cert;
  std::string key;
  // PEM. Whose certificates we accept from peers and from callers of a fleet's server.
  std::string ca;
  // PEM. Whose certificates we accept from clients of a public server.
  std::string client_ca;
  // A name that every peer's certificate has. Empty: servers must have the name that was dialed, and clients
  // any.
  std::string peer_name;
  // A secret that all routers and workers of a fleet share.
  std::string fleet_key_file;
  // A client's API key.
  std::string api_key_file;
  // How often certificates are read again.
  absl::Duration reload_interval = absl::Seconds(5);
};

}  // namespace baton::rpc
