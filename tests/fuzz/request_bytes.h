// A stranger's requests to a router or a worker, through the real checks and the real schedulers: bytes that
// parse as a request are either refused with a canonical error, or served for a few steps and cancelled; the
// pool is whole afterwards, and what the router lets through a worker takes. The seeded unit test and the
// libFuzzer target both drive it.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "absl/status/status.h"

namespace baton {

// The first byte chooses. Bit 2 clear: a FetchRequest (bit 3), else a DecodeRequest or a PrefillRequest (bit
// 0), and whether fingerprint and checksum are put right (bit 1), for else nothing gets past it. Bit 2 set:
// the public method bits 0 and 1, in the order Generate, Chat, Tokenize, Detokenize.
absl::Status RunRequestBytes(std::span<const uint8_t> bytes);

// A good request of either kind, to start from.
std::string GoodRequestBytes(bool decode);
std::string GoodFetchRequestBytes();
std::string GoodPublicRequestBytes(int method);

}  // namespace baton
