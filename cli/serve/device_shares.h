// DeviceShares: which GPUs each worker of `baton serve` computes on. Pure.
#pragma once

#include <vector>

#include "absl/status/statusor.h"

namespace baton::cli {

// By worker, the GPUs of its ranks.
struct DeviceShares {
  std::vector<std::vector<int>> prefill, decode;

  // Two workers compute on one GPU.
  bool shared() const;
};

// Deals the GPUs that are named for each role to its workers, in order: to each as many as it has ranks
// (--tp). Where neither role has any, the workers take GPUs from 0 on, the prefill workers first.
// INVALID_ARGUMENT: a role has not as many GPUs as its workers have ranks, one of them is named twice within
// a role, or only one role has any.
absl::StatusOr<DeviceShares> ShareDevices(const std::vector<int>& prefill_devices,
                                          const std::vector<int>& decode_devices,
                                          const std::vector<int>& prefill_ranks,
                                          const std::vector<int>& decode_ranks);

}  // namespace baton::cli
