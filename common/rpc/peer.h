// The other side of a call, as its client certificate names it. Any thread.
#pragma once

#include <grpcpp/server_context.h>

#include <string>
#include <vector>

namespace baton::rpc {

// The subject alternative names and the common name of a certificate that the handshake verified; nothing
// without one.
std::vector<std::string> PeerCertificateNames(const grpc::ServerContextBase& context);

}  // namespace baton::rpc
