// API keys: "bk_ID_SECRET". The id is public and finds the key's line in the tenants file; the secret has 256
// random bits, so the file needs no slow hash: it holds SHA-256 of the whole key, and no one can search what
// that hides. Pure but for the randomness; any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "common/base/digest.h"

namespace baton::router {

inline constexpr size_t kKeyIdDigits = 12;
inline constexpr size_t kKeySecretDigits = 64;

struct NewApiKey {
  std::string key;
  std::string id;
  std::string sha256;  // hex, for the file
};
NewApiKey MakeApiKey();

// The id of something that has a key's form; nothing otherwise.
std::optional<std::string_view> ApiKeyId(std::string_view key);
Sha256Digest ApiKeyDigest(std::string_view key);
// Takes the same time for right and wrong keys.
bool SameDigest(const Sha256Digest& a, const Sha256Digest& b);
// From 64 hexadecimal digits.
std::optional<Sha256Digest> ParseDigest(std::string_view hex);

}  // namespace baton::router
