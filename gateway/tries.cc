#include "gateway/tries.h"

#include <chrono>
#include <iterator>
#include <utility>

#include "common/rpc/status.h"

namespace baton::gateway {
namespace {

// Before the tries of a call that broke off: together some three seconds, in which a router's process may
// come back.
constexpr absl::Duration kPauses[] = {absl::ZeroDuration(), absl::Milliseconds(200), absl::Milliseconds(400),
                                      absl::Milliseconds(800), absl::Milliseconds(1600)};

}  // namespace

Tries Tries::None() {
  Tries none;
  none.made_ = std::ssize(kPauses);
  return none;
}

std::optional<absl::Duration> Tries::Next() {
  if (made_ == std::ssize(kPauses)) return std::nullopt;
  return kPauses[made_++];
}

void Pause::Then(absl::Duration pause, std::function<void()> what) {
  alarm_ = std::make_unique<grpc::Alarm>();
  alarm_->Set(std::chrono::system_clock::now() + absl::ToChronoNanoseconds(pause),
              [what = std::move(what)](bool fired) {
                if (fired) what();
              });
}

bool AnotherMayAnswer(const absl::Status& status, bool heard) {
  if (rpc::HasReason(status, v1::REASON_ROUTER_DRAINING)) return true;
  // A router's own errors have a reason.
  if (!rpc::ReasonOf(status).empty()) return false;
  if (absl::IsUnavailable(status)) return true;
  // gRPC tells a reset of a stream by its code, and a server that ends by CANCELLED. A router that gives up a
  // client that does not read resets the stream, too, and must not be asked for the rest.
  return !heard && (absl::IsCancelled(status) || absl::IsInternal(status) || absl::IsUnknown(status));
}

}  // namespace baton::gateway
