// Spans as OTLP's JSON (https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding): ids in
// hexadecimal, 64-bit integers as strings, enumerations as numbers. Pure; any thread.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/telemetry/span.h"

namespace baton::telemetry {

// The owner of the spans.
using Resource = std::vector<std::pair<std::string, std::string>>;

// An ExportTraceServiceRequest. Bytes that are no UTF-8 are replaced.
std::string TracesToJson(const Resource& resource, std::span<const Span> spans);

// How many spans a collector says that it has not taken: of an ExportTraceServiceResponse. 0 if it says
// nothing, or nothing that can be read: the status of the response counts.
int64_t RejectedSpans(std::string_view response);

}  // namespace baton::telemetry
