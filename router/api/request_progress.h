// RequestProgress: what a client hears of a request before its first token (v1::Progress). It is told what
// the dispatcher and the decode workers say, of any choice, as all have one prompt; it decides what is worth
// a message, and predicts. Plain state without a clock; its owner's thread.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/time/time.h"
#include "baton/v1/generation.pb.h"
#include "router/placement/policy.h"

namespace baton::router {

class RequestProgress {
 public:
  // Between two messages, but for the last.
  static constexpr absl::Duration kTellEvery = absl::Milliseconds(250);

  explicit RequestProgress(int64_t prompt_tokens) : prompt_tokens_(prompt_tokens) {}

  // A choice was placed.
  void OnPlaced(const placement::Prediction& predicted, absl::Time now);
  // The message to send now, if any. `news` lacks prompt_tokens, and predicted_seconds unless the choice
  // waits in the router.
  std::optional<v1::Progress> OnNews(int choice, v1::Progress news, absl::Time now);
  // The last message, when the first token has come.
  v1::Progress Done();

 private:
  // Seconds until the first token.
  std::optional<double> Predict(const v1::Progress& news, absl::Time now) const;

  const int64_t prompt_tokens_;
  absl::Time due_ = absl::InfiniteFuture();  // of the first token, as predicted
  double prefill_ = 0;                       // seconds of computing in it; 0: not known
  int choice_ = -1;                          // that was told of last; -1: none
  v1::Progress told_;
  absl::Time told_at_ = absl::InfinitePast();
  // Since when it has been computed, and from which token on; nothing: it is not.
  struct Computing {
    absl::Time since;
    double from = 0;
  };
  std::optional<Computing> computing_;
};

}  // namespace baton::router
