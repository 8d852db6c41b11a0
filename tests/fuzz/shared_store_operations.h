// An interpreter of operations on several SharedStores over one folder in memory: they publish, read, look,
// restart under other models, keys and caps, and die in the middle of writes, while the folder fails, fills
// and is damaged. Whatever is read has to be what was written, and once all have looked the files keep to
// the cap. The seeded unit test and the libFuzzer target both drive it.
#pragma once

#include <cstdint>
#include <span>

#include "absl/status/statusor.h"

namespace baton::kv::tier {

// Returns how many operations were done; an error says what was wrong, and after which of them.
absl::StatusOr<int64_t> RunSharedStoreOperations(std::span<const uint8_t> bytes);

}  // namespace baton::kv::tier
