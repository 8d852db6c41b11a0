// Where a list of peers leads: a name, dns:///host:port, stands for each of its addresses. Asks DNS, and so
// may block: not on the engine's thread, nor on one of gRPC's.
#pragma once

#include <string>
#include <vector>

namespace baton::decode_service {

// host:port as it is; of a name, the addresses that it has now, each once, sorted. A name that can't be
// resolved stays as it is, for the call to say why.
std::vector<std::string> PeerAddresses(const std::string& peer);

}  // namespace baton::decode_service
