#include "router/api/grpc_credentials.h"

#include <strings.h>

#include <chrono>
#include <string_view>

#include "common/rpc/peer.h"

namespace baton::router {
namespace {

constexpr std::string_view kBearer = "bearer ";

std::string_view Metadata(const grpc::ServerContextBase& context, const char* name) {
  const auto found = context.client_metadata().find(name);
  return found == context.client_metadata().end()
             ? std::string_view()
             : std::string_view(found->second.data(), found->second.size());
}

std::string_view KeyOf(const grpc::ServerContextBase& context) {
  const std::string_view authorization = Metadata(context, "authorization");
  if (authorization.size() > kBearer.size() &&
      strncasecmp(authorization.data(), kBearer.data(), kBearer.size()) == 0) {
    return authorization.substr(kBearer.size());
  }
  return Metadata(context, "x-api-key");
}

}  // namespace

Credentials CredentialsOf(const grpc::ServerContextBase& context) {
  constexpr size_t kFieldBytes = 32;
  size_t bytes = 0;
  for (const auto& [name, value] : context.client_metadata())
    bytes += name.size() + value.size() + kFieldBytes;
  return {.key = KeyOf(context),
          .certificate_names = rpc::PeerCertificateNames(context),
          .metadata_bytes = bytes};
}

absl::Time DeadlineOf(const grpc::ServerContextBase& context, const Clock& clock) {
  const auto deadline = context.deadline();
  if (deadline == std::chrono::system_clock::time_point::max()) return absl::InfiniteFuture();
  return clock.Now() + absl::FromChrono(deadline - std::chrono::system_clock::now());
}

}  // namespace baton::router
