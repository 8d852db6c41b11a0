#include "tests/integration/gateway/tls_peer.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <openssl/err.h>
#include <openssl/x509v3.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/check.h"
#include "tests/patience.h"

namespace baton::gateway {

TlsPeer::TlsPeer(const std::string& address, const TlsWish& wish)
    : context_(SSL_CTX_new(TLS_client_method()), SSL_CTX_free),
      ssl_((SSL_CTX_set_security_level(context_.get(), 0), SSL_new(context_.get())), SSL_free) {
  socket_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const timeval limit = {.tv_sec = Scaled(20)};
  BATON_CHECK(setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) == 0);
  sockaddr_in to = {};
  to.sin_family = AF_INET;
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  to.sin_port = htons(static_cast<uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))));
  BATON_CHECK(connect(socket_, reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0);
  BATON_CHECK(SSL_CTX_load_verify_locations(context_.get(), wish.ca.c_str(), nullptr) == 1) << wish.ca;
  X509_STORE_up_ref(SSL_CTX_get_cert_store(context_.get()));
  SSL_set0_verify_cert_store(ssl_.get(), SSL_CTX_get_cert_store(context_.get()));
  SSL_set_verify(ssl_.get(), SSL_VERIFY_PEER, nullptr);
  X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl_.get()), "127.0.0.1");
  SSL_set_min_proto_version(ssl_.get(), TLS1_VERSION);
  SSL_set_max_proto_version(ssl_.get(), wish.max_version);
  std::string protocols;
  for (const std::string& one : wish.protocols) protocols += static_cast<char>(one.size()) + one;
  if (!protocols.empty()) {
    SSL_set_alpn_protos(ssl_.get(), reinterpret_cast<const unsigned char*>(protocols.data()),
                        static_cast<unsigned>(protocols.size()));
  }
  SSL_set_fd(ssl_.get(), socket_);
  connected_ = SSL_connect(ssl_.get()) == 1;
}

TlsPeer::~TlsPeer() { close(socket_); }

std::string TlsPeer::protocol() const {
  const unsigned char* name = nullptr;
  unsigned size = 0;
  SSL_get0_alpn_selected(ssl_.get(), &name, &size);
  return {reinterpret_cast<const char*>(name), size};
}

long TlsPeer::serial() const {
  return ASN1_INTEGER_get(X509_get0_serialNumber(SSL_get0_peer_certificate(ssl_.get())));
}

bool TlsPeer::Send(std::string_view bytes) {
  return bytes.empty() || SSL_write(ssl_.get(), bytes.data(), static_cast<int>(bytes.size())) > 0;
}

bool TlsPeer::Fill() {
  char bytes[65536];
  const int got = SSL_read(ssl_.get(), bytes, sizeof bytes);
  if (got <= 0) {
    ended_well_ = SSL_get_error(ssl_.get(), got) == SSL_ERROR_ZERO_RETURN;
    return false;
  }
  received_.append(bytes, static_cast<size_t>(got));
  return true;
}

telemetry::HttpAnswer TlsPeer::Receive() {
  size_t end;
  while ((end = received_.find("\r\n\r\n")) == std::string::npos) {
    if (!Fill()) return {};
  }
  telemetry::HttpAnswer answer{.head = received_.substr(0, end + 4), .body = {}};
  received_.erase(0, end + 4);
  const size_t length = answer.head.find("Content-Length: ");
  const size_t size = length == std::string::npos ? 0 : std::stoul(answer.head.substr(length + 16));
  while (received_.size() < size) {
    if (!Fill()) return {};
  }
  answer.body = received_.substr(0, size);
  received_.erase(0, size);
  return answer;
}

std::string TlsPeer::ReadToEnd() {
  while (Fill()) {
  }
  return std::move(received_);
}

void TlsPeer::Leave() { SSL_shutdown(ssl_.get()); }

}  // namespace baton::gateway
