#include "router/tenancy/authenticator.h"

#include <fmt/format.h>

#include <string>

#include "common/rpc/status.h"

namespace baton::router {
namespace {

v1::Reason ReasonFor(Denial why) {
  switch (why) {
    case Denial::kNoKey:
      return v1::REASON_KEY_MISSING;
    case Denial::kUnknownKey:
      return v1::REASON_KEY_UNKNOWN;
    case Denial::kExpiredKey:
      return v1::REASON_KEY_EXPIRED;
    case Denial::kUnknownCertificate:
      return v1::REASON_CERTIFICATE_UNKNOWN;
    case Denial::kDisabled:
      return v1::REASON_TENANT_DISABLED;
    case Denial::kPriority:
      return v1::REASON_NOT_ALLOWED;
  }
  return v1::REASON_NOT_ALLOWED;
}

}  // namespace

absl::StatusOr<Caller> Authenticator::Authenticate(const Credentials& credentials) const {
  if (credentials.metadata_bytes > kMaxMetadataBytes) {
    return rpc::WithReason(
        absl::ResourceExhaustedError(fmt::format(
            "metadata of {} bytes, 32 for each field among them; at most {} are taken: send the key "
            "and the trace context alone",
            credentials.metadata_bytes, kMaxMetadataBytes)),
        v1::REASON_METADATA_TOO_LARGE);
  }
  Denied denied;
  Caller caller = tenants_.Identify(credentials, &denied);
  if (caller.tenant != nullptr) return caller;
  probe_.Denied(std::string(DenialName(denied.why)));
  return rpc::WithReason(denied.status, ReasonFor(denied.why));
}

absl::Status Authenticator::CheckPriority(const Tenant& tenant, int priority) const {
  if (priority >= tenant.best_priority) return absl::OkStatus();
  probe_.Denied(std::string(DenialName(Denial::kPriority)));
  return absl::PermissionDeniedError(
      fmt::format("options.priority: {} is better than {}, the best that tenant \"{}\" may use", priority,
                  tenant.best_priority, tenant.name));
}

}  // namespace baton::router
