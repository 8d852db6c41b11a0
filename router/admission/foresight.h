// Foresight: by when a request's first token is due, and how far a prediction of it is to be believed. A
// request without a deadline of its own is given one, so that under overload nobody is served too late to be
// of use. Learns from every outcome by how much predictions fall short. Plain, without a lock or a clock.
//
// Refuses nothing itself: whoever asks compares Cautious() with what is left until Due().
#pragma once

#include <cstdint>
#include <deque>

#include "absl/time/time.h"

namespace baton::router::admission {

class Foresight {
 public:
  // Outcomes before a prediction may refuse somebody: what placement needs to know any machine.
  static constexpr int64_t kOutcomesToTrust = 3;
  static constexpr int64_t kUntriedPerWorker = 16;

  // `default_ttft`: what a request without a deadline may take to its first token; infinite: any time.
  explicit Foresight(absl::Duration default_ttft) : default_ttft_(default_ttft) {}

  // A first token was predicted so many seconds after its placement, and came then. `trusted`: as trusted()
  // was at the placement. What was predicted before says nothing of what is predicted since.
  void Observe(double predicted, double actual, bool trusted);
  bool trusted() const { return outcomes_ >= kOutcomesToTrust; }
  // Whether another prompt may be sent off, with so many out that have had no first token. Before predictions
  // can be trusted that is what keeps a cold start under load from a backlog; whoever must wait, waits here.
  bool MayTry(int64_t unanswered, int64_t workers) const {
    return trusted() || default_ttft_ == absl::InfiniteDuration() || unanswered < kUntriedPerWorker * workers;
  }
  // The time within which nine in ten of the latest first tokens came that had this prediction.
  absl::Duration Cautious(double predicted) const { return absl::Seconds(predicted * margin_); }
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
