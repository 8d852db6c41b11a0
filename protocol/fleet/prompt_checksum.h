// The checksum of what a hand-off's KV is computed from. A token id that changed on its way would be
// computed, shipped and filed under the hash of another prompt, all with checksums that are right. Pure; any
// thread.
#pragma once

#include <cstdint>

#include "baton/fleet/v1/prefill.pb.h"

namespace baton::protocol {

// CRC32C over the request's token ids (little-endian int32) and its salt; what prompt_crc32c has to be.
uint32_t PromptChecksum(const fleet::v1::PrefillRequest& request);

}  // namespace baton::protocol
