#include "tests/strangers/raw_client.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <utility>

#include "absl/time/clock.h"
#include "common/base/check.h"
#include "tests/patience.h"

namespace baton::strangers {

std::string CallHeaders(const std::string& path) {
  return Literal(":method", "POST") + Literal(":scheme", "http") + Literal(":path", path) +
         Literal(":authority", "stranger") + Literal("content-type", "application/grpc") +
         Literal("te", "trailers");
}

struct RawClient::Tls {
  ~Tls() {
    SSL_free(ssl);
    SSL_CTX_free(context);
  }
  SSL_CTX* context = SSL_CTX_new(TLS_client_method());
  SSL* ssl = nullptr;
};

RawClient::RawClient(const std::string& address, bool tls, uint32_t from)
    : socket_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  sockaddr_in own = {};
  own.sin_family = AF_INET;
  own.sin_addr.s_addr = htonl(0x7f000000 | from);
  BATON_CHECK(socket_ >= 0 && bind(socket_, reinterpret_cast<const sockaddr*>(&own), sizeof(own)) == 0);
  sockaddr_in to = own;
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  to.sin_port = htons(static_cast<uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))));
  BATON_CHECK(connect(socket_, reinterpret_cast<const sockaddr*>(&to), sizeof(to)) == 0) << address;
  const int yes = 1;
  setsockopt(socket_, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
  const timeval patience = {.tv_sec = Scaled(60), .tv_usec = 0};  // a server that hangs ends the test
  setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  setsockopt(socket_, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
  if (!tls) return;
  std::signal(SIGPIPE, SIG_IGN);  // OpenSSL writes without MSG_NOSIGNAL
  tls_ = std::make_unique<Tls>();
  const unsigned char protocols[] = {2, 'h', '2'};
  SSL_CTX_set_alpn_protos(tls_->context, protocols, sizeof(protocols));
  tls_->ssl = SSL_new(tls_->context);
  SSL_set_fd(tls_->ssl, socket_);
  BATON_CHECK(SSL_connect(tls_->ssl) == 1) << "no TLS with " << address;
}

RawClient::RawClient(RawClient&& other) noexcept
    : socket_(std::exchange(other.socket_, -1)),
      tls_(std::move(other.tls_)),
      buffer_(std::move(other.buffer_)) {}

RawClient::~RawClient() {
  if (socket_ >= 0) close(socket_);
}

bool RawClient::Send(std::string_view bytes) {
  while (!bytes.empty()) {
    const auto size = static_cast<int>(std::min<size_t>(bytes.size(), 1 << 20));
    const ssize_t sent = tls_ != nullptr
                             ? SSL_write(tls_->ssl, bytes.data(), size)
                             : send(socket_, bytes.data(), static_cast<size_t>(size), MSG_NOSIGNAL);
    if (sent <= 0) {
      if (tls_ == nullptr && errno == EINTR) continue;
      return false;
    }
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
  return true;
}

bool RawClient::Open() { return Send(std::string(http2::kPreface) + Frame(kSettings, 0, 0, "")); }

int RawClient::Read(char* bytes, int size) {
  if (tls_ == nullptr) {
    const ssize_t got = recv(socket_, bytes, static_cast<size_t>(size), MSG_DONTWAIT);
    if (got >= 0) return static_cast<int>(got);
    return errno == EAGAIN || errno == EINTR ? -1 : 0;
  }
  const int got = SSL_read(tls_->ssl, bytes, size);
  if (got > 0) return got;
  return SSL_get_error(tls_->ssl, got) == SSL_ERROR_WANT_READ ? -1 : 0;
}

std::optional<RawClient::Received> RawClient::Receive(absl::Time deadline) {
  while (true) {
    if (buffer_.size() >= 9) {
      const auto byte = [this](size_t i) { return static_cast<uint8_t>(buffer_[i]); };
      const size_t size = size_t{byte(0)} << 16 | size_t{byte(1)} << 8 | byte(2);
      if (buffer_.size() >= 9 + size) {
        const uint32_t stream =
            uint32_t{byte(5)} << 24 | uint32_t{byte(6)} << 16 | uint32_t{byte(7)} << 8 | byte(8);
        Received frame{byte(3), byte(4), stream, buffer_.substr(9, size)};
        buffer_.erase(0, 9 + size);
        return frame;
      }
    }
    if (tls_ == nullptr || SSL_pending(tls_->ssl) == 0) {
      const int64_t left = absl::ToInt64Milliseconds(deadline - absl::Now());
      pollfd readable = {socket_, POLLIN, 0};
      const int wait = deadline == absl::InfiniteFuture() ? -1 : static_cast<int>(std::max<int64_t>(left, 0));
      if (poll(&readable, 1, wait) == 0) return std::nullopt;
    }
    char bytes[16384];
    const int got = Read(bytes, sizeof(bytes));
    if (got == 0) return std::nullopt;
    if (got > 0) buffer_.append(bytes, static_cast<size_t>(got));
  }
}

bool RawClient::AwaitClose() { return AwaitClose(absl::Now() + Scaled(absl::Seconds(60))); }

bool RawClient::AwaitClose(absl::Time deadline) {
  while (Receive(deadline).has_value()) {
  }
  return absl::Now() < deadline;
}

}  // namespace baton::strangers
