#include "router/api/usage.h"

#include <cstdint>
#include <optional>
#include <string>

#include "common/rpc/status.h"
#include "protocol/client/metadata.h"
#include "router/api/call_name.h"
#include "router/api/explained.h"
#include "router/billing/decimal.h"

namespace baton::router {

billing::UsageAccount::PromptReport PromptReportOf(const v1::Usage& usage) {
  return {.decode_cached = usage.decode_cached_tokens(),
          .prefill_cached = usage.prefill_cached_tokens(),
          .written_5m = usage.written_five_minutes_tokens(),
          .written_1h = usage.written_hour_tokens()};
}

void SetUsage(const billing::TokenCounts& counts, v1::Usage* usage) {
  usage->set_prompt_tokens(static_cast<uint32_t>(counts.prompt()));
  usage->set_completion_tokens(static_cast<uint32_t>(counts.completion));
  usage->set_decode_cached_tokens(static_cast<uint32_t>(counts.decode_cached));
  usage->set_prefill_cached_tokens(static_cast<uint32_t>(counts.prefill_cached));
  usage->set_thinking_tokens(static_cast<uint32_t>(counts.thinking));
  usage->set_cached_tokens(static_cast<uint32_t>(counts.cached()));
  usage->set_written_five_minutes_tokens(static_cast<uint32_t>(counts.written_5m));
  usage->set_written_hour_tokens(static_cast<uint32_t>(counts.written_1h));
  usage->set_drafted_tokens(static_cast<uint32_t>(counts.drafted));
  usage->set_accepted_tokens(static_cast<uint32_t>(counts.accepted));
  usage->set_plain_tokens(static_cast<uint32_t>(counts.plain));
}

v1::Cost CostMessage(const billing::Price& price, const billing::TokenCounts& counts) {
  v1::Cost cost;
  cost.set_currency(price.currency);
  cost.set_picos(billing::CostOf(price, counts));
  return cost;
}

v1::Prices PricesOf(const billing::Price& price) {
  v1::Prices prices;
  prices.set_currency(price.currency);
  prices.set_prompt(billing::FormatMillionths(price.prompt));
  prices.set_cached(billing::FormatMillionths(price.cached));
  prices.set_written_five_minutes(billing::FormatMillionths(price.written_5m));
  prices.set_written_hour(billing::FormatMillionths(price.written_1h));
  prices.set_completion(billing::FormatMillionths(price.completion));
  return prices;
}

void AddUsage(const v1::RequestUsage& usage, grpc::ServerContextBase* context) {
  context->AddTrailingMetadata(protocol::kUsageTrailer, usage.SerializeAsString());
}

grpc::Status EndOf(const absl::Status& status, grpc::ServerContextBase* context) {
  const std::optional<absl::Duration> delay = rpc::RetryDelay(status);
  if (delay.has_value() || absl::IsResourceExhausted(status)) {
    const int64_t milliseconds =
        delay.has_value() ? absl::ToInt64Milliseconds(absl::Ceil(*delay, absl::Milliseconds(1))) : -1;
    context->AddTrailingMetadata(protocol::kPushbackTrailer, std::to_string(milliseconds));
  }
  if (status.ok()) return grpc::Status::OK;
  if (const std::string id = rpc::RequestIdOf(status); !id.empty()) {
    context->AddTrailingMetadata(protocol::kRequestIdMetadata, id);
  }
  return rpc::ToGrpc(Explained(status));
}

}  // namespace baton::router
