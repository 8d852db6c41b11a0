#include "router/api/usage.h"

#include <cstdint>

namespace baton::router {

billing::UsageAccount::PromptReport PromptReportOf(const v1::Usage& usage) {
  return {.decode_cached = usage.decode_cached_tokens(),
          .prefill_cached = usage.prefill_cached_tokens(),
          .written_5m = usage.written_5m_tokens(),
          .written_1h = usage.written_1h_tokens()};
}

void SetUsage(const billing::TokenCounts& counts, v1::Usage* usage) {
  usage->set_prompt_tokens(static_cast<uint32_t>(counts.prompt()));
  usage->set_completion_tokens(static_cast<uint32_t>(counts.completion));
  usage->set_decode_cached_tokens(static_cast<uint32_t>(counts.decode_cached));
  usage->set_prefill_cached_tokens(static_cast<uint32_t>(counts.prefill_cached));
  usage->set_thinking_tokens(static_cast<uint32_t>(counts.thinking));
  usage->set_cached_tokens(static_cast<uint32_t>(counts.cached()));
  usage->set_written_5m_tokens(static_cast<uint32_t>(counts.written_5m));
  usage->set_written_1h_tokens(static_cast<uint32_t>(counts.written_1h));
  usage->set_plain_tokens(static_cast<uint32_t>(counts.plain));
}

void AddUsage(const v1::RequestUsage& usage, grpc::ServerContextBase* context) {
  context->AddTrailingMetadata(kUsageTrailer, usage.SerializeAsString());
}

}  // namespace baton::router
