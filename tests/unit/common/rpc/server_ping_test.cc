// When a server pings: while a call is under way, so that a dead peer is noticed, and not between calls, when
// a client of gRPC's synchronous API answers none. The client is a bare socket that speaks just enough HTTP/2
// (RFC 9113) to be told.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <optional>
#include <string>
#include <string_view>

#include "absl/time/clock.h"
#include "common/rpc/server.h"
#include "tests/patience.h"

namespace baton::rpc {
namespace {

constexpr uint8_t kData = 0, kHeaders = 1, kSettings = 4, kPing = 6, kGoAway = 7;
constexpr uint8_t kAck = 1, kEndStream = 1, kEndHeaders = 4;

struct Frame {
  uint8_t type = 0;
  uint8_t flags = 0;
  std::string payload;
};

class Connection {
 public:
  explicit Connection(const std::string& address) : socket_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in to = {};
    to.sin_family = AF_INET;
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    to.sin_port = htons(static_cast<uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))));
    EXPECT_EQ(connect(socket_, reinterpret_cast<const sockaddr*>(&to), sizeof(to)), 0);
    Write("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    Send(kSettings, 0, 0, "");
  }
  ~Connection() { close(socket_); }

  void Send(uint8_t type, uint8_t flags, uint8_t stream, std::string_view payload) {
    const auto size = static_cast<uint32_t>(payload.size());
    std::string frame = {static_cast<char>(size >> 16),
                         static_cast<char>(size >> 8),
                         static_cast<char>(size),
                         static_cast<char>(type),
                         static_cast<char>(flags),
                         0,
                         0,
                         0,
                         static_cast<char>(stream)};
    frame += payload;
    Write(frame);
  }

  // Opens grpc.health.v1's Watch, which stays open.
  void WatchHealth() {
    std::string headers;
    for (const auto& [name, value] : std::initializer_list<std::pair<std::string_view, std::string_view>>{
             {":method", "POST"},
             {":scheme", "http"},
             {":path", "/grpc.health.v1.Health/Watch"},
             {":authority", "test"},
             {"content-type", "application/grpc"},
             {"te", "trailers"}}) {
      headers += '\0';  // a literal with a new name, not indexed (RFC 7541, 6.2.2)
      headers += static_cast<char>(name.size());
      headers += name;
      headers += static_cast<char>(value.size());
      headers += value;
    }
    Send(kHeaders, kEndHeaders, 1, headers);
    Send(kData, kEndStream, 1, std::string(5, '\0'));  // an empty message
  }

  // The next frame; nothing if none comes in time, or the server hung up.
  std::optional<Frame> Receive(absl::Time deadline) {
    while (true) {
      if (buffer_.size() >= 9) {
        const auto byte = [this](size_t i) { return static_cast<uint8_t>(buffer_[i]); };
        const size_t size = size_t{byte(0)} << 16 | size_t{byte(1)} << 8 | byte(2);
        if (buffer_.size() >= 9 + size) {
          Frame frame{byte(3), byte(4), buffer_.substr(9, size)};
          buffer_.erase(0, 9 + size);
          return frame;
        }
      }
      const int64_t left = absl::ToInt64Milliseconds(deadline - absl::Now());
      pollfd readable = {socket_, POLLIN, 0};
      if (left <= 0 || poll(&readable, 1, static_cast<int>(left)) <= 0) return std::nullopt;
      char bytes[4096];
      const ssize_t got = read(socket_, bytes, sizeof(bytes));
      if (got <= 0) {
        closed_ = true;
        return std::nullopt;
      }
      buffer_.append(bytes, static_cast<size_t>(got));
    }
  }

  bool closed() const { return closed_; }

 private:
  void Write(std::string_view bytes) {
    EXPECT_EQ(write(socket_, bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
  }

  const int socket_;
  std::string buffer_;
  bool closed_ = false;
};

TEST(ServerPingTest, PingsWhileACallIsUnderWayAndNotBetweenCalls) {
  const auto server = Server::Start(
      {.keepalive = {.interval = absl::Milliseconds(50), .timeout = Scaled(absl::Seconds(60))}}, {});
  ASSERT_TRUE(server.ok()) << server.status();
  Connection connection((*server)->address());
  // Silence, for many intervals. A slow machine can only make this too easy.
  const absl::Time silent_until = absl::Now() + absl::Milliseconds(1000);
  while (const auto frame = connection.Receive(silent_until)) {
    EXPECT_NE(frame->type, kPing) << "a synchronous client would not have answered";
    EXPECT_NE(frame->type, kGoAway);
    if (frame->type == kSettings && (frame->flags & kAck) == 0) connection.Send(kSettings, kAck, 0, "");
  }
  EXPECT_FALSE(connection.closed());
  // The control: the same connection, with a call. Several pings: one may be a measurement of bandwidth.
  connection.WatchHealth();
  int pings = 0;
  while (pings < 4) {
    const auto frame = connection.Receive(absl::Now() + Scaled(absl::Seconds(60)));
    ASSERT_TRUE(frame.has_value()) << "no ping";
    ASSERT_NE(frame->type, kGoAway);
    if (frame->type != kPing || (frame->flags & kAck) != 0) continue;
    ++pings;
    connection.Send(kPing, kAck, 0, frame->payload);
  }
}

}  // namespace
}  // namespace baton::rpc
