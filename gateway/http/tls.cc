#include "gateway/http/tls.h"

#include <openssl/err.h>
#include <openssl/ssl.h>

#include <fstream>
#include <iterator>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"

namespace baton::gateway::http {
namespace {

namespace ssl = boost::asio::ssl;

constexpr unsigned char kProtocols[] = {2, 'h', '2', 8, 'h', 't', 't', 'p', '/', '1', '.', '1'};

// Selects one of the protocols that a client names (ALPN).
int Choose(SSL*, const unsigned char** chosen, unsigned char* size, const unsigned char* offered,
           unsigned int offered_size, void*) {
  unsigned char* found = nullptr;
  if (SSL_select_next_proto(&found, size, kProtocols, sizeof kProtocols, offered, offered_size) !=
      OPENSSL_NPN_NEGOTIATED) {
    return SSL_TLSEXT_ERR_ALERT_FATAL;
  }
  *chosen = found;
  return SSL_TLSEXT_ERR_OK;
}

std::optional<std::string> Contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return std::nullopt;
  return std::string(std::istreambuf_iterator<char>(file), {});
}

absl::StatusOr<Certificate::Context> MakeContext(const std::string& cert, const std::string& key) {
  const auto context = std::make_shared<ssl::context>(ssl::context::tls_server);
  SSL_CTX* const native = context->native_handle();
  SSL_CTX_set_min_proto_version(native, TLS1_2_VERSION);
  SSL_CTX_set_options(native, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
  // Connections that rest keep no buffers.
  SSL_CTX_set_mode(native, SSL_MODE_RELEASE_BUFFERS);
  SSL_CTX_set_session_cache_mode(native, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_alpn_select_cb(native, Choose, nullptr);
  ERR_clear_error();
  boost::system::error_code error;
  const auto wrong = [&error](const std::string& flag, const std::string& path) {
    return absl::InvalidArgumentError(absl::StrCat(flag, " ", path, ": ", error.message()));
  };
  context->use_certificate_chain_file(cert, error);
  if (error) return wrong("--tls-cert", cert);
  context->use_private_key_file(key, ssl::context::pem, error);
  if (error) return wrong("--tls-key", key);
  return context;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Certificate>> Certificate::Load(std::string cert, std::string key) {
  auto made = std::unique_ptr<Certificate>(new Certificate(std::move(cert), std::move(key)));
  if (absl::Status status = made->Reload(); !status.ok()) return status;
  return made;
}

absl::Status Certificate::Reload() {
  const auto cert = Contents(cert_), key = Contents(key_);
  if (!cert.has_value())
    return absl::InvalidArgumentError(absl::StrCat("--tls-cert ", cert_, ": can't be read"));
  if (!key.has_value())
    return absl::InvalidArgumentError(absl::StrCat("--tls-key ", key_, ": can't be read"));
  std::string now = absl::StrCat(*cert, "\n", *key);
  if (now == read_) return absl::OkStatus();
  read_ = std::move(now);
  auto context = MakeContext(cert_, key_);
  if (!context.ok()) return context.status();
  context_ = *std::move(context);
  return absl::OkStatus();
}

}  // namespace baton::gateway::http
