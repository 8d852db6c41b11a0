// Checksums and cryptographic digests over bytes: CRC32C for what travels, SHA-256 for what has an identity.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace baton {

// CRC-32C (Castagnoli, RFC 3720 appendix B.4). Of bytes that follow others, with `before` their checksum.
uint32_t Crc32c(std::span<const std::byte> bytes, uint32_t before = 0);
uint32_t Crc32c(std::string_view bytes, uint32_t before = 0);

using Sha256Digest = std::array<uint8_t, 32>;

// Incremental SHA-256. One thread at a time.
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(Sha256&&) noexcept;
  Sha256& operator=(Sha256&&) noexcept;
  void Update(std::span<const std::byte> bytes);
  void Update(std::string_view bytes);
  // Ends the digest and starts a new one.
  Sha256Digest Finish();

 private:
  struct Context;
  std::unique_ptr<Context> context_;
};

// SHA-256 of the bytes, as 32 bytes.
std::string Sha256Of(std::string_view bytes);
// The first 4 bytes of a digest in hexadecimal, for people to compare.
std::string ShortDigest(std::string_view digest);

}  // namespace baton
