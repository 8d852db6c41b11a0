#include "router/tenancy/api_key.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "common/base/secret.h"

namespace baton::router {
namespace {

constexpr std::string_view kPrefix = "bk_";

bool IsHex(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

std::string_view Bytes(const Sha256Digest& digest) {
  return {reinterpret_cast<const char*>(digest.data()), digest.size()};
}

}  // namespace

NewApiKey MakeApiKey() {
  NewApiKey made;
  made.id = RandomHex(kKeyIdDigits / 2);
  made.key = fmt::format("{}{}_{}", kPrefix, made.id, RandomHex(kKeySecretDigits / 2));
  const Sha256Digest digest = ApiKeyDigest(made.key);
  made.sha256 = ToHex(std::as_bytes(std::span(digest)));
  return made;
}

std::optional<std::string_view> ApiKeyId(std::string_view key) {
  if (key.size() != kPrefix.size() + kKeyIdDigits + 1 + kKeySecretDigits || !key.starts_with(kPrefix)) {
    return std::nullopt;
  }
  const std::string_view id = key.substr(kPrefix.size(), kKeyIdDigits);
  const std::string_view rest = key.substr(kPrefix.size() + kKeyIdDigits);
  if (rest[0] != '_' || !IsHex(id) || !IsHex(rest.substr(1))) return std::nullopt;
  return id;
}

Sha256Digest ApiKeyDigest(std::string_view key) {
  Sha256 hash;
  hash.Update(key);
  return hash.Finish();
}

bool SameDigest(const Sha256Digest& a, const Sha256Digest& b) { return SameSecret(Bytes(a), Bytes(b)); }

std::optional<Sha256Digest> ParseDigest(std::string_view hex) {
  Sha256Digest digest;
  if (hex.size() != 2 * digest.size() || !IsHex(hex)) return std::nullopt;
  const auto value = [](char c) { return c <= '9' ? c - '0' : c - 'a' + 10; };
  for (size_t i = 0; i < digest.size(); ++i) {
    digest[i] = static_cast<uint8_t>(value(hex[2 * i]) << 4 | value(hex[2 * i + 1]));
  }
  return digest;
}

}  // namespace baton::router
