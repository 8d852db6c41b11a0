#include "protocol/fleet/prompt_checksum.h"

#include <array>
#include <span>

#include "common/base/digest.h"

namespace baton::protocol {

uint32_t PromptChecksum(const fleet::v1::PrefillRequest& request) {
  const std::span<const int32_t> ids(request.token_ids().data(), request.token_ids().size());
  uint32_t checksum = Crc32c(request.salt(), Crc32c(std::as_bytes(ids)));
  for (const v1::ReusableSpan& span : request.reusable()) {
    const std::array<uint32_t, 2> ends = {span.begin(), span.end()};
    checksum = Crc32c(std::as_bytes(std::span(ends)), checksum);
  }
  return checksum;
}

}  // namespace baton::protocol
