#include "decode_service/drafting/controller.h"

#include <algorithm>
#include <queue>
#include <utility>

namespace baton::decode_service::drafting {
namespace {

// Least share of a step that a row takes, whatever has been learnt: none is free.
constexpr double kLeastRow = 0.005;
// Least gain that drafts must promise before any is made: learnt costs are never exact.
constexpr double kLeastGain = 1.01;
// Tokens of each sequence that are looked at behind the last one that was worth drafting: as many as the rows
// of a tile of the kernels, so that a step up is looked over.
constexpr int kLookahead = 4;

// A step with drafted rows, as it is put together.
class Trial {
 public:
  // offers: of so many of its sequences, drafts are looked at.
  Trial(const forecast::StepLoad& load, const forecast::StepForecast& forecast, size_t offers)
      : forecast_(&forecast),
        plain_(forecast.Seconds(load)),
        load_(load),
        tokens_(load.running),
        of_(offers, 1.0) {}

  // The row of an offer behind `context` tokens, which is right with this chance.
  void Add(size_t offer, double survival, int64_t context) {
    load_.AddDrafted(context, 1);
    tokens_ += survival;
    of_[offer] += survival;
  }
  void Spend(double seconds) { drafting_ += seconds; }
  double Seconds() const {
    return drafting_ +
           std::max(forecast_->Seconds(load_), plain_ * (1 + kLeastRow * static_cast<double>(load_.drafted)));
  }
  double Rate() const { return tokens_ / Seconds(); }
  double tokens() const { return tokens_; }
  bool Within(const Bounds& bounds) const {
    const double seconds = bounds.spent + Seconds();
    if (seconds <= bounds.seconds) return true;
    if (!bounds.by_token || std::ssize(of_) < load_.running) return false;
    return seconds <= std::max(bounds.seconds, plain_) * *std::ranges::min_element(of_);
  }

 private:
  const forecast::StepForecast* forecast_;
  double plain_;
  forecast::StepLoad load_;
  double tokens_;
  std::vector<double> of_;  // of each offer
  double drafting_ = 0;
};

// The seconds of a draft step.
double DraftSeconds(const forecast::StepForecast& drafts, int64_t rows, int64_t context, int64_t behind) {
  forecast::StepLoad load = {.running = rows, .context = context};
  if (behind > 0) load.AddRows(context / std::max<int64_t>(1, rows), behind);
  return drafts.Seconds(load);
}

}  // namespace

std::vector<int64_t> GrantRows(std::span<const Offer> offers, const forecast::StepLoad& load,
                               const forecast::StepForecast& forecast, const Bounds& bounds) {
  std::vector<int64_t> granted(offers.size());
  Trial trial(load, forecast, offers.size());
  double best = kLeastGain * trial.Rate();
  // The likeliest token first; of equal ones the older sequence's.
  using Next = std::pair<double, int64_t>;
  std::priority_queue<Next> nexts;
  std::vector<int64_t> tried(offers.size());
  const auto push = [&](int64_t offer) {
    const auto& survival = offers[static_cast<size_t>(offer)].survival;
    const auto next = static_cast<size_t>(tried[static_cast<size_t>(offer)]);
    // Less than the least row costs is never worth one.
    if (next < survival.size() && survival[next] > kLeastRow) nexts.emplace(survival[next], -offer);
  };
  for (int64_t offer = 0; offer < std::ssize(offers); ++offer) push(offer);
  std::vector<size_t> order;  // whose rows are tried
  size_t kept = 0;            // of them, those that the best step so far has
  for (int64_t left = bounds.rows; !nexts.empty() && left > 0; --left) {
    const auto [survival, negative] = nexts.top();
    nexts.pop();
    const auto offer = static_cast<size_t>(-negative);
    trial.Add(offer, survival, offers[offer].context + tried[offer]++);
    order.push_back(offer);
    push(-negative);
    if (const double rate = trial.Rate(); rate > best && trial.Within(bounds)) {
      best = rate;
      kept = order.size();
    }
  }
  for (size_t i = 0; i < kept; ++i) ++granted[order[i]];
  return granted;
}

std::vector<int64_t> GrantDrafts(std::span<const ModelOffer> offers, const forecast::StepLoad& load,
                                 const forecast::StepForecast& forecast, const forecast::StepForecast& drafts,
                                 const Bounds& bounds) {
  std::vector<int64_t> granted(offers.size()), tried(offers.size());
  Trial trial(load, forecast, offers.size());
  int64_t most = bounds.rows;
  double best = kLeastGain * trial.Rate();
  int worse = 0;  // levels in a row that were tried in vain
  for (int64_t level = 0; most > 0 && worse < kLookahead; ++level) {
    std::vector<size_t> here;
    for (size_t i = 0; i < offers.size(); ++i) {
      if (tried[i] == level && level < std::ssize(offers[i].survival)) here.push_back(i);
    }
    if (here.empty()) break;
    const auto at = static_cast<size_t>(level);
    std::ranges::stable_sort(
        here, [&](size_t a, size_t b) { return offers[a].survival[at] > offers[b].survival[at]; });
    // The first sequence is tried in any case, the others as long as they make this level better: what is
    // worth nothing by itself may be in front of what is.
    Trial next = trial;
    double spent = 0, level_best = 0, level_spent = 0;
    int64_t rows = 0, context = 0, behind = 0;
    size_t count = 0, within = 0;  // of `here`: what is best of the level, and of what keeps to the bounds
    for (size_t i = 0; i < here.size() && static_cast<int64_t>(i) < most; ++i) {
      const ModelOffer& offer = offers[here[i]];
      next.Add(here[i], offer.survival[at], offer.context + level);
      if (level >= offer.have) {
        ++rows;
        context += offer.context + level;
        if (level == offer.have) behind += offer.behind;
        const double seconds = DraftSeconds(drafts, rows, context, behind);
        next.Spend(seconds - std::exchange(spent, seconds));
      }
      const double rate = next.Rate();
      if (rate > best && next.Within(bounds)) {
        best = rate;
        within = i + 1;
      }
      if (rate > level_best) {
        level_best = rate;
        level_spent = spent;
        count = i + 1;
      }
    }
    ++worse;
    if (within > 0) {
      granted = tried;
      for (size_t i = 0; i < within; ++i) ++granted[here[i]];
      worse = 0;
    }
    for (size_t i = 0; i < count; ++i) {
      trial.Add(here[i], offers[here[i]].survival[at], offers[here[i]].context + level);
      ++tried[here[i]];
    }
    trial.Spend(level_spent);
    most -= static_cast<int64_t>(count);
  }
  return granted;
}

ModelGain GainOf(const ModelOffer& offer, const forecast::StepLoad& load,
                 const forecast::StepForecast& forecast, const forecast::StepForecast& drafts,
                 Bounds bounds) {
  forecast::StepLoad with = load;
  if (with.running == 0) with = {.running = 1, .context = offer.context};
  Trial trial(with, forecast, 1);
  const double seconds = 1 / trial.Rate();
  bounds.rows = std::min(bounds.rows, std::ssize(offer.survival));
  const int64_t granted = GrantDrafts({&offer, 1}, with, forecast, drafts, bounds).front();
  if (granted == 0) return {.seconds = seconds};
  double kept = 1;  // tokens of this sequence
  for (int64_t level = 0; level < granted; ++level) {
    trial.Add(0, offer.survival[static_cast<size_t>(level)], offer.context + level);
    kept += offer.survival[static_cast<size_t>(level)];
    if (level >= offer.have) trial.Spend(DraftSeconds(drafts, 1, offer.context + level, 0));
  }
  // In the seconds of such a step, the worker would have given fewer.
  return {.tokens = std::max(0.0, trial.tokens() - trial.Seconds() / seconds) / kept, .seconds = seconds};
}

}  // namespace baton::decode_service::drafting
