// TtftDeadlines: by when a request's first token is due, and which margin a prediction of it needs. A request
// without a deadline of its own is given one, so that under overload no request is served too late to be of
// use. Learns from every outcome by how much predictions fall short. Plain state without a lock or a clock.
//
// It refuses nothing itself: the caller compares WithMargin() with the time that is left until Due().
#pragma once

#include <cstdint>
#include <deque>

#include "absl/time/time.h"

namespace baton::router::admission {

class TtftDeadlines {
 public:
  // Outcomes before a prediction may refuse a request: what placement needs to learn any machine.
  static constexpr int64_t kOutcomesToTrust = 3;
  static constexpr int64_t kUntriedPerWorker = 16;

  // `default_ttft`: what a request without a deadline may take to its first token; infinite: any time.
  explicit TtftDeadlines(absl::Duration default_ttft) : default_ttft_(default_ttft) {}

  // A first token that was predicted `predicted` seconds after its placement came after `actual` seconds.
  // `trusted` is what trusted() was at the placement: predictions from before that time say nothing about
  // later ones, so they do not count for the margin.
  void Observe(double predicted, double actual, bool trusted);
  bool trusted() const { return outcomes_ >= kOutcomesToTrust; }
  // True if another prompt may be dispatched while `unanswered` dispatched ones have no first token yet. As
  // long as predictions can't be trusted, this limit keeps a cold start under load from building a backlog on
  // the workers; the other requests wait in this router.
  bool MayDispatchUntried(int64_t unanswered, int64_t workers) const {
    return trusted() || default_ttft_ == absl::InfiniteDuration() || unanswered < kUntriedPerWorker * workers;
  }
  // `predicted` seconds times the margin: the time within which nine in ten of the latest first tokens with
  // this prediction came.
  absl::Duration WithMargin(double predicted) const { return absl::Seconds(predicted * margin_); }
  double margin() const { return margin_; }

  // The client's own deadline, if it has one. Otherwise `default_ttft` from the arrival, or twice what the
  // request takes by itself: a long prompt is refused for the queue that it finds, not for its length.
  absl::Time Due(absl::Time deadline, absl::Time arrival,
                 absl::Duration by_itself = absl::ZeroDuration()) const;
  absl::Duration default_ttft() const { return default_ttft_; }

 private:
  const absl::Duration default_ttft_;
  int64_t outcomes_ = 0;
  std::deque<double> ratios_;  // of actual to predicted, the latest last
  double margin_ = 1;
};

}  // namespace baton::router::admission
