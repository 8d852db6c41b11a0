// The gateway's server under TLS: the same answers, and clients that do not keep to the handshake.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "absl/time/time.h"
#include "gateway/gateway.h"
#include "gateway/http/server.h"
#include "tests/fakes/fake_inference.h"
#include "tests/integration/gateway/ask.h"
#include "tests/integration/gateway/tls_peer.h"
#include "tests/integration/security/certificates.h"
#include "tests/patience.h"
#include "tests/unit/common/telemetry/http_peer.h"

namespace baton::gateway {
namespace {

using fakes::AnswerWith;
using fakes::FakeInference;
using fakes::Script;
using telemetry::HttpPeer;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr absl::Duration kShortHeader = absl::Milliseconds(500);

class TlsTest : public ::testing::Test {
 protected:
  std::unique_ptr<http::Server> Serve(http::ServerOptions options = {}) {
    options.tls_cert = files_.cert;
    options.tls_key = files_.key;
    auto server = http::Server::Start(options, [](const std::shared_ptr<http::Exchange>& exchange) {
      exchange->Answer({.body = exchange->request().method + " " + exchange->request().body});
    });
    EXPECT_TRUE(server.ok()) << server.status();
    return *std::move(server);
  }
  TlsWish Wish() const { return {.ca = authority_.ca()}; }

  rpc::Authority authority_{"authority"};
  rpc::PairFiles files_ = authority_.Issue("server");
};

TEST_F(TlsTest, RequestsOneAfterAnotherAndTogether) {
  const auto server = Serve();
  for (const int version : {TLS1_2_VERSION, TLS1_3_VERSION}) {
    TlsWish wish = Wish();
    wish.max_version = version;
    TlsPeer peer(server->address(), wish);
    ASSERT_TRUE(peer.connected());
    EXPECT_EQ(peer.version(), version == TLS1_2_VERSION ? "TLSv1.2" : "TLSv1.3");
    EXPECT_EQ(peer.protocol(), "http/1.1");
    for (const std::string body : {"one", "two", "three"}) {
      ASSERT_TRUE(peer.Send(Post("/x", body)));
      EXPECT_EQ(peer.Receive().body, "POST " + body);
    }
    ASSERT_TRUE(
        peer.Send(Post("/x", "four") + Post("/x", "five") + Post("/x", "six", "Connection: close\r\n")));
    EXPECT_EQ(peer.Receive().body, "POST four");
    EXPECT_EQ(peer.Receive().body, "POST five");
    EXPECT_EQ(peer.Receive().body, "POST six");
    EXPECT_EQ(peer.ReadToEnd(), "");
    EXPECT_TRUE(peer.ended_well()) << "the end was not told";
  }
}

TEST_F(TlsTest, OnlyWhatItSpeaksIsAgreedOn) {
  const auto server = Serve();
  TlsWish old = Wish();
  old.max_version = TLS1_1_VERSION;
  EXPECT_FALSE(TlsPeer(server->address(), old).connected());
  TlsWish other = Wish();
  other.protocols = {"spdy/3"};
  EXPECT_FALSE(TlsPeer(server->address(), other).connected());
  other.protocols = {"http/1.1", "h2"};
  EXPECT_EQ(TlsPeer(server->address(), other).protocol(), "h2");
  other.protocols = {};
  EXPECT_TRUE(TlsPeer(server->address(), other).connected());
  Await([&] { return server->counts().failed_handshakes == 2; }, "two failed handshakes");
}

TEST_F(TlsTest, HandshakesThatAreNoneEndInTimeAndKeepNobodyWaiting) {
  const auto server = Serve({.header_timeout = kShortHeader});
  HttpPeer nothing(server->address()), slow(server->address()), plain(server->address()),
      garbage(server->address());
  // The beginning of a ClientHello that never goes on.
  slow.Send(std::string("\x16\x03\x01\x02\x00\x01", 6));
  plain.Send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
  garbage.Send(std::string(70000, '\xAA'));
  TlsPeer well(server->address(), Wish());
  ASSERT_TRUE(well.connected());
  ASSERT_TRUE(well.Send(Post("/x", "hi")));
  EXPECT_EQ(well.Receive().body, "POST hi");
  nothing.ReadToEnd();
  slow.ReadToEnd();
  EXPECT_THAT(plain.ReadToEnd(), testing::Not(HasSubstr("HTTP/1.1 200")));
  garbage.ReadToEnd();
  Await([&] { return server->counts().failed_handshakes == 4; }, "four failed handshakes");
}

TEST_F(TlsTest, OpeningsCountAmongAnAddresssConnections) {
  const auto server = Serve({.max_connections_per_address = 2});
  HttpPeer one(server->address()), two(server->address());
  Await([&] { return server->counts().connections == 2; }, "two connections");
  HttpPeer three(server->address());
  EXPECT_EQ(one.ReadToEnd(), "") << "it has waited longest";
  Await([&] { return server->counts().connections == 2; }, "the third connection");
  EXPECT_EQ(server->counts().refused_connections, 1u);
}

TEST_F(TlsTest, WhoGoesInTheMiddleOfAHandshakeIsForgotten) {
  const auto server = Serve();
  {
    HttpPeer half(server->address());
    half.Send(std::string("\x16\x03\x01\x02\x00\x01", 6));
    Await([&] { return server->counts().connections == 1; }, "one connection");
  }
  Await([&] { return server->counts().connections == 0; }, "the end of all connections");
}

TEST_F(TlsTest, ARefusalArrivesBeforeTheEnd) {
  const auto server = Serve({.max_body_bytes = 1000});
  TlsPeer peer(server->address(), Wish());
  ASSERT_TRUE(peer.connected());
  ASSERT_TRUE(peer.Send(Post("/x", std::string(200000, 'a'))));
  EXPECT_THAT(peer.Receive().head, StartsWith("HTTP/1.1 413 "));
}

TEST_F(TlsTest, ARenewedCertificateIsShownAndABrokenOneIsNot) {
  const auto server = Serve({.tls_reload_interval = absl::Milliseconds(1)});
  const auto serial = [&] {
    TlsPeer peer(server->address(), Wish());
    EXPECT_TRUE(peer.connected());
    return peer.connected() ? peer.serial() : -1;
  };
  TlsPeer before(server->address(), Wish());
  ASSERT_TRUE(before.connected());
  const long first = serial();
  authority_.Issue("server");
  ASSERT_TRUE(Await([&] { return serial() != first; }, "the renewed certificate"));
  const long second = serial();
  { std::ofstream(files_.cert) << "none"; }
  for (int i = 0; i < 20; ++i) EXPECT_EQ(serial(), second);
  // Earlier connections stay.
  ASSERT_TRUE(before.Send(Post("/x", "hi")));
  EXPECT_EQ(before.Receive().body, "POST hi");
}

TEST_F(TlsTest, FilesThatAreNoPairAreRefusedInWords) {
  const rpc::PairFiles other = authority_.Issue("other");
  const auto start = [](const std::string& cert, const std::string& key) {
    return http::Server::Start({.tls_cert = cert, .tls_key = key}, [](const auto&) {}).status();
  };
  EXPECT_THAT(start(files_.cert, other.key).message(), HasSubstr("--tls-key"));
  EXPECT_THAT(start("/nowhere", files_.key).message(), HasSubstr("--tls-cert /nowhere: can't be read"));
  EXPECT_THAT(start(files_.key, files_.key).message(), HasSubstr("--tls-cert"));
}

TEST_F(TlsTest, StreamsGoThroughTheGateway) {
  FakeInference router;
  auto gateway =
      Gateway::Start({.routers = {router.address()}, .security = {.cert = files_.cert, .key = files_.key}});
  ASSERT_TRUE(gateway.ok()) << gateway.status();
  TlsPeer peer((*gateway)->address(), Wish());
  ASSERT_TRUE(peer.connected());
  ASSERT_TRUE(peer.Send(Post("/v1/chat/completions", kHiStreamed, "Connection: close\r\n")));
  const std::string stream = peer.ReadToEnd();
  EXPECT_THAT(stream, HasSubstr("data: [DONE]\n\n"));
  EXPECT_TRUE(peer.ended_well());
}

TEST_F(TlsTest, WhoLeavesWhileThePromptWaitsCancelsTheCall) {
  FakeInference router({.chat = [](const v1::ChatRequest&) {
    return Script{.steps = {{.wait = absl::InfiniteDuration(), .event = {}}}};
  }});
  auto gateway =
      Gateway::Start({.routers = {router.address()}, .security = {.cert = files_.cert, .key = files_.key}});
  ASSERT_TRUE(gateway.ok()) << gateway.status();
  // By TLS's own words, and by closing the connection.
  for (int i = 1; i <= 2; ++i) {
    TlsPeer peer((*gateway)->address(), Wish());
    ASSERT_TRUE(peer.connected());
    ASSERT_TRUE(peer.Send(Post("/v1/chat/completions", kHiStreamed)));
    Await([&] { return router.chat_requests().size() == static_cast<size_t>(i); },
          "the request at the router");
    if (i == 1) {
      peer.Leave();
      EXPECT_TRUE(router.WaitForCancelled(i));
    }
  }
  EXPECT_TRUE(router.WaitForCancelled(2));
}

TEST_F(TlsTest, OnItsWayOutOpenAnswersEnd) {
  FakeInference router({.chat = [](const v1::ChatRequest&) {
    return AnswerWith({1, 2}, 4, absl::ZeroDuration(), /*gap=*/absl::InfiniteDuration());
  }});
  auto gateway =
      Gateway::Start({.routers = {router.address()}, .security = {.cert = files_.cert, .key = files_.key}});
  ASSERT_TRUE(gateway.ok()) << gateway.status();
  TlsPeer peer((*gateway)->address(), Wish());
  ASSERT_TRUE(peer.Send(Post("/v1/chat/completions", kHiStreamed)));
  EXPECT_THAT(peer.Receive().head, StartsWith("HTTP/1.1 200 "));
  gateway->reset();
  EXPECT_TRUE(router.WaitForCancelled(1));
}

}  // namespace
}  // namespace baton::gateway
