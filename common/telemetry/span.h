// Span: one piece of work of one request, with its beginning and its end, as OpenTelemetry describes it. It
// holds numbers and names, never content. Plain data.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/time/time.h"
#include "common/telemetry/trace_context.h"

namespace baton::telemetry {

struct Span {
  // The numbers of OTLP.
  enum class Kind { kInternal = 1, kServer = 2 };
  using Value = std::variant<std::string, int64_t, double, bool, std::vector<std::string>>;

  TraceId trace_id = {};
  SpanId id = {};
  SpanId parent = {};  // all zero: it begins its trace
  std::string trace_state;
  std::string name;
  Kind kind = Kind::kInternal;
  // By the calendar.
  absl::Time start, end;
  std::vector<std::pair<std::string, Value>> attributes;
  // Something failed, for which it stands; empty: nothing did.
  std::string error;
};

}  // namespace baton::telemetry
