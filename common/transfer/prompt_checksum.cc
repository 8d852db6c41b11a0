#include "common/transfer/prompt_checksum.h"

#include <string>

#include "common/base/digest.h"

namespace baton::transfer {

uint32_t PromptChecksum(const v1::PrefillRequest& request) {
  std::string bytes(reinterpret_cast<const char*>(request.token_ids().data()),
                    static_cast<size_t>(request.token_ids_size()) * sizeof(int32_t));
  bytes += request.salt();
  return Crc32c(bytes);
}

}  // namespace baton::transfer
