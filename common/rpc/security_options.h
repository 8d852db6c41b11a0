// SecurityOptions: the files behind rpc::Security, as flags name them. Plain data.
#pragma once

#include <string>

#include "absl/time/time.h"

namespace baton::rpc {

struct SecurityOptions {
  // PEM. What we show at our door and to peers; both or neither.
  std::string cert;
  std::string key;
  // PEM. Whose certificates we believe: peers', and of whoever enters a fleet door.
  std::string ca;
  // PEM. Whose clients' certificates we believe at a public door.
  std::string client_ca;
  // A name that every peer's certificate has. Empty: servers must have the name that was dialed, and clients
  // any.
  std::string peer_name;
  // One word that all parties of a fleet share.
  std::string fleet_key_file;
  // A client's API key.
  std::string api_key_file;
  // How often certificates are read again.
  absl::Duration reload_interval = absl::Seconds(5);
};

}  // namespace baton::rpc
