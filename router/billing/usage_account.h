// UsageAccount: what one request has used so far, kept up to date with what its workers report, so that it is
// exact at any moment, however the request ends. Tokens count when they reach the router. A prompt counts
// once, however many choices it has, from the moment when a worker has accepted it; what is counted of it is
// what the choice had whose first token came first, which is the choice that the prompt is charged to. What
// workers report is clamped, so that the counts add up whatever they say. Not thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "router/billing/token_counts.h"

namespace baton::router::billing {

class UsageAccount {
 public:
  // A worker's report on a prompt. The rest of the prompt is plain.
  struct PromptReport {
    int64_t decode_cached = 0;
    int64_t prefill_cached = 0;
    int64_t written_5m = 0;
    int64_t written_1h = 0;
  };

  UsageAccount() = default;
  UsageAccount(int64_t prompt_tokens, int choices) : prompt_tokens_(prompt_tokens), choices_(choices) {}

  // A worker accepted the choice, and holds the KV of so many tokens of the prompt.
  void Accepted(int choice, int64_t decode_cached);
  // The worker that drew the choice's first token reports on the prompt. The report stays, also if another
  // worker finishes the choice.
  void Opened(int choice, const PromptReport& report);
  // `tokens` came; of all tokens of the choice so far, `thinking` are known to be thinking.
  void Received(int choice, int64_t tokens, int64_t thinking);
  // The worker of the choice's `attempt`, a number that grows, reports its drafts so far.
  void Drafted(int choice, int attempt, int64_t drafted, int64_t accepted);
  // The choice has ended well. `report`: of its last worker; it counts if no worker has reported before.
  void Finished(int choice, const PromptReport& report, int64_t thinking);

  // A worker has accepted the request.
  bool counted() const { return first_accepted_.has_value(); }
  // The choice that the prompt is charged to; none before a first token or the end of a choice.
  std::optional<int> charged_choice() const { return charged_; }
  // One choice's counts: the whole prompt as that choice had it, and its own answer.
  TokenCounts Choice(int choice) const;
  // The choice's charged counts: its answer, and the prompt if it is the charged choice.
  TokenCounts Charged(int choice) const;
  // The request's counts: its prompt once, and all answers. Zero unless counted().
  TokenCounts Total() const;

 private:
  struct ChoiceAccount {
    PromptReport prompt;
    bool reported = false;  // by the worker that drew its first token
    int64_t completion = 0;
    int64_t thinking = 0;
    // By workers before, and by the one of this attempt.
    int64_t drafted_before = 0, accepted_before = 0;
    int attempt = 0;
    int64_t drafted = 0, accepted = 0;
  };
  TokenCounts Split(const PromptReport& report) const;

  int64_t prompt_tokens_ = 0;
  std::vector<ChoiceAccount> choices_;
  std::optional<int> first_accepted_, charged_;
};

}  // namespace baton::router::billing
