// RequestTrace: a request's part in a trace on the router: the context that its calls to workers carry, and,
// if it is recorded, its spans: router.request with router.admit, router.place and first_token below it
// (docs/tracing.md). It is told what happens as it happens. Owned by a RequestFlow; one thread at a time.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/telemetry/tracer.h"
#include "router/api/prepared.h"
#include "router/billing/usage_account.h"

namespace baton::router {

class RequestTrace {
 public:
  // `incoming`: what the client says of its trace, if anything. `method`: the one that was called. Without a
  // tracer, what the client says is handed on. Tracer and clock outlive it.
  RequestTrace(const telemetry::Tracer* tracer, const telemetry::TraceContext& incoming, const Clock& clock,
               absl::Time arrival, const std::string& request_id, const std::string& client_request_id,
               std::string_view method);

  // The context that calls to workers carry; not valid without a trace.
  const telemetry::TraceContext& context() const { return context_; }

  // The request waits for its placement.
  void Submitted(const Prepared& prepared);
  void Requeued(int choice);
  // `begun`: the client has had tokens of the choice.
  void Placed(int choice, int attempt, const std::string& worker, bool begun);
  // Once: a worker accepted the request, and this build answers it.
  void Accepted(const std::string& build);
  // The phases of a choice that ended well: it was dialled, and the first token came, which took
  // `first_token` seconds after all phases before it.
  void Finished(int choice, absl::Time dialed, absl::Time first, double first_token);
  // Once, last. `reasons`: of the choices that ended well.
  void Ended(const absl::Status& status, const billing::UsageAccount& account,
             const std::vector<v1::FinishReason>& reasons);

 private:
  struct Choice {
    telemetry::SpanId admit;
    absl::Time waits_since;
    absl::Time placed;  // last; before its first token
    bool finished = false;
  };
  void AddAdmit(int choice, absl::Time end);

  const Clock& clock_;
  const absl::Time arrival_;
  std::unique_ptr<telemetry::RequestSpans> spans_;  // null: it is not recorded
  telemetry::TraceContext context_;
  std::vector<Choice> choices_;
};

}  // namespace baton::router
