#include "cli/serve/device_shares.h"

#include <fmt/format.h>

#include <numeric>
#include <set>
#include <string>

#include "common/base/status.h"

namespace baton::cli {
namespace {

absl::StatusOr<std::vector<std::vector<int>>> Deal(const std::string& role, const std::vector<int>& devices,
                                                   int tp, int workers) {
  if (std::ssize(devices) != int64_t{tp} * workers) {
    return absl::InvalidArgumentError(
        fmt::format("--{}-devices names {} GPU(s), and {} {} worker(s) with --tp {} take {}", role,
                    devices.size(), workers, role, tp, tp * workers));
  }
  std::set<int> seen;
  for (const int device : devices) {
    if (!seen.insert(device).second) {
      return absl::InvalidArgumentError(fmt::format("--{}-devices names GPU {} twice", role, device));
    }
  }
  std::vector<std::vector<int>> shares;
  for (auto at = devices.begin(); at != devices.end(); at += tp) shares.emplace_back(at, at + tp);
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
                                          const std::vector<int>& decode_devices, int tp, int prefill_workers,
                                          int decode_workers) {
  std::vector<int> prefill = prefill_devices, decode = decode_devices;
  if (prefill.empty() && decode.empty()) {
    prefill.resize(static_cast<size_t>(tp) * static_cast<size_t>(prefill_workers));
    decode.resize(static_cast<size_t>(tp) * static_cast<size_t>(decode_workers));
    std::iota(prefill.begin(), prefill.end(), 0);
    std::iota(decode.begin(), decode.end(), static_cast<int>(prefill.size()));
  }
  DeviceShares shares;
  BATON_ASSIGN_OR_RETURN(shares.prefill, Deal("prefill", prefill, tp, prefill_workers));
  BATON_ASSIGN_OR_RETURN(shares.decode, Deal("decode", decode, tp, decode_workers));
  return shares;
}

}  // namespace baton::cli
