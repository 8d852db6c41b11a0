#include "common/telemetry/tracer.h"

#include <cstring>
#include <utility>

#include "absl/time/clock.h"

namespace baton::telemetry {

RequestSpans::RequestSpans(const Sink& sink, const TraceContext& parent, const Clock& clock,
                           std::string_view name, Span::Kind kind, absl::Time start)
    : sink_(sink), clock_(clock), ahead_(absl::Now() - clock.Now()), context_(parent.Child()) {
  Span& whole = spans_.emplace_back();
  whole.trace_id = context_.trace_id;
  whole.id = context_.span_id;
  whole.parent = parent.span_id;
  whole.trace_state = context_.state;
  whole.name = name;
  whole.kind = kind;
  whole.start = Calendar(start);
}

RequestSpans::~RequestSpans() {
  if (whole().end == absl::Time()) End(clock_.Now());
  sink_(std::move(spans_));
}

Span& RequestSpans::Add(std::string_view name, absl::Time start, absl::Time end, const SpanId& parent) {
  Span& span = spans_.emplace_back();
  span.trace_id = context_.trace_id;
  span.id = NewSpanId();
  span.parent = parent;
  span.trace_state = context_.state;
  span.name = name;
  span.start = Calendar(start);
  span.end = Calendar(end);
  return span;
}

TraceContext Tracer::Continue(const TraceContext& incoming) const {
  if (incoming.valid()) return incoming;
  TraceContext made;
  made.trace_id = NewTraceId();
  uint64_t bits = 0;
  std::memcpy(&bits, made.trace_id.data() + sizeof(bits), sizeof(bits));
  made.sampled = sink_ != nullptr && static_cast<double>(bits >> 11) * 0x1.0p-53 < sample_;
  return made;
}

std::unique_ptr<RequestSpans> Tracer::Begin(const TraceContext& parent, const Clock& clock,
                                            std::string_view name, Span::Kind kind, absl::Time start) const {
  if (sink_ == nullptr || !parent.sampled) return nullptr;
  return std::make_unique<RequestSpans>(sink_, parent, clock, name, kind, start);
}

}  // namespace baton::telemetry
