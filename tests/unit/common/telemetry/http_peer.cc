#include "tests/unit/common/telemetry/http_peer.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <utility>

#include "common/base/check.h"
#include "tests/patience.h"

namespace baton::telemetry {

int HttpAnswer::status() const {
  const size_t space = head.find(' ');
  return space == std::string::npos ? 0 : std::atoi(head.c_str() + space);
}

HttpPeer::HttpPeer() : socket_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  BATON_CHECK(socket_ >= 0);
  const timeval limit = {.tv_sec = Scaled(20)};
  BATON_CHECK(setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) == 0);
}

HttpPeer::HttpPeer(const std::string& address) : HttpPeer() { Connect(address); }

HttpPeer::HttpPeer(const std::string& address, uint32_t from) : HttpPeer() {
  sockaddr_in own = {};
  own.sin_family = AF_INET;
  own.sin_addr.s_addr = htonl(0x7f000000 | from);
  BATON_CHECK(bind(socket_, reinterpret_cast<const sockaddr*>(&own), sizeof own) == 0);
  Connect(address);
}

HttpPeer::HttpPeer(HttpPeer&& other) noexcept
    : socket_(std::exchange(other.socket_, -1)),
      received_(std::move(other.received_)),
      at_end_(other.at_end_) {}

HttpPeer::~HttpPeer() {
  if (socket_ >= 0) close(socket_);
}

namespace {
sockaddr_in6 LoopbackOfIpv6(uint16_t port) {
  sockaddr_in6 to = {};
  to.sin6_family = AF_INET6;
  to.sin6_addr = in6addr_loopback;
  to.sin6_port = htons(port);
  return to;
}
}  // namespace

bool HostHasIpv6() {
  const sockaddr_in6 at = LoopbackOfIpv6(0);
  const int probe = socket(AF_INET6, SOCK_STREAM, 0);
  const bool has = probe >= 0 && bind(probe, reinterpret_cast<const sockaddr*>(&at), sizeof at) == 0;
  close(probe);
  return has;
}

bool ListensOnIpv6(const std::string& address) {
  const sockaddr_in6 to =
      LoopbackOfIpv6(static_cast<uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))));
  const int probe = socket(AF_INET6, SOCK_STREAM, 0);
  const bool connected = probe >= 0 && connect(probe, reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0;
  close(probe);
  return connected;
}

void HttpPeer::Connect(const std::string& address) { BATON_CHECK(TryConnect(address)); }

bool HttpPeer::TryConnect(const std::string& address) {
  sockaddr_in to = {};
  to.sin_family = AF_INET;
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  to.sin_port = htons(static_cast<uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))));
  return connect(socket_, reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0;
}

bool HttpPeer::Send(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
  return true;
}

HttpAnswer HttpPeer::Get() {
  if (!Send("GET /metrics HTTP/1.1\r\nHost: test\r\n\r\n")) return {};
  return Receive();
}

bool HttpPeer::Fill() {
  char bytes[65536];
  const ssize_t got = read(socket_, bytes, sizeof bytes);
  if (got <= 0) {
    at_end_ = got == 0;
    return false;
  }
  received_.append(bytes, static_cast<size_t>(got));
  return true;
}

HttpAnswer HttpPeer::Receive(bool head_only) {
  size_t end;
  while ((end = received_.find("\r\n\r\n")) == std::string::npos) {
    if (!Fill()) return {};
  }
  HttpAnswer answer{.head = received_.substr(0, end + 4), .body = {}};
  received_.erase(0, end + 4);
  const size_t length = answer.head.find("Content-Length: ");
  const size_t size =
      head_only || length == std::string::npos ? 0 : std::stoul(answer.head.substr(length + 16));
  while (received_.size() < size) {
    if (!Fill()) return {};
  }
  answer.body = received_.substr(0, size);
  received_.erase(0, size);
  return answer;
}

std::string HttpPeer::ReadToEnd() {
  while (Fill()) {
  }
  return std::exchange(received_, {});
}

bool HttpPeer::Readable(int milliseconds) {
  pollfd readable = {socket_, POLLIN, 0};
  return poll(&readable, 1, milliseconds) > 0;
}

}  // namespace baton::telemetry
