#include "tests/fuzz/http2_bytes.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "gateway/http/http2_session.h"
#include "tests/http2_frames.h"

namespace baton::gateway::http {
namespace {

using http2::Frame;
using http2::Literal;

std::string Head(std::string_view type) {
  return Literal(":method", "POST") + Literal(":scheme", "http") + Literal(":path", "/s.S/M?q") +
         Literal(":authority", "h") + Literal("content-type", type) + Literal("grpc-timeout", "5S") +
         Literal("a-bin", "AAEC");
}

// Says back what it hears.
void EchoCall(const std::shared_ptr<Call>& call) {
  call->Listen({.message =
                    [call](std::string message) {
                      call->Begin({{"a", "b"}});
                      call->Send(std::move(message), [call] { call->Took(); });
                    },
                .last =
                    [call] {
                      call->Finish({.code = 5, .message = "100%", .trailers = {{"c", "d"}}});
                    },
                .cancelled = [] {}});
}

void Echo(const std::shared_ptr<Exchange>& exchange) {
  if (exchange->request().body.size() % 2 == 0) return exchange->Answer({.body = exchange->request().body});
  exchange->Begin({.body = "begun"});
  exchange->Write(exchange->request().body, [exchange] { exchange->End(); });
}

class Client {
 public:
  Client()
      : site_({.max_held_bytes = 1 << 20,
               .max_streams = 40,
               .max_streams_per_address = 30,
               .max_streams_per_connection = 20,
               .max_message_bytes = 1000,
               .reset_burst = 20,
               .control_burst = 50},
              Echo, EchoCall, nullptr),
        session_(std::make_unique<Http2Session>(site_, "c", now_, [] {})) {}

  void Say(std::string_view bytes) {
    if (over_) return;
    said_ += bytes.size();
    over_ = !session_->Receive(bytes, now_);
    site_.loop->context().restart();
    site_.loop->context().poll();
  }
  void Listen() {
    for (int i = 0; i < 100; ++i) {
      const std::string out = session_->Outgoing(now_);
      heard_ += out.size();
      session_->Written();
      site_.loop->context().restart();
      site_.loop->context().poll();
      if (out.empty()) break;
    }
    over_ = over_ || session_->over();
  }
  void Pass(absl::Duration time) {
    now_ += time;
    if (!over_ && !session_->Tick(now_)) over_ = true;
  }
  void Leave() { session_->Leave(now_); }

  absl::Status Go() {
    Listen();
    session_.reset();
    site_.loop->context().restart();
    site_.loop->context().poll();
    if (site_.budget->held() != 0) {
      return absl::InternalError(fmt::format("{} bytes are still held", site_.budget->held()));
    }
    if (site_.streams != 0)
      return absl::InternalError(fmt::format("{} streams are left", site_.streams.load()));
    // Each frame of nine bytes may be answered by a refusal in words.
    if (heard_ > 1000 + 64 * said_) return absl::InternalError(fmt::format("{} for {}", heard_, said_));
    return absl::OkStatus();
  }

 private:
  absl::Time now_ = absl::UnixEpoch();
  Site site_;
  std::unique_ptr<Http2Session> session_;
  bool over_ = false;
  size_t said_ = 0, heard_ = 0;
};

}  // namespace

absl::Status FuzzHttp2(std::span<const uint8_t> bytes) {
  if (bytes.empty()) return absl::OkStatus();
  Client client;
  client.Say(http2::kPreface);
  std::string_view rest(reinterpret_cast<const char*>(bytes.data()) + 1, bytes.size() - 1);
  if (bytes[0] % 2 == 0) {
    for (; !rest.empty(); rest.remove_prefix(std::min<size_t>(rest.size(), 100))) {
      client.Say(rest.substr(0, 100));
      client.Listen();
    }
    return client.Go();
  }
  client.Say(Frame(NGHTTP2_SETTINGS, 0, 0, ""));
  while (rest.size() >= 4) {
    const auto kind = static_cast<uint8_t>(rest[0]), flags = static_cast<uint8_t>(rest[1]);
    const auto stream = static_cast<uint8_t>(rest[2]), size = static_cast<uint8_t>(rest[3]);
    rest.remove_prefix(4);
    const std::string_view payload = rest.substr(0, size);
    switch (kind % 16) {
      case 10:
        client.Say(
            Frame(NGHTTP2_HEADERS, NGHTTP2_FLAG_END_HEADERS | (flags & 1), stream, Head("application/grpc")));
        break;
      case 11:
        client.Say(
            Frame(NGHTTP2_HEADERS, NGHTTP2_FLAG_END_HEADERS | (flags & 1), stream, Head("text/plain")));
        break;
      case 12: {
        rest.remove_prefix(payload.size());
        const std::string prefix = {0, 0, 0, 0, static_cast<char>(payload.size())};
        client.Say(Frame(NGHTTP2_DATA, flags & 1, stream, prefix + std::string(payload)));
        break;
      }
      case 13:
        client.Pass(absl::Milliseconds(100 * size));
        break;
      case 14:
        client.Listen();
        break;
      case 15:
        if (flags == 0) client.Leave();
        break;
      default:
        rest.remove_prefix(payload.size());
        client.Say(Frame(kind % 16, flags, stream, payload));
    }
  }
  return client.Go();
}

}  // namespace baton::gateway::http
