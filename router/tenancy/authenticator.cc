#include "router/tenancy/authenticator.h"

#include <fmt/format.h>
#include <strings.h>

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

absl::StatusOr<std::shared_ptr<const Tenant>> Authenticator::Authenticate(
    const grpc::ServerContextBase& context) const {
  Denied denied;
  auto tenant = tenants_->Identify(
      {.key = KeyOf(context), .certificate_names = rpc::PeerCertificateNames(context)}, &denied);
  if (tenant != nullptr) return tenant;
  probe_->Denied(std::string(DenialName(denied.why)));
  return denied.status;
}

absl::Status Authenticator::CheckPriority(const Tenant& tenant, int priority) const {
  if (priority >= tenant.best_priority) return absl::OkStatus();
  probe_->Denied(std::string(DenialName(Denial::kPriority)));
  return absl::PermissionDeniedError(
      fmt::format("options.priority: {} is better than {}, the best that tenant \"{}\" may use", priority,
                  tenant.best_priority, tenant.name));
}

}  // namespace baton::router
