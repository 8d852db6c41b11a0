#include "router/api/grpc_credentials.h"

#include <grpc/support/time.h>
#include <strings.h>

#include <algorithm>
#include <string_view>

#include "common/rpc/peer.h"

namespace baton::router {
namespace {

constexpr std::string_view kBearer = "bearer ";
// Nobody waits so long: clients write "no deadline" as the largest number that they have.
constexpr int64_t kForEverSeconds = int64_t{365} * 24 * 3600;
// An end that leaves so long before the client's deadline, or a fiftieth of the time if that is less, comes
// in time to tell what the call used.
constexpr absl::Duration kToldBeforeEnd = absl::Milliseconds(20);

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
  // Not deadline(), which counts nanoseconds since 1970 and overflows in 2262.
  const gpr_timespec deadline = context.raw_deadline();
  const gpr_timespec left = gpr_time_sub(deadline, gpr_now(deadline.clock_type));
  if (left.tv_sec >= kForEverSeconds) return absl::InfiniteFuture();
  const absl::Duration all = absl::Seconds(left.tv_sec) + absl::Nanoseconds(left.tv_nsec);
  return clock.Now() + all - std::min(kToldBeforeEnd, all / 50);
}

}  // namespace baton::router
