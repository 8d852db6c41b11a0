// TraceContext: which trace a request belongs to and which span caused it, as W3C Trace Context carries them
// from process to process in the headers traceparent and tracestate (https://www.w3.org/TR/trace-context/).
// A header that breaks the rules counts as absent: the trace begins here. Plain data; any thread.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace baton::telemetry {

inline constexpr char kTraceparent[] = "traceparent";
inline constexpr char kTracestate[] = "tracestate";

using TraceId = std::array<uint8_t, 16>;
using SpanId = std::array<uint8_t, 8>;

// Random, and not all zero.
TraceId NewTraceId();
SpanId NewSpanId();

// Lower-case hexadecimal digits.
std::string Hex(std::span<const uint8_t> bytes);

struct TraceContext {
  TraceId trace_id = {};  // all zero: there is no trace
  SpanId span_id = {};    // of the caller's span
  // The caller records the trace, so that whoever takes part should do so too.
  bool sampled = false;
  // Other systems' notes, handed on as they came.
  std::string state;

  bool valid() const { return trace_id != TraceId{} && span_id != SpanId{}; }
  // The value of traceparent; empty if there is no trace.
  std::string Traceparent() const;
  // Digits of the trace's id; empty if there is no trace.
  std::string TraceIdText() const { return valid() ? Hex(trace_id) : std::string(); }
  // The same trace, seen from a new span.
  TraceContext Child() const;

  friend bool operator==(const TraceContext&, const TraceContext&) = default;
};

// Reads both headers, each by all of its values in the order in which they came. Nullopt: no traceparent,
// more than one, or one that breaks the rules; tracestate does not matter then. A tracestate that breaks the
// rules is dropped alone. Of a version above 00, what version 00 defines is read.
std::optional<TraceContext> ParseTraceContext(std::span<const std::string_view> traceparent,
                                              std::span<const std::string_view> tracestate);

}  // namespace baton::telemetry
