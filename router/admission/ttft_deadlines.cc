#include "router/admission/ttft_deadlines.h"

#include <algorithm>
#include <vector>

namespace baton::router::admission {
namespace {

// The margin is the second largest of the latest 19 ratios of actual to predicted: of n values that are drawn
// alike, the next one is below the k-th smallest with a chance of k / (n + 1), here nine in ten. Few, because
// placement corrects what it predicts within three outcomes: a margin that remembers longer is charged on top
// of predictions that are right by now, and turns away those who would have been in time.
constexpr size_t kRatios = 19;
constexpr double kShare = 0.9;
constexpr double kMinMargin = 1, kMaxMargin = 3;
// The error of a small prediction (the wire, a busy machine) says nothing about the large ones that refuse
// requests: a factor is learnt from those above this share of the default, or so many seconds without one.
constexpr double kMinShare = 0.25;
constexpr double kMinSeconds = 0.25;

}  // namespace

void TtftDeadlines::Observe(double predicted, double actual, bool trusted) {
  ++outcomes_;
  const bool bounded = default_ttft_ != absl::InfiniteDuration();
  if (!trusted || predicted < (bounded ? kMinShare * absl::ToDoubleSeconds(default_ttft_) : kMinSeconds)) {
    return;
  }
  ratios_.push_back(actual / predicted);
  if (ratios_.size() > kRatios) ratios_.pop_front();
  std::vector<double> sorted(ratios_.begin(), ratios_.end());
  std::sort(sorted.begin(), sorted.end());
  const auto rank = static_cast<size_t>(kShare * static_cast<double>(sorted.size() + 1));
  margin_ = rank == 0 ? kMinMargin : std::clamp(sorted[rank - 1], kMinMargin, kMaxMargin);
}

absl::Time TtftDeadlines::Due(absl::Time deadline, absl::Time arrival, absl::Duration by_itself) const {
  if (deadline != absl::InfiniteFuture()) return deadline;
  return arrival + std::max(default_ttft_, 2 * by_itself);
}

}  // namespace baton::router::admission
