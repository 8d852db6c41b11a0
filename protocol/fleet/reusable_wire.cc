#include "protocol/fleet/reusable_wire.h"

#include <fmt/format.h>

#include "common/base/status.h"

namespace baton::protocol {

absl::StatusOr<std::vector<kv::ReusableSpan>> ReusableFromProto(const ReusableSpans& spans,
                                                                int64_t prompt_tokens) {
  constexpr char kField[] = "reusable";
  if (spans.size() > kv::kMaxReusableSpans) {  // before they are copied
    return absl::InvalidArgumentError(
        fmt::format("{}: {} spans, at most {} are allowed", kField, spans.size(), kv::kMaxReusableSpans));
  }
  std::vector<kv::ReusableSpan> result;
  result.reserve(static_cast<size_t>(spans.size()));
  for (const v1::ReusableSpan& span : spans) result.push_back({span.begin(), span.end()});
  BATON_RETURN_IF_ERROR(kv::CheckReusable(result, prompt_tokens, kField));
  return result;
}

void ToProto(std::span<const kv::ReusableSpan> spans, ReusableSpans* told) {
  for (const kv::ReusableSpan& span : spans) {
    v1::ReusableSpan& one = *told->Add();
    one.set_begin(static_cast<uint32_t>(span.begin));
    one.set_end(static_cast<uint32_t>(span.end));
  }
}

}  // namespace baton::protocol
