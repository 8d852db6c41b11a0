#include "common/base/secret.h"

#include <fmt/format.h>
#include <openssl/crypto.h>
#include <openssl/rand.h>

#include <fstream>
#include <vector>

#include "common/base/check.h"

namespace baton {

bool SameSecret(std::string_view a, std::string_view b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

std::string ToHex(std::span<const std::byte> bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string hex;
  hex.reserve(2 * bytes.size());
  for (const std::byte byte : bytes) {
    hex.push_back(kDigits[std::to_integer<int>(byte) >> 4]);
    hex.push_back(kDigits[std::to_integer<int>(byte) & 15]);
  }
  return hex;
}

std::string RandomHex(size_t bytes) {
  std::vector<unsigned char> random(bytes);
  BATON_CHECK(RAND_bytes(random.data(), static_cast<int>(bytes)) == 1) << "no randomness";
  return ToHex(std::as_bytes(std::span(random)));
}

absl::StatusOr<std::string> ReadSecretFile(const std::string& path, std::string_view what, size_t min) {
  constexpr size_t kMaxBytes = 4096;
  std::ifstream in(path, std::ios::binary);
  std::string secret(kMaxBytes + 1, '\0');
  in.read(secret.data(), static_cast<std::streamsize>(secret.size()));
  if (!in.is_open() || in.bad()) return absl::NotFoundError(fmt::format("{}: can't read the {}", path, what));
  secret.resize(static_cast<size_t>(in.gcount()));
  if (secret.size() > kMaxBytes) {
    return absl::InvalidArgumentError(fmt::format("{}: more than {} bytes is no {}", path, kMaxBytes, what));
  }
  secret.erase(secret.find_last_not_of(" \t\r\n") + 1);
  if (secret.size() < min) {
    return absl::InvalidArgumentError(
        fmt::format("{}: a {} of {} bytes; at least {} are needed", path, what, secret.size(), min));
  }
  for (const char c : secret) {
    if (c < 0x21 || c > 0x7e) {
      return absl::InvalidArgumentError(fmt::format(
          "{}: a {} is one word of printable ASCII, for example of `openssl rand -hex 32`", path, what));
    }
  }
  return secret;
}

}  // namespace baton
