// v1::ReusableSpan on the wire. Pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "baton/v1/generation.pb.h"
#include "protocol/reusable_span.h"

namespace baton::protocol {

using ReusableSpans = google::protobuf::RepeatedPtrField<v1::ReusableSpan>;

// INVALID_ARGUMENT, naming the field: what kv::CheckReusable refuses of a prompt of so many tokens.
absl::StatusOr<std::vector<kv::ReusableSpan>> ReusableFromProto(const ReusableSpans& spans,
                                                                int64_t prompt_tokens);
void ToProto(std::span<const kv::ReusableSpan> spans, ReusableSpans* told);

}  // namespace baton::protocol
