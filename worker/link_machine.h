// LinkMachine: what this machine lets the nccl link do, looked at before NCCL is opened. NCCL takes TCP
// without a word where it can't lock memory for RDMA; a worker says so instead and does not start. Start-up
// only.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"

namespace baton::worker {

struct LinkMachine {
  // RDMA devices that are there for this process ("uverbs0").
  std::vector<std::string> rdma_devices;
  // Bytes that it may lock. Nothing: any number.
  std::optional<uint64_t> lockable;
  // Name of each rank's memory (device::Memory::name).
  std::vector<std::string> memories;
};

// With less than this NCCL's first registrations fail.
inline constexpr uint64_t kMinLockable = uint64_t{1} << 30;

// `root` is put before /dev. The memories are left to the caller.
LinkMachine LookAtMachine(const std::string& root = "");
// Bytes that a process may lock, by its /proc/PID/status and its RLIMIT_MEMLOCK.
std::optional<uint64_t> Lockable(std::string_view status, uint64_t limit);
// FAILED_PRECONDITION says why the nccl link can't work here and what to do. `rdma`: NCCL may use RDMA
// devices.
absl::Status CheckLinkMachine(const LinkMachine& machine, bool rdma);

}  // namespace baton::worker
