#include "router/dispatch/refusal_status.h"

#include <string>
#include <utility>

#include "common/rpc/status.h"

namespace baton::router {

absl::Status StatusOf(const admission::Refusal& refusal) {
  using admission::Reason;
  absl::Status status;
  if (refusal.retry == absl::InfiniteDuration()) {
    status = absl::FailedPreconditionError(refusal.message);
  } else {
    status = rpc::WithRetryDelay(absl::ResourceExhaustedError(refusal.message), refusal.retry);
  }
  const std::string name(admission::ReasonName(refusal.reason));
  switch (refusal.reason) {
    case Reason::kRequestRate:
    case Reason::kPromptRate:
    case Reason::kOutputRate:
    case Reason::kQuota:
      status = rpc::WithQuota(std::move(status), refusal.whose, refusal.message);
      return rpc::WithReason(std::move(status), v1::REASON_LIMIT_EXCEEDED, {{"limit", name}});
    case Reason::kTenantQueue:
      return rpc::WithReason(std::move(status), v1::REASON_QUEUE_FULL);
    case Reason::kTotalQueue:
    case Reason::kDisplaced:
    case Reason::kMaxWait:
      return rpc::WithReason(std::move(status), v1::REASON_OVERLOADED, {{"cause", name}});
    case Reason::kDeadline:
      return rpc::WithReason(std::move(status), v1::REASON_DEADLINE_UNREACHABLE);
  }
  return status;
}

}  // namespace baton::router
