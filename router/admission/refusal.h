// Refusal: why a request is not admitted, for the client's message, for the metric label, and when it is
// worth another try. Plain data.
#pragma once

#include <string>
#include <string_view>

#include "absl/time/time.h"

namespace baton::router::admission {

enum class Reason {
  kRequestRate,
  kPromptRate,
  kOutputRate,
  kQuota,
  kTenantQueue,  // the tenant's own bounds of what may wait
  kTotalQueue,   // everybody's
  kDisplaced,    // waited beyond its tenant's share when the queue was full
  kDeadline,     // can't be met, by prediction
  kMaxWait,      // no worker had room for long
};
inline constexpr int kReasons = static_cast<int>(Reason::kMaxWait) + 1;

constexpr std::string_view ReasonName(Reason reason) {
  constexpr std::string_view kNames[kReasons] = {"request_rate", "prompt_rate",  "output_rate",
                                                 "quota",        "tenant_queue", "total_queue",
                                                 "displaced",    "deadline",     "max_wait"};
  return kNames[static_cast<int>(reason)];
}

// A request's first token: when it is due, and when it comes, as placement predicts it: from the placement
// on, with the margin that predictions need. Zero as long as nothing is predicted.
struct FirstToken {
  absl::Time due = absl::InfiniteFuture();
  absl::Duration ttft = absl::ZeroDuration();
  // The part on the worker that computes the prompt: behind other prompts, and between the steps of answers.
  absl::Duration queue = absl::ZeroDuration();
  std::string worker = {};  // who that is: "prefill worker p0"
};

struct Refusal {
  Reason reason;
  std::string message;
  // InfiniteDuration: it can never pass. Zero: the caller knows better.
  absl::Duration retry = absl::ZeroDuration();
  // The owner of a limit: "tenant" or "model".
  std::string whose = {};
};

}  // namespace baton::router::admission
