#include "cli/serve/worker_places.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>

#include "absl/strings/numbers.h"
#include "cli/serve/device_shares.h"
#include "common/base/status.h"
#include "engine/device/core_table.h"

namespace baton::cli {
namespace {

constexpr int kMostRanks = 64;  // as the workers have it

absl::StatusOr<int> RanksOf(const ServePlan& plan, const ServedWorker& worker) {
  int ranks = 1;
  const std::optional<std::string> text = FlagsOf(plan, worker).Value("--tp");
  if (!text.has_value() || (absl::SimpleAtoi(*text, &ranks) && ranks >= 1 && ranks <= kMostRanks))
    return ranks;
  return absl::InvalidArgumentError(
      fmt::format("{}: --tp={} is no number of ranks from 1 to {}", worker.name, *text, kMostRanks));
}

bool OnGpus(const ServePlan& plan, const ServedWorker& worker) {
  return FlagsOf(plan, worker).Value("--backend") == "cuda";
}

// Where the GPUs that are named say how many workers a model has.
absl::Status CountByGpus(const NamedGpus& named, ServePlan* plan) {
  std::optional<size_t> only;
  for (const ServedWorker& worker : WorkersOf(plan->models)) {
    if (!OnGpus(*plan, worker)) continue;
    if (only.has_value() && only != worker.model) return absl::OkStatus();
    only = worker.model;
  }
  if (!only.has_value()) return absl::OkStatus();
  ServedModel& model = plan->models[*only];
  if (model.counted) return absl::OkStatus();
  const auto workers = [&](bool decode, const std::vector<int>& gpus) -> absl::StatusOr<int> {
    BATON_ASSIGN_OR_RETURN(const int ranks,
                           RanksOf(*plan, {.model = *only, .decode = decode, .name = model.name}));
    return static_cast<int>(gpus.size()) / ranks;
  };
  if (named.count_prefill) {
    BATON_ASSIGN_OR_RETURN(model.prefill, workers(/*decode=*/false, named.prefill));
  }
  if (named.count_decode) {
    BATON_ASSIGN_OR_RETURN(model.decode, workers(/*decode=*/true, named.decode));
  }
  if (model.decode >= 1) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "--decode-devices names too few GPUs for a decode worker with its ranks (--tp)");
}

// Two workers on one GPU need to be told how much of its memory each takes, and can't use NCCL.
absl::Status CheckShared(const ServePlan& plan, const std::vector<ServedWorker>& workers,
                         const std::vector<std::vector<int>>& devices) {
  std::map<int, int> users;
  for (const std::vector<int>& own : devices) {
    for (const int device : own) ++users[device];
  }
  for (size_t i = 0; i < workers.size(); ++i) {
    const auto shared =
        std::find_if(devices[i].begin(), devices[i].end(), [&](int one) { return users[one] > 1; });
    if (shared == devices[i].end()) continue;
    const FlagList flags = FlagsOf(plan, workers[i]);
    if (!flags.Value("--kv-memory").has_value()) {
      return absl::InvalidArgumentError(fmt::format(
          "GPU {} is named for two workers, and {} would take what memory it has left: give --kv-memory",
          *shared, workers[i].name));
    }
    if (flags.Value("--link") == "nccl") {
      return absl::InvalidArgumentError(fmt::format(
          "GPU {} is named for two workers, and NCCL takes no two ranks on one GPU: use --link host",
          *shared));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status PlaceOnGpus(const NamedGpus& named, ServePlan* plan) {
  const bool any_named = !named.prefill.empty() || !named.decode.empty();
  if (any_named) BATON_RETURN_IF_ERROR(CountByGpus(named, plan));
  std::vector<ServedWorker> workers;
  std::vector<int> prefill_ranks, decode_ranks;
  for (const ServedWorker& worker : WorkersOf(plan->models)) {
    if (!OnGpus(*plan, worker)) continue;
    BATON_ASSIGN_OR_RETURN(const int ranks, RanksOf(*plan, worker));
    (worker.decode ? decode_ranks : prefill_ranks).push_back(ranks);
    workers.push_back(worker);
  }
  if (workers.empty()) {
    if (!any_named) return absl::OkStatus();
    return absl::InvalidArgumentError(
        "--prefill-devices and --decode-devices name GPUs, and no worker computes on one: use --backend "
        "cuda");
  }
  BATON_ASSIGN_OR_RETURN(DeviceShares shares,
                         ShareDevices(named.prefill, named.decode, prefill_ranks, decode_ranks));
  std::vector<std::vector<int>> devices = std::move(shares.prefill);
  devices.insert(devices.end(), shares.decode.begin(), shares.decode.end());
  BATON_RETURN_IF_ERROR(CheckShared(*plan, workers, devices));
  for (size_t i = 0; i < workers.size(); ++i) {
    ServedModel& model = plan->models[workers[i].model];
    (workers[i].decode ? model.decode_devices : model.prefill_devices).push_back(std::move(devices[i]));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<ServedWorker>> SharersOfCores(const ServePlan& plan) {
  std::vector<ServedWorker> sharers;
  for (const ServedWorker& worker : WorkersOf(plan.models)) {
    const FlagList flags = FlagsOf(plan, worker);
    BATON_ASSIGN_OR_RETURN(const int ranks, RanksOf(plan, worker));
    if (OnGpus(plan, worker) || flags.Value("--backend").value_or("cpu") != "cpu" || ranks > 1) continue;
    if (!flags.Value("--threads").has_value()) sharers.push_back(worker);
  }
  if (std::ssize(sharers) <= device::CoreTable::kMostMembers) return sharers;
  return absl::InvalidArgumentError(
      fmt::format("{} workers would share the cores of this machine, and at most {} can: give --threads",
                  sharers.size(), device::CoreTable::kMostMembers));
}

}  // namespace baton::cli
