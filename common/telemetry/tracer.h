// Tracer: what a process knows of tracing: where spans go, and which requests are recorded. RequestSpans: the
// spans of one request in this process, under a span of their own for the whole of it; they leave together
// when it is destroyed. Requests that are not recorded have no RequestSpans and cost no more than the ids
// that they hand on.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/telemetry/span.h"
#include "common/telemetry/trace_context.h"

namespace baton::telemetry {

// One thread at a time.
class RequestSpans {
 public:
  using Sink = std::function<void(std::vector<Span>)>;

  // The first span, which `parent` is the context of. Times are on `clock`, which outlives it, as `sink`
  // does.
  RequestSpans(const Sink& sink, const TraceContext& parent, const Clock& clock, std::string_view name,
               Span::Kind kind, absl::Time start);
  // The first span ends now unless it has ended.
  ~RequestSpans();
  RequestSpans(const RequestSpans&) = delete;

  // The context of calls that this request causes.
  const TraceContext& context() const { return context_; }
  // The first span.
  Span& whole() { return spans_.front(); }
  void End(absl::Time now) { whole().end = Calendar(now); }
  // A further span, of the first one or of another. Valid until the next call.
  Span& Add(std::string_view name, absl::Time start, absl::Time end) {
    return Add(name, start, end, context_.span_id);
  }
  Span& Add(std::string_view name, absl::Time start, absl::Time end, const SpanId& parent);

 private:
  // The calendar's time of a time on the clock. Both are read once, so that spans fit into each other.
  absl::Time Calendar(absl::Time time) const { return time + ahead_; }

  const Sink& sink_;
  const Clock& clock_;
  const absl::Duration ahead_;
  TraceContext context_;
  std::vector<Span> spans_;
};

// Any thread.
class Tracer {
 public:
  // `sink` takes spans from any thread and does not wait; none: nothing is recorded. `sample`: the share of
  // requests that are recorded of those that come without a trace, in [0, 1].
  explicit Tracer(RequestSpans::Sink sink = nullptr, double sample = 1)
      : sink_(std::move(sink)), sample_(sample) {}

  // The context for a request that came with `incoming`; without a trace it begins one.
  TraceContext Continue(const TraceContext& incoming) const;
  // Null if the request is not recorded. The tracer outlives it.
  std::unique_ptr<RequestSpans> Begin(const TraceContext& parent, const Clock& clock, std::string_view name,
                                      Span::Kind kind, absl::Time start) const;

 private:
  const RequestSpans::Sink sink_;
  const double sample_;
};

}  // namespace baton::telemetry
