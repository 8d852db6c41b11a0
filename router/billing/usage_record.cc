#include "router/billing/usage_record.h"

#include <cmath>

#include "nlohmann/json.hpp"
#include "router/billing/decimal.h"

namespace baton::router::billing {
namespace {

// Microseconds are enough, and more digits would only be noise.
double Rounded(double seconds) { return std::round(seconds * 1e6) / 1e6; }

}  // namespace

std::string AuditLine(const UsageRecord& record) {
  nlohmann::ordered_json line;
  line["time"] = absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", record.ended, absl::UTCTimeZone());
  line["request_id"] = record.request_id;
  if (!record.client_request_id.empty()) line["client_request_id"] = record.client_request_id;
  if (!record.trace_id.empty()) line["trace_id"] = record.trace_id;
  line["method"] = record.method;
  line["tenant"] = record.tenant;
  line["key"] = record.key;
  line["model"] = record.model;
  if (!record.build.empty()) line["build"] = record.build;
  line["code"] = absl::StatusCodeToString(record.code);
  line["finish_reasons"] = record.finish_reasons;
  if (record.counted) {
    line["prompt_tokens"] = record.tokens.prompt();
    line["cached_tokens"] = record.tokens.cached();
    line["written_5m_tokens"] = record.tokens.written_5m;
    line["written_1h_tokens"] = record.tokens.written_1h;
    line["plain_tokens"] = record.tokens.plain;
    line["completion_tokens"] = record.tokens.completion;
    line["thinking_tokens"] = record.tokens.thinking;
    if (!record.currency.empty()) {
      line["cost"] = FormatAmount(record.picos / kPicosPerUnit, record.picos % kPicosPerUnit);
      line["currency"] = record.currency;
    }
  }
  if (record.moderation.has_value()) {
    nlohmann::ordered_json& moderation = line["moderation"];
    moderation["flagged"] = record.moderation->flagged;
    if (record.moderation->flagged) {
      moderation["input"] = record.moderation->input;
      moderation["categories"] = record.moderation->categories;
    }
    if (record.moderation->unavailable) moderation["unavailable"] = true;
    moderation["tokens"] = record.moderation->tokens;
  }
  if (record.ttft.has_value()) line["ttft_seconds"] = Rounded(*record.ttft);
  line["e2e_seconds"] = Rounded(record.e2e);
  if (!record.decode_worker.empty()) line["decode_worker"] = record.decode_worker;
  if (!record.prefill_worker.empty()) line["prefill_worker"] = record.prefill_worker;
  if (record.migrations > 0) line["migrations"] = record.migrations;
  if (record.removed_context_tokens > 0) line["removed_context_tokens"] = record.removed_context_tokens;
  if (record.clamped_max_tokens > 0) line["clamped_max_tokens"] = record.clamped_max_tokens;
  // Bytes that are no UTF-8 (a certificate's name) are replaced and don't throw.
  return line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace baton::router::billing
