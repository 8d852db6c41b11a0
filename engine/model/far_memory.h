// FarMemory: where experts lie that memory has no room for: a file (expert_file.h); in tests, one that is
// slow and fails as scripted. One level deep. Bytes are copied to where they are needed, never mapped.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "absl/status/status.h"

namespace baton::model {

// Offsets and sizes of reads, and the memory that they go to, are whole pages.
inline constexpr int64_t kFarPage = 4096;

class FarMemory {
 public:
  virtual ~FarMemory() = default;
  // "/srv/experts": for messages.
  virtual std::string name() const = 0;
  // All of `to`, from `offset` on. DATA_LOSS beyond the end, UNAVAILABLE otherwise. Several threads at once;
  // waits for the device.
  virtual absl::Status Read(int64_t offset, std::span<std::byte> to) = 0;
};

}  // namespace baton::model
