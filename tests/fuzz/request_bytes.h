// What a stranger may send to a worker, through the real checks and the real schedulers: bytes that parse as
// a request are either refused with a canonical error, or served for a few steps and cancelled; the pool is
// whole afterwards. The seeded unit test and the libFuzzer target both drive it.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "absl/status/status.h"

namespace baton {

// The first byte chooses: a DecodeRequest or a PrefillRequest, and whether the fingerprint is put right (bit
// 1), for else nothing gets past it.
absl::Status RunRequestBytes(std::span<const uint8_t> bytes);

// A good request of either kind, to start from.
std::string GoodRequestBytes(bool decode);

}  // namespace baton
