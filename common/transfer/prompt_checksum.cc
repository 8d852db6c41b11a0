#include "common/transfer/prompt_checksum.h"

#include <span>

#include "common/base/digest.h"

namespace baton::transfer {

uint32_t PromptChecksum(const v1::PrefillRequest& request) {
  const std::span<const int32_t> ids(request.token_ids().data(), request.token_ids().size());
  return Crc32c(request.salt(), Crc32c(std::as_bytes(ids)));
}

}  // namespace baton::transfer
