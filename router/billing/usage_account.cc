#include "router/billing/usage_account.h"

#include <algorithm>
#include <utility>

namespace baton::router::billing {

void UsageAccount::Accepted(int choice, int64_t decode_cached) {
  ChoiceAccount& account = choices_[choice];
  if (!account.reported) account.prompt = {.decode_cached = decode_cached};
  if (!first_accepted_.has_value()) first_accepted_ = choice;
}

void UsageAccount::Opened(int choice, const PromptReport& report) {
  ChoiceAccount& account = choices_[choice];
  if (account.reported) return;
  account.prompt = report;
  account.reported = true;
}

void UsageAccount::Received(int choice, int64_t tokens, int64_t thinking) {
  ChoiceAccount& account = choices_[choice];
  if (tokens > 0 && !charged_.has_value()) charged_ = choice;
  account.completion += tokens;
  account.thinking = std::max(account.thinking, thinking);
}

void UsageAccount::Drafted(int choice, int attempt, int64_t drafted, int64_t accepted) {
  ChoiceAccount& account = choices_[choice];
  if (account.attempt != attempt) {
    account.attempt = attempt;
    account.drafted_before += std::exchange(account.drafted, 0);
    account.accepted_before += std::exchange(account.accepted, 0);
  }
  account.drafted = std::max(account.drafted, drafted);
  account.accepted = std::min(account.drafted, std::max(account.accepted, accepted));
}

void UsageAccount::Finished(int choice, const PromptReport& report, int64_t thinking) {
  Opened(choice, report);
  choices_[choice].thinking = thinking;
  if (!charged_.has_value()) charged_ = choice;
}

TokenCounts UsageAccount::Split(const PromptReport& report) const {
  TokenCounts counts;
  int64_t left = prompt_tokens_;
  const auto take = [&left](int64_t tokens) {
    const int64_t taken = std::clamp<int64_t>(tokens, 0, left);
    left -= taken;
    return taken;
  };
  counts.decode_cached = take(report.decode_cached);
  counts.prefill_cached = take(report.prefill_cached);
  counts.written_1h = take(report.written_1h);
  counts.written_5m = take(report.written_5m);
  counts.plain = left;
  return counts;
}

TokenCounts UsageAccount::Choice(int choice) const {
  const ChoiceAccount& account = choices_[choice];
  TokenCounts counts = Split(account.prompt);
  counts.completion = account.completion;
  counts.thinking = std::clamp<int64_t>(account.thinking, 0, account.completion);
  counts.drafted = account.drafted_before + account.drafted;
  counts.accepted = account.accepted_before + account.accepted;
  return counts;
}

TokenCounts UsageAccount::Charged(int choice) const {
  const TokenCounts counts = Choice(choice);
  if (charged_ == choice) return counts;
  return {.completion = counts.completion,
          .thinking = counts.thinking,
          .drafted = counts.drafted,
          .accepted = counts.accepted};
}

TokenCounts UsageAccount::Total() const {
  if (!counted()) return {};
  TokenCounts total = Split(choices_[charged_.value_or(*first_accepted_)].prompt);
  for (int i = 0; i < static_cast<int>(choices_.size()); ++i) {
    const TokenCounts choice = Choice(i);
    total.completion += choice.completion;
    total.thinking += choice.thinking;
    total.drafted += choice.drafted;
    total.accepted += choice.accepted;
  }
  return total;
}

}  // namespace baton::router::billing
