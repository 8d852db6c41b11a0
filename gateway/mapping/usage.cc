#include "gateway/mapping/usage.h"

#include <algorithm>

namespace baton::gateway {

v1::Usage UsageOf(const std::optional<v1::RequestUsage>& told, const protocol::AnswerFold::Choices& choices,
                  int first, int count) {
  if (told.has_value()) return told->usage();
  v1::Usage sum;
  for (int i = first; i - first < std::min(count, choices.size() - first); ++i) {
    if (!choices[i].has_finished()) continue;
    const v1::Usage& usage = choices[i].finished().usage();
    const uint32_t completion = sum.completion_tokens() + usage.completion_tokens();
    const uint32_t thinking = sum.thinking_tokens() + usage.thinking_tokens();
    const uint32_t drafted = sum.drafted_tokens() + usage.drafted_tokens();
    const uint32_t accepted = sum.accepted_tokens() + usage.accepted_tokens();
    if (sum.prompt_tokens() == 0) sum = usage;
    sum.set_drafted_tokens(drafted);
    sum.set_accepted_tokens(accepted);
    sum.set_completion_tokens(completion);
    sum.set_thinking_tokens(thinking);
  }
  return sum;
}

void AddUsage(const v1::Usage& one, v1::Usage* sum) {
  sum->set_prompt_tokens(sum->prompt_tokens() + one.prompt_tokens());
  sum->set_completion_tokens(sum->completion_tokens() + one.completion_tokens());
  sum->set_thinking_tokens(sum->thinking_tokens() + one.thinking_tokens());
  sum->set_drafted_tokens(sum->drafted_tokens() + one.drafted_tokens());
  sum->set_accepted_tokens(sum->accepted_tokens() + one.accepted_tokens());
  sum->set_cached_tokens(sum->cached_tokens() + one.cached_tokens());
  sum->set_approximate_reused_tokens(sum->approximate_reused_tokens() + one.approximate_reused_tokens());
  sum->set_written_five_minutes_tokens(sum->written_five_minutes_tokens() +
                                       one.written_five_minutes_tokens());
  sum->set_written_hour_tokens(sum->written_hour_tokens() + one.written_hour_tokens());
}

}  // namespace baton::gateway
