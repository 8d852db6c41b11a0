#include "text/config/ends_digest.h"

#include <cstdint>
#include <set>

#include "common/base/digest.h"

namespace baton::model {

std::string EndsDigest(std::span<const TokenId> ends) {
  std::set<int32_t> ids;
  for (const TokenId end : ends) ids.insert(end.value());
  std::string bytes;
  for (const int32_t id : ids) {
    for (int shift = 0; shift < 32; shift += 8) {
      bytes.push_back(static_cast<char>(static_cast<uint32_t>(id) >> shift & 0xFF));
    }
  }
  return Sha256Of(bytes);
}

}  // namespace baton::model
