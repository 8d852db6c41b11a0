// The session of HTTP/2 by itself: bytes in, bytes out, and the time is the test's.
#include "gateway/http/http2_session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nghttp2/nghttp2.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/base/check.h"
#include "tests/http2_frames.h"

namespace baton::gateway::http {
namespace {

using http2::Frame;
using http2::Literal;
using ::testing::HasSubstr;

std::string Number(uint32_t value, int bytes) {
  std::string text;
  for (int shift = 8 * (bytes - 1); shift >= 0; shift -= 8) text += static_cast<char>(value >> shift);
  return text;
}

struct Heard {
  uint8_t type, flags;
  uint32_t stream;
  std::string payload;
};

// A client without a socket. Calls that begin at the router are kept, and nobody answers them.
class Client {
 public:
  explicit Client(const ServerOptions& options)
      : site_(
            options, nullptr, [this](std::shared_ptr<Call> call) { calls_.push_back(std::move(call)); },
            nullptr),
        session_(site_, "c", now_, [] {}) {
    BATON_CHECK(nghttp2_hd_inflate_new(&inflater_) == 0);
    Say("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + Frame(NGHTTP2_SETTINGS, 0, 0, ""));
  }
  ~Client() {
    session_.Close();
    calls_.clear();
    Run();
    nghttp2_hd_inflate_del(inflater_);
  }

  // False: the connection is to end.
  bool Say(const std::string& bytes) {
    const bool goes_on = session_.Receive(bytes, now_);
    Run();
    return goes_on && !session_.over();
  }
  bool OpenCall(uint32_t stream) {
    return Say(Frame(NGHTTP2_HEADERS, NGHTTP2_FLAG_END_HEADERS, stream,
                     Literal(":method", "POST") + Literal(":scheme", "http") + Literal(":path", "/s.S/M") +
                         Literal(":authority", "h") + Literal("content-type", "application/grpc")));
  }
  bool SendMessage(uint32_t stream) {
    return Say(Frame(NGHTTP2_DATA, 0, stream, std::string(4, '\0') + "\1x"));
  }
  bool Reset(uint32_t stream) { return Say(Frame(NGHTTP2_RST_STREAM, 0, stream, Number(NGHTTP2_CANCEL, 4))); }
  void Leave() { session_.Leave(now_); }
  bool Pass(absl::Duration time) {
    now_ += time;
    const bool goes_on = session_.Tick(now_);
    Run();
    return goes_on;
  }
  // Returns the server's frames.
  std::vector<Heard> Listen() {
    std::string bytes;
    for (std::string more; !(more = session_.Outgoing(now_)).empty(); bytes += more) session_.Written();
    Run();
    std::vector<Heard> frames;
    while (bytes.size() >= 9) {
      const auto at = [&](size_t i) { return static_cast<uint8_t>(bytes[i]); };
      const size_t size = (at(0) << 16) | (at(1) << 8) | at(2);
      frames.push_back({at(3), at(4), (uint32_t{at(5)} << 24) | (at(6) << 16) | (at(7) << 8) | at(8),
                        bytes.substr(9, size)});
      bytes.erase(0, 9 + size);
    }
    return frames;
  }
  // The fields of a header block. All of them have to be read, in order.
  std::map<std::string, std::string> Fields(const Heard& frame) {
    std::map<std::string, std::string> fields;
    const auto* bytes = reinterpret_cast<const uint8_t*>(frame.payload.data());
    for (size_t left = frame.payload.size(); left > 0;) {
      nghttp2_nv field = {};
      int flags = 0;
      const ssize_t read = nghttp2_hd_inflate_hd2(inflater_, &field, &flags, bytes, left, 1);
      if (read < 0) break;
      bytes += read;
      left -= static_cast<size_t>(read);
      if ((flags & NGHTTP2_HD_INFLATE_EMIT) != 0) {
        fields[std::string(reinterpret_cast<char*>(field.name), field.namelen)] =
            std::string(reinterpret_cast<char*>(field.value), field.valuelen);
      }
      if ((flags & NGHTTP2_HD_INFLATE_FINAL) != 0) break;
    }
    nghttp2_hd_inflate_end_headers(inflater_);
    return fields;
  }
  // The last stream that the server still takes, of the GOAWAY that it has just sent; -1: none.
  static int64_t LastStream(const std::vector<Heard>& frames) {
    for (const Heard& frame : frames) {
      if (frame.type != NGHTTP2_GOAWAY || frame.payload.size() < 8) continue;
      uint32_t last = 0;
      for (int i = 0; i < 4; ++i) last = (last << 8) | static_cast<uint8_t>(frame.payload[i]);
      return last;
    }
    return -1;
  }
  // The code with which the server closes the connection; -1: it does not.
  int64_t GoAwayCode() {
    for (const Heard& frame : Listen()) {
      if (frame.type != NGHTTP2_GOAWAY || frame.payload.size() < 8) continue;
      uint32_t code = 0;
      for (int i = 4; i < 8; ++i) code = (code << 8) | static_cast<uint8_t>(frame.payload[i]);
      return code;
    }
    return -1;
  }

  size_t calls() const { return calls_.size(); }
  size_t floods() const { return site_.floods; }
  size_t held() const { return site_.budget->held(); }
  size_t bad() const { return site_.bad; }

 private:
  void Run() {
    site_.loop->context().restart();
    site_.loop->context().poll();
  }

  absl::Time now_ = absl::UnixEpoch();
  std::vector<std::shared_ptr<Call>> calls_;
  Site site_;
  Http2Session session_;
  nghttp2_hd_inflater* inflater_ = nullptr;
};

ServerOptions Few() {
  ServerOptions options;
  options.reset_burst = 20;
  options.resets_per_second = 5;
  return options;
}

// The count of resets alone: nothing else that a session counts comes near its limit here, and nghttp2's own
// limit is twice as high.
TEST(Http2SessionTest, ResetsHaveACountOfTheirOwn) {
  Client client(Few());
  uint32_t stream = 1;
  const auto once = [&] {
    const bool opened = client.OpenCall(stream);
    const bool reset = opened && client.Reset(stream);
    stream += 2;
    return reset;
  };
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(once()) << i;
  EXPECT_EQ(client.GoAwayCode(), -1);
  // Five come back each second.
  ASSERT_TRUE(client.Pass(absl::Seconds(2)));
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(once()) << i;
  EXPECT_EQ(client.floods(), 0u);
  EXPECT_FALSE(once());
  EXPECT_EQ(client.GoAwayCode(), NGHTTP2_ENHANCE_YOUR_CALM);
  EXPECT_EQ(client.floods(), 1u);
  EXPECT_EQ(client.calls(), 0u) << "headers alone reach no router";
}

TEST(Http2SessionTest, ResetsThatTheClientProvokesCountAlike) {
  Client client(Few());
  uint32_t stream = 1;
  const auto provoke = [&] {
    // A window that is too large: the server has to reset the stream.
    const bool opened = client.OpenCall(stream);
    const bool provoked =
        opened && client.Say(Frame(NGHTTP2_WINDOW_UPDATE, 0, stream, Number(0x7fffffff, 4)));
    stream += 2;
    return provoked;
  };
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(provoke()) << i;
  for (int i = 0; i < 10; ++i) {
    ASSERT_TRUE(client.OpenCall(stream)) << i;
    ASSERT_TRUE(client.Reset(stream)) << i;
    stream += 2;
  }
  EXPECT_EQ(client.GoAwayCode(), -1);
  EXPECT_FALSE(provoke());
  EXPECT_EQ(client.GoAwayCode(), NGHTTP2_ENHANCE_YOUR_CALM);
  EXPECT_EQ(client.floods(), 1u);
}

// gRPC's clients end the connection, with all its streams, when the server turns away one that they have
// just opened.
TEST(Http2SessionTest, OnItsWayOutItTakesStreamsUntilTheClientKnows) {
  Client client({});
  ASSERT_TRUE(client.OpenCall(1));
  ASSERT_TRUE(client.SendMessage(1));
  client.Listen();
  client.Leave();
  const std::vector<Heard> told = client.Listen();
  EXPECT_EQ(Client::LastStream(told), 0x7fffffff);
  ASSERT_EQ(told.back().type, NGHTTP2_PING);
  ASSERT_TRUE(client.OpenCall(3)) << "opened before the client knew";
  ASSERT_TRUE(client.SendMessage(3));
  EXPECT_EQ(client.calls(), 2u);
  ASSERT_TRUE(client.Say(Frame(NGHTTP2_PING, NGHTTP2_FLAG_ACK, 0, told.back().payload)));
  EXPECT_EQ(Client::LastStream(client.Listen()), 3);
  ASSERT_TRUE(client.OpenCall(5));
  ASSERT_TRUE(client.SendMessage(5));
  EXPECT_EQ(client.calls(), 2u);
  EXPECT_TRUE(client.Reset(3));
  EXPECT_FALSE(client.Reset(1)) << "that was the last";
}

TEST(Http2SessionTest, OnItsWayOutItDoesNotWaitForAClientThatIsSilent) {
  Client client({});
  ASSERT_TRUE(client.OpenCall(1));
  client.Listen();
  client.Leave();
  client.Listen();
  ASSERT_TRUE(client.Pass(absl::Seconds(1)));
  EXPECT_EQ(Client::LastStream(client.Listen()), -1);
  ASSERT_TRUE(client.Pass(absl::Milliseconds(1)));
  EXPECT_EQ(Client::LastStream(client.Listen()), 1);
  EXPECT_FALSE(client.Reset(1));
}

// Headers alone keep a stream for a while, and not for as long as the client answers pings.
TEST(Http2SessionTest, ACallWithoutAMessageHasAnEnd) {
  ServerOptions options;
  options.ping_after = absl::Hours(1);
  options.body_timeout = absl::Seconds(60);
  Client client(options);
  ASSERT_TRUE(client.OpenCall(1));
  ASSERT_TRUE(client.OpenCall(3));
  ASSERT_TRUE(client.SendMessage(3));
  client.Listen();
  ASSERT_TRUE(client.Pass(absl::Seconds(60)));
  EXPECT_TRUE(client.Listen().empty()) << "there is time yet";
  ASSERT_TRUE(client.Pass(absl::Seconds(1)));
  const std::vector<Heard> frames = client.Listen();
  ASSERT_EQ(frames.size(), 2u);
  EXPECT_EQ(frames[0].type, NGHTTP2_HEADERS);
  EXPECT_EQ(frames[0].stream, 1u);
  EXPECT_NE(frames[0].flags & NGHTTP2_FLAG_END_STREAM, 0);
  auto fields = client.Fields(frames[0]);
  EXPECT_EQ(fields["grpc-status"], "4");
  EXPECT_THAT(fields["grpc-message"], HasSubstr("no message came within 1m"));
  // And nothing that it still sends is read.
  EXPECT_EQ(frames[1].type, NGHTTP2_RST_STREAM);
  EXPECT_EQ(frames[1].payload, Number(NGHTTP2_NO_ERROR, 4));
  EXPECT_EQ(client.bad(), 1u);
  // A call that has begun may be silent for as long as it likes.
  ASSERT_TRUE(client.Pass(absl::Minutes(30)));
  EXPECT_TRUE(client.Listen().empty());
  EXPECT_EQ(client.calls(), 1u);
}

// A message that never ends is no first message: its stream is reset.
TEST(Http2SessionTest, HalfAMessageHasAnEndToo) {
  ServerOptions options;
  options.ping_after = absl::Hours(1);
  options.body_timeout = absl::Seconds(60);
  Client client(options);
  ASSERT_TRUE(client.OpenCall(1));
  ASSERT_TRUE(client.Say(Frame(NGHTTP2_DATA, 0, 1, std::string(4, '\0') + "\2x")));
  client.Listen();
  ASSERT_TRUE(client.Pass(absl::Seconds(61)));
  const std::vector<Heard> frames = client.Listen();
  ASSERT_EQ(frames.size(), 1u);
  EXPECT_EQ(frames[0].type, NGHTTP2_RST_STREAM);
  EXPECT_EQ(client.held(), 0u);
}

}  // namespace
}  // namespace baton::gateway::http
