#include "protocol/forecast/transfer_forecast.h"

#include <algorithm>
#include <cmath>

namespace baton::forecast {
namespace {

// Until a transfer was seen, and for the proportion of the two until unlike sizes were: a call's few
// milliseconds, and a fast network.
constexpr double kPriorBase = 3e-3, kPriorSecondsPerByte = 1.0 / 20e9;
// Less counts as no time at all: compute has hidden the transfer, whose time is unknown.
constexpr double kLeastSeconds = 1e-3;
// Above what any link carries.
constexpr double kMostBytesPerSecond = 1e13;
// Size of the transfer by whose seconds rates are compared.
constexpr double kSmallBytes = 1 << 20;

bool Differs(double a, double b) { return std::abs(a - b) > TransferForecast::kNews * b; }

}  // namespace

TransferForecast::Rate TransferForecast::RateOf(const Peer& peer) {
  const LinearFit<3>::Features weights = peer.fit.weights();
  return {.peer = peer.name,
          .base = weights[0],
          .bytes_per_second = 1 / std::max(weights[1], 1 / kMostBytesPerSecond)};
}

void TransferForecast::Observe(const std::string& peer, int64_t bytes, double seconds) {
  if (bytes <= 0 || !std::isfinite(seconds)) return;
  auto found = std::lower_bound(peers_.begin(), peers_.end(), peer,
                                [](const Peer& known, const std::string& name) { return known.name < name; });
  if (found == peers_.end() || found->name != peer) {
    found =
        peers_.insert(found, Peer{.name = peer,
                                  .fit = LinearFit<3>({kPriorBase, kPriorSecondsPerByte, 0}, {1, 256e6, 1}),
                                  .last = 0,
                                  .told = std::nullopt});
  }
  found->last = ++transfers_;
  found->fit.Observe({1, static_cast<double>(bytes), 0}, std::max(seconds, kLeastSeconds));
  const Rate rate = RateOf(*found);
  const auto small = [](const Rate& of) { return of.base + kSmallBytes / of.bytes_per_second; };
  news_ |= !found->told.has_value() || Differs(rate.bytes_per_second, found->told->bytes_per_second) ||
           Differs(small(rate), small(*found->told));
  if (peers_.size() <= kMaxPeers) return;
  peers_.erase(std::min_element(peers_.begin(), peers_.end(),
                                [](const Peer& a, const Peer& b) { return a.last < b.last; }));
}

std::vector<TransferForecast::Rate> TransferForecast::rates() const {
  std::vector<Rate> all;
  all.reserve(peers_.size());
  for (const Peer& peer : peers_) all.push_back(RateOf(peer));
  return all;
}

std::optional<std::vector<TransferForecast::Rate>> TransferForecast::TakeNews() {
  if (!news_) return std::nullopt;
  news_ = false;
  for (Peer& peer : peers_) peer.told = RateOf(peer);
  return rates();
}

}  // namespace baton::forecast
