#include "common/base/aead.h"

#include <openssl/core_names.h>
#include <openssl/evp.h>
#include <openssl/kdf.h>
#include <openssl/params.h>

#include <algorithm>
#include <climits>
#include <memory>

#include "common/base/check.h"

namespace baton {
namespace {

struct FreeContext {
  void operator()(EVP_CIPHER_CTX* context) const { EVP_CIPHER_CTX_free(context); }
  void operator()(EVP_KDF_CTX* context) const { EVP_KDF_CTX_free(context); }
};
using CipherContext = std::unique_ptr<EVP_CIPHER_CTX, FreeContext>;

unsigned char* Raw(std::byte* bytes) { return reinterpret_cast<unsigned char*>(bytes); }
const unsigned char* Raw(const std::byte* bytes) { return reinterpret_cast<const unsigned char*>(bytes); }

// Looked up once: each look-up takes locks. They live as long as the process.
const EVP_CIPHER* Aes256Gcm() {
  static const EVP_CIPHER* const cipher = EVP_CIPHER_fetch(nullptr, "AES-256-GCM", nullptr);
  BATON_CHECK(cipher != nullptr) << "OpenSSL has no AES-256-GCM";
  return cipher;
}
EVP_KDF* Hkdf() {
  static EVP_KDF* const kdf = EVP_KDF_fetch(nullptr, "HKDF", nullptr);
  BATON_CHECK(kdf != nullptr) << "OpenSSL has no HKDF";
  return kdf;
}

// With the key, the nonce and the associated bytes in it.
CipherContext Begin(bool seal, std::span<const std::byte> key, std::span<const std::byte> nonce,
                    std::span<const std::byte> associated) {
  BATON_CHECK(key.size() == kAeadKeyBytes && nonce.size() == kAeadNonceBytes);
  CipherContext context(EVP_CIPHER_CTX_new());
  BATON_CHECK(context != nullptr);
  int done = 0;
  BATON_CHECK(EVP_CipherInit_ex2(context.get(), Aes256Gcm(), Raw(key.data()), Raw(nonce.data()), seal ? 1 : 0,
                                 nullptr) == 1);
  BATON_CHECK(EVP_CipherUpdate(context.get(), nullptr, &done, Raw(associated.data()),
                               static_cast<int>(associated.size())) == 1);
  return context;
}

void Transform(EVP_CIPHER_CTX* context, std::span<std::byte> bytes) {
  // OpenSSL counts in int.
  constexpr size_t kMost = size_t{1} << 30;
  while (!bytes.empty()) {
    const auto part = bytes.first(std::min(bytes.size(), kMost));
    int done = 0;
    BATON_CHECK(EVP_CipherUpdate(context, Raw(part.data()), &done, Raw(part.data()),
                                 static_cast<int>(part.size())) == 1);
    bytes = bytes.subspan(part.size());
  }
}

}  // namespace

void HkdfSha256(std::span<const std::byte> key, std::span<const std::byte> salt,
                std::span<const std::byte> info, std::span<std::byte> out) {
  const std::unique_ptr<EVP_KDF_CTX, FreeContext> context(EVP_KDF_CTX_new(Hkdf()));
  BATON_CHECK(context != nullptr);
  char digest[] = "SHA256";
  const auto octets = [](const char* name, std::span<const std::byte> bytes) {
    // OpenSSL's parameters are not const; what they point to is only read.
    return OSSL_PARAM_construct_octet_string(name, const_cast<std::byte*>(bytes.data()), bytes.size());
  };
  OSSL_PARAM parameters[5];
  size_t count = 0;
  parameters[count++] = OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, digest, 0);
  parameters[count++] = octets(OSSL_KDF_PARAM_KEY, key);
  // One of no bytes is none: RFC 5869 takes zeros then, and so does OpenSSL.
  if (!salt.empty()) parameters[count++] = octets(OSSL_KDF_PARAM_SALT, salt);
  if (!info.empty()) parameters[count++] = octets(OSSL_KDF_PARAM_INFO, info);
  parameters[count] = OSSL_PARAM_construct_end();
  BATON_CHECK(EVP_KDF_derive(context.get(), Raw(out.data()), out.size(), parameters) == 1);
}

AeadTag Aes256GcmSeal(std::span<const std::byte> key, std::span<const std::byte> nonce,
                      std::span<const std::byte> associated, std::span<std::byte> bytes) {
  const CipherContext context = Begin(/*seal=*/true, key, nonce, associated);
  Transform(context.get(), bytes);
  AeadTag tag;
  int done = 0;
  BATON_CHECK(EVP_CipherFinal_ex(context.get(), Raw(tag.data()), &done) == 1);
  BATON_CHECK(EVP_CIPHER_CTX_ctrl(context.get(), EVP_CTRL_AEAD_GET_TAG, static_cast<int>(tag.size()),
                                  tag.data()) == 1);
  return tag;
}

bool Aes256GcmOpen(std::span<const std::byte> key, std::span<const std::byte> nonce,
                   std::span<const std::byte> associated, std::span<std::byte> bytes, const AeadTag& tag) {
  const CipherContext context = Begin(/*seal=*/false, key, nonce, associated);
  Transform(context.get(), bytes);
  AeadTag expected = tag;
  BATON_CHECK(EVP_CIPHER_CTX_ctrl(context.get(), EVP_CTRL_AEAD_SET_TAG, static_cast<int>(expected.size()),
                                  expected.data()) == 1);
  unsigned char rest[16];
  int done = 0;
  if (EVP_CipherFinal_ex(context.get(), rest, &done) == 1) return true;
  std::fill(bytes.begin(), bytes.end(), std::byte{0});
  return false;
}

}  // namespace baton
