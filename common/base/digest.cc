#include "common/base/digest.h"

#include <isa-l/crc.h>
#include <openssl/evp.h>

#include "common/base/check.h"

namespace baton {

uint32_t Crc32c(std::span<const std::byte> bytes, uint32_t before) {
  constexpr size_t kMaxRun = size_t{1} << 30;  // the library takes an int length
  uint32_t crc = ~before;
  while (!bytes.empty()) {
    const auto run = bytes.first(std::min(bytes.size(), kMaxRun));
    auto* data = reinterpret_cast<unsigned char*>(const_cast<std::byte*>(run.data()));
    crc = crc32_iscsi(data, static_cast<int>(run.size()), crc);
    bytes = bytes.subspan(run.size());
  }
  return ~crc;
}

uint32_t Crc32c(std::string_view bytes, uint32_t before) {
  return Crc32c(std::as_bytes(std::span(bytes)), before);
}

namespace {

// Looked up once: EVP_sha256() would be looked up for each context, which costs more than hashing with it.
const EVP_MD* Implementation() {
  static const EVP_MD* const sha256 = EVP_MD_fetch(nullptr, "SHA256", nullptr);
  return sha256;
}

}  // namespace

struct Sha256::Context {
  EVP_MD_CTX* evp = EVP_MD_CTX_new();
  Context() { BATON_CHECK(EVP_DigestInit_ex(evp, Implementation(), nullptr) == 1); }
  ~Context() { EVP_MD_CTX_free(evp); }
};

Sha256::Sha256() : context_(std::make_unique<Context>()) {}
Sha256::~Sha256() = default;
Sha256::Sha256(Sha256&&) noexcept = default;
Sha256& Sha256::operator=(Sha256&&) noexcept = default;

void Sha256::Update(std::span<const std::byte> bytes) {
  BATON_CHECK(EVP_DigestUpdate(context_->evp, bytes.data(), bytes.size()) == 1);
}

void Sha256::Update(std::string_view bytes) { Update(std::as_bytes(std::span(bytes))); }

Sha256Digest Sha256::Finish() {
  Sha256Digest digest;
  BATON_CHECK(EVP_DigestFinal_ex(context_->evp, digest.data(), nullptr) == 1);
  // Without a type the context keeps the implementation it has: naming it again would look it up again, which
  // costs more than hashing a block's 80 bytes.
  BATON_CHECK(EVP_DigestInit_ex(context_->evp, nullptr, nullptr) == 1);
  return digest;
}

std::string Sha256Of(std::string_view bytes) {
  Sha256 sha;
  sha.Update(bytes);
  const Sha256Digest digest = sha.Finish();
  return std::string(digest.begin(), digest.end());
}

std::string ShortDigest(std::string_view digest) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string hex;
  for (const char byte : digest.substr(0, 4)) {
    hex.push_back(kDigits[static_cast<uint8_t>(byte) >> 4]);
    hex.push_back(kDigits[static_cast<uint8_t>(byte) & 15]);
  }
  return hex;
}

}  // namespace baton
