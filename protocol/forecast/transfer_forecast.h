// TransferForecast: what bringing KV from each of a worker's peers takes, learnt from the transfers that
// ended: seconds = base + bytes / bytes_per_second, by peer. The seconds are those that nothing else
// explains: neither the peer's queue nor its computing. So they say what placement can gain by another pair.
// Plain data, one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "protocol/forecast/linear_fit.h"

namespace baton::forecast {

class TransferForecast {
 public:
  struct Rate {
    std::string peer;
    double base = 0;              // seconds
    double bytes_per_second = 0;  // positive
  };
  // Beyond so many, the peer with the oldest transfer is forgotten.
  static constexpr size_t kMaxPeers = 256;
  // A rate, or the seconds of a small transfer, that differ by this share from what was told are news.
  static constexpr double kNews = 0.2;

  // `bytes` came from `peer` in `seconds`. Transfers of nothing tell nothing.
  void Observe(const std::string& peer, int64_t bytes, double seconds);
  // Rates of all peers, by name.
  std::vector<Rate> rates() const;
  // The same, if a peer has come since this was last asked or one of the rates is news; otherwise nothing.
  std::optional<std::vector<Rate>> TakeNews();

 private:
  struct Peer {
    std::string name;
    LinearFit<3> fit;
    uint64_t last = 0;  // its place in the order of all transfers
    std::optional<Rate> told;
  };
  static Rate RateOf(const Peer& peer);

  std::vector<Peer> peers_;  // by name
  uint64_t transfers_ = 0;
  bool news_ = false;
};

}  // namespace baton::forecast
