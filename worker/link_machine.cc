#include "worker/link_machine.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/strings/str_join.h"

namespace baton::worker {
namespace {

// capabilities(7): CAP_IPC_LOCK, which lifts the limit.
constexpr int kCapabilityToLock = 14;
// RLIM_INFINITY, as a number of bytes.
constexpr uint64_t kNoLimit = ~uint64_t{0};

std::string Bytes(uint64_t bytes) {
  return bytes >= 1 << 20 ? fmt::format("{} MiB", bytes >> 20) : fmt::format("{} KiB", bytes >> 10);
}

}  // namespace

std::optional<uint64_t> Lockable(std::string_view status, uint64_t limit) {
  if (limit == kNoLimit) return std::nullopt;
  constexpr std::string_view kLabel = "CapEff:";
  const size_t at = status.find(kLabel);
  if (at == std::string_view::npos) return limit;
  std::string_view rest = status.substr(at + kLabel.size());
  rest.remove_prefix(std::min(rest.find_first_not_of(" \t"), rest.size()));
  uint64_t capabilities = 0;
  std::from_chars(rest.data(), rest.data() + rest.size(), capabilities, 16);
  if ((capabilities >> kCapabilityToLock & 1) != 0) return std::nullopt;
  return limit;
}

LinkMachine LookAtMachine(const std::string& root) {
  LinkMachine machine;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(root + "/dev/infiniband", error)) {
    if (std::string name = entry.path().filename(); name.starts_with("uverbs")) {
      machine.rdma_devices.push_back(std::move(name));
    }
  }
  std::sort(machine.rdma_devices.begin(), machine.rdma_devices.end());
  std::stringstream status;
  status << std::ifstream("/proc/self/status").rdbuf();
  rlimit limit = {};
  if (getrlimit(RLIMIT_MEMLOCK, &limit) == 0) {
    machine.lockable = Lockable(status.str(), limit.rlim_cur == RLIM_INFINITY ? kNoLimit : limit.rlim_cur);
  }
  return machine;
}

absl::Status CheckLinkMachine(const LinkMachine& machine, bool rdma) {
  for (const std::string& memory : machine.memories) {
    // The driver's name of a slice: "NVIDIA A100-SXM4-40GB MIG 3g.20gb".
    if (memory.find(" MIG ") != std::string::npos) {
      return absl::FailedPreconditionError(
          fmt::format("--link nccl: {} is a slice of a GPU, and NCCL knows no way between slices: use --link "
                      "host, or whole GPUs",
                      memory));
    }
  }
  if (!rdma || machine.rdma_devices.empty() || machine.lockable.value_or(kNoLimit) >= kMinLockable) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(fmt::format(
      "--link nccl: there are RDMA devices ({}), and this process may lock {} of memory, where NCCL needs 1 "
      "GiB and "
      "more: it would use TCP instead and not say so. Raise the limit (ulimit -l; LimitMEMLOCK=infinity for "
      "the "
      "container runtime), run as root with IPC_LOCK, or set NCCL_IB_DISABLE=1 to do without RDMA",
      absl::StrJoin(machine.rdma_devices, ", "), Bytes(*machine.lockable)));
}

}  // namespace baton::worker
