// Worker places: which GPUs and which cores each worker of `baton serve` computes on. Pure.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cli/serve/plan.h"

namespace baton::cli {

// The part of the command line that is about GPUs.
struct NamedGpus {
  std::vector<int> prefill, decode;
  // How many workers a model has is not said, so that the GPUs say it where one model alone computes on them.
  bool count_prefill = false;
  bool count_decode = false;
};

// Gives each worker of `plan` that computes on GPUs its own (ServedModel::prefill_devices, decode_devices).
// INVALID_ARGUMENT says which flags contradict one another.
absl::Status PlaceOnGpus(const NamedGpus& named, ServePlan* plan);

// The workers of `plan` that share the machine's cores, prefill workers first (HomesOf): those that compute
// on CPUs, in one rank, and are not told a number of threads. INVALID_ARGUMENT: they are too many for one
// table (device::CoreTable).
absl::StatusOr<std::vector<ServedWorker>> SharersOfCores(const ServePlan& plan);

}  // namespace baton::cli
