// Keys from keys, and bytes that only who has a key can read or change: HKDF with SHA-256 (RFC 5869) and
// AES-256-GCM, by OpenSSL. Plain functions, any thread.
#pragma once

#include <array>
#include <cstddef>
#include <span>

namespace baton {

inline constexpr size_t kAeadKeyBytes = 32, kAeadNonceBytes = 12, kAeadTagBytes = 16;
using AeadTag = std::array<std::byte, kAeadTagBytes>;

// Fills `out`, at most 255 * 32 bytes, with what follows from `key`, `salt` and `info`.
void HkdfSha256(std::span<const std::byte> key, std::span<const std::byte> salt,
                std::span<const std::byte> info, std::span<std::byte> out);

// Encrypts `bytes` in place; the tag vouches for them and for `associated`, which stays as it is. `key` has
// kAeadKeyBytes, `nonce` kAeadNonceBytes. Two messages under one key and nonce give both away.
AeadTag Aes256GcmSeal(std::span<const std::byte> key, std::span<const std::byte> nonce,
                      std::span<const std::byte> associated, std::span<std::byte> bytes);
// Decrypts `bytes` in place. False: the key, nonce, associated bytes, bytes or tag are others, and `bytes`
// are zero.
[[nodiscard]] bool Aes256GcmOpen(std::span<const std::byte> key, std::span<const std::byte> nonce,
                                 std::span<const std::byte> associated, std::span<std::byte> bytes,
                                 const AeadTag& tag);

}  // namespace baton
