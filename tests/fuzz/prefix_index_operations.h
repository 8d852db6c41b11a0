// An interpreter of operations on PrefixIndex: bytes in, operations against the index and against a model of
// it that is too simple to be wrong (a map of maps). The seeded unit test and the libFuzzer target both drive
// it.
#pragma once

#include <cstdint>
#include <span>

#include "absl/status/statusor.h"

namespace baton::router::index {

// Operations until the bytes run out. Returns how many were done; an error says where index and model part.
absl::StatusOr<int64_t> RunPrefixIndexOperations(std::span<const uint8_t> bytes);

}  // namespace baton::router::index
