#include "router/tenancy/authenticator.h"

#include <fmt/format.h>

#include <string>

namespace baton::router {

absl::StatusOr<std::shared_ptr<const Tenant>> Authenticator::Authenticate(
    const Credentials& credentials) const {
  Denied denied;
  auto tenant = tenants_.Identify(credentials, &denied);
  if (tenant != nullptr) return tenant;
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
