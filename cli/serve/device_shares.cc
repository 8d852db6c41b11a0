#include "cli/serve/device_shares.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <set>
#include <string>

#include "common/base/status.h"

namespace baton::cli {
namespace {

int Sum(const std::vector<int>& numbers) { return std::accumulate(numbers.begin(), numbers.end(), 0); }

// "with --tp 2", where all workers have as many.
std::string RanksText(const std::vector<int>& ranks) {
  const bool equal = std::adjacent_find(ranks.begin(), ranks.end(), std::not_equal_to<>()) == ranks.end();
  return ranks.empty() || !equal ? "" : fmt::format(" with --tp {}", ranks.front());
}

absl::StatusOr<std::vector<std::vector<int>>> Deal(const std::string& role, const std::vector<int>& devices,
                                                   const std::vector<int>& ranks) {
  if (std::ssize(devices) != Sum(ranks)) {
    return absl::InvalidArgumentError(
        fmt::format("--{}-devices names {} GPU(s), and {} {} worker(s){} take {}", role, devices.size(),
                    ranks.size(), role, RanksText(ranks), Sum(ranks)));
  }
  std::set<int> seen;
  for (const int device : devices) {
    if (!seen.insert(device).second) {
      return absl::InvalidArgumentError(fmt::format("--{}-devices names GPU {} twice", role, device));
    }
  }
  std::vector<std::vector<int>> shares;
  auto at = devices.begin();
  for (const int count : ranks) {
    shares.emplace_back(at, at + count);
    at += count;
  }
  return shares;
}

}  // namespace

bool DeviceShares::shared() const {
  std::set<int> seen;
  for (const auto* shares : {&prefill, &decode}) {
    for (const std::vector<int>& share : *shares) {
      for (const int device : share) {
        if (!seen.insert(device).second) return true;
      }
    }
  }
  return false;
}

absl::StatusOr<DeviceShares> ShareDevices(const std::vector<int>& prefill_devices,
                                          const std::vector<int>& decode_devices,
                                          const std::vector<int>& prefill_ranks,
                                          const std::vector<int>& decode_ranks) {
  std::vector<int> prefill = prefill_devices, decode = decode_devices;
  if (prefill.empty() && decode.empty()) {
    prefill.resize(static_cast<size_t>(Sum(prefill_ranks)));
    decode.resize(static_cast<size_t>(Sum(decode_ranks)));
    std::iota(prefill.begin(), prefill.end(), 0);
    std::iota(decode.begin(), decode.end(), static_cast<int>(prefill.size()));
  }
  DeviceShares shares;
  BATON_ASSIGN_OR_RETURN(shares.prefill, Deal("prefill", prefill, prefill_ranks));
  BATON_ASSIGN_OR_RETURN(shares.decode, Deal("decode", decode, decode_ranks));
  return shares;
}

}  // namespace baton::cli
