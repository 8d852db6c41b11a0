#include "router/tenancy/authenticator.h"

#include <fmt/format.h>

#include <string>

namespace baton::router {

absl::StatusOr<Caller> Authenticator::Authenticate(const Credentials& credentials) const {
  if (credentials.metadata_bytes > kMaxMetadataBytes) {
    return absl::ResourceExhaustedError(
        fmt::format("metadata of {} bytes, 32 for each field among them; at most {} are taken: send the key "
                    "and the trace context alone",
                    credentials.metadata_bytes, kMaxMetadataBytes));
  }
  Denied denied;
  Caller caller = tenants_.Identify(credentials, &denied);
  if (caller.tenant != nullptr) return caller;
  probe_.Denied(std::string(DenialName(denied.why)));
  return denied.status;
}

absl::Status Authenticator::CheckPriority(const Tenant& tenant, int priority) const {
  if (priority >= tenant.best_priority) return absl::OkStatus();
  probe_.Denied(std::string(DenialName(Denial::kPriority)));
  return absl::PermissionDeniedError(
      fmt::format("options.priority: {} is better than {}, the best that tenant \"{}\" may use", priority,
                  tenant.best_priority, tenant.name));
}

}  // namespace baton::router
