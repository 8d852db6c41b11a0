// An interpreter of operations on DiskStore over a disk in memory: blocks are written and read, the process
// restarts, dies in the middle of writes, under another model, key or cap, and the disk fails, fills and is
// damaged. Whatever is read has to be what was written. The seeded unit test and the libFuzzer target both
// drive it.
#pragma once

#include <cstdint>
#include <span>

#include "absl/status/statusor.h"

namespace baton::kv::tier {

// Returns how many operations were done; an error says what was wrong, and after which of them.
absl::StatusOr<int64_t> RunDiskStoreOperations(std::span<const uint8_t> bytes);

}  // namespace baton::kv::tier
