// The HTTP server's limits, one by one, each by a client that goes beyond it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <vector>

#include "absl/synchronization/notification.h"
#include "gateway/http/server.h"
#include "tests/patience.h"
#include "tests/unit/telemetry/http_peer.h"

namespace baton::gateway::http {
namespace {

using telemetry::HttpAnswer;
using telemetry::HttpPeer;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr absl::Duration kShort = absl::Milliseconds(50);

// Answers with method, path and body.
void Echo(const std::shared_ptr<Exchange>& exchange) {
  const Request& request = exchange->request();
  exchange->Answer(
      {.content_type = "text/plain", .body = request.method + " " + request.path + " " + request.body});
}

std::unique_ptr<Server> Start(const ServerOptions& options = {}, Handler handler = Echo) {
  auto server = Server::Start(options, std::move(handler));
  EXPECT_TRUE(server.ok()) << server.status();
  return *std::move(server);
}

std::string Post(const std::string& body, const std::string& more = "") {
  return "POST /x?q=1 HTTP/1.1\r\nHost: h\r\n" + more + "Content-Length: " + std::to_string(body.size()) +
         "\r\n\r\n" + body;
}

TEST(HttpServerTest, SeveralRequestsOnOneConnection) {
  const auto server = Start();
  HttpPeer peer(server->address());
  ASSERT_TRUE(peer.Send(Post("one") + Post("two")));
  EXPECT_EQ(peer.Receive().body, "POST /x one");
  EXPECT_EQ(peer.Receive().body, "POST /x two");
  ASSERT_TRUE(peer.Send("GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"));
  EXPECT_THAT(peer.ReadToEnd(), testing::EndsWith("GET / "));
  EXPECT_TRUE(peer.at_end());
}

TEST(HttpServerTest, ABodyInChunks) {
  const auto server = Start();
  HttpPeer peer(server->address());
  ASSERT_TRUE(peer.Send(
      "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"));
  EXPECT_EQ(peer.Receive().body, "POST / abcde");
}

TEST(HttpServerTest, WhoWaitsForTheWordToGoOnGetsIt) {
  const auto server = Start();
  HttpPeer peer(server->address());
  ASSERT_TRUE(peer.Send("POST / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n"));
  EXPECT_THAT(peer.Receive(/*head_only=*/true).head, StartsWith("HTTP/1.1 100 "));
  ASSERT_TRUE(peer.Send("ab"));
  EXPECT_EQ(peer.Receive().body, "POST / ab");
}

TEST(HttpServerTest, WhatTwoServersCouldReadInTwoWaysIsRefused) {
  const auto server = Start();
  const std::string rest = "\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: h\r\n\r\n";
  for (const std::string head :
       {"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nContent-Length: 4",
        "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3, 4",
        "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nTransfer-Encoding: chunked",
        "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nContent-Length: 3",
        "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: identity",
        "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: xchunked",
        "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip, chunked",
        "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: -3",
        "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: +3",
        "POST / HTTP/1.1\r\nHost: h\r\nContent-Length : 3", "POST / HTTP/1.1\r\nContent-Length: 0",
        "POST / HTTP/1.1\r\nHost: a\r\nHost: b", "POST / HTTP/1.1\r\nHost: h\r\nA\rB: c",
        "POST / HTTP/9.1\r\nHost: h", "nonsense", "POST\t/ HTTP/1.1\r\nHost: h"}) {
    HttpPeer peer(server->address());
    ASSERT_TRUE(peer.Send(head + rest));
    const std::string answer = peer.ReadToEnd();
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 400 ")) << head;
    EXPECT_EQ(answer.find("smuggled"), std::string::npos) << head;
    EXPECT_EQ(answer.find("HTTP/1.1 ", 1), std::string::npos) << "two answers to " << head;
  }
  HttpPeer chunk(server->address());
  ASSERT_TRUE(chunk.Send("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nabc\r\n"));
  EXPECT_THAT(chunk.ReadToEnd(), StartsWith("HTTP/1.1 400 "));
  EXPECT_GE(server->counts().bad_requests, 17u);
}

TEST(HttpServerTest, HeadersAndBodiesAreBounded) {
  const auto server = Start({.max_header_bytes = 1000, .max_body_bytes = 1000});
  HttpPeer header(server->address());
  ASSERT_TRUE(header.Send("GET / HTTP/1.1\r\nHost: h\r\nA: " + std::string(2000, 'a') + "\r\n\r\n"));
  EXPECT_THAT(header.ReadToEnd(), StartsWith("HTTP/1.1 431 "));
  HttpPeer told(server->address());
  ASSERT_TRUE(told.Send(Post(std::string(1001, 'a'))));
  EXPECT_THAT(told.ReadToEnd(), StartsWith("HTTP/1.1 413 "));
  HttpPeer chunks(server->address());
  ASSERT_TRUE(chunks.Send("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n7d0\r\n" +
                          std::string(2000, 'a')));
  EXPECT_THAT(chunks.ReadToEnd(), StartsWith("HTTP/1.1 413 "));
  HttpPeer fits(server->address());
  ASSERT_TRUE(fits.Send(Post(std::string(1000, 'a'))));
  EXPECT_EQ(fits.Receive().status(), 200);
}

TEST(HttpServerTest, WhoSendsSlowlyIsGivenUpAndKeepsNobodyWaiting) {
  const auto header = Start({.header_timeout = kShort});
  HttpPeer nothing(header->address()), part(header->address());
  part.Send("GET / HT");
  const auto body = Start({.body_timeout = kShort});
  HttpPeer half(body->address()), other(body->address());
  ASSERT_TRUE(half.Send("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 100\r\n\r\nabc"));
  const auto idle = Start({.idle_timeout = kShort});
  HttpPeer answered(idle->address());
  ASSERT_TRUE(answered.Send(Post("a")));
  EXPECT_EQ(answered.Receive().status(), 200);
  for (HttpPeer* const peer : {&nothing, &part, &half, &answered}) EXPECT_EQ(peer->ReadToEnd(), "");
  ASSERT_TRUE(other.Send("GET / HTTP/1.1\r\nHost: h\r\n\r\n"));
  EXPECT_EQ(other.Receive().body, "GET / ");
}

TEST(HttpServerTest, ConnectionsAreBoundedInAllAndByAddress) {
  for (const ServerOptions& options :
       {ServerOptions{.max_connections = 2}, ServerOptions{.max_connections_per_address = 2}}) {
    const auto server = Start(options);
    std::vector<HttpPeer> peers;
    for (int i = 0; i < 2; ++i) {
      peers.emplace_back(server->address());
      ASSERT_TRUE(peers.back().Send(Post("a")));
      EXPECT_EQ(peers.back().Receive().status(), 200);
    }
    HttpPeer third(server->address());
    EXPECT_EQ(third.ReadToEnd(), "");
    EXPECT_EQ(server->counts().refused_connections, 1u);
    EXPECT_EQ(server->counts().connections, 2u);
    peers.pop_back();
    Await([&] { return server->counts().connections <= 1; }, "the end of a connection");
    HttpPeer fourth(server->address());
    ASSERT_TRUE(fourth.Send(Post("a")));
    EXPECT_EQ(fourth.Receive().status(), 200);
  }
}

TEST(HttpServerTest, AStreamGoesOnAsFastAsItsClient) {
  // 64 pieces of 1 MiB: more than all buffers of a loopback connection.
  std::atomic<int> written = 0;
  const std::string piece(size_t{1} << 20, 'a');
  std::function<void(std::shared_ptr<Exchange>)> next = [&](std::shared_ptr<Exchange> exchange) {
    if (++written == 64) return exchange->End();
    exchange->Write(piece, [&next, exchange] { next(exchange); });
  };
  const auto server =
      Start({.send_timeout = Scaled(absl::Seconds(60))}, [&](std::shared_ptr<Exchange> exchange) {
        exchange->Begin({.content_type = "text/plain"});
        next(exchange);
      });
  HttpPeer peer(server->address());
  ASSERT_TRUE(peer.Send("GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"));
  ASSERT_TRUE(peer.Readable(Scaled(10'000)));
  EXPECT_LT(written, 60) << "it was written into memory";
  const std::string answer = peer.ReadToEnd();
  EXPECT_EQ(written, 64);
  EXPECT_THAT(answer, testing::EndsWith("\r\n0\r\n\r\n"));
}

TEST(HttpServerTest, WhoReadsNothingIsGivenUp) {
  absl::Notification gone;
  std::shared_ptr<Exchange> held;
  const auto server = Start({.send_timeout = kShort}, [&](std::shared_ptr<Exchange> exchange) {
    held = exchange;
    exchange->OnGone([&gone] { gone.Notify(); });
    exchange->Begin({});
    exchange->Write(std::string(size_t{64} << 20, 'a'), [] { ADD_FAILURE() << "nobody took it"; });
  });
  HttpPeer peer(server->address());
  ASSERT_TRUE(peer.Send("GET / HTTP/1.1\r\nHost: h\r\n\r\n"));
  EXPECT_TRUE(gone.WaitForNotificationWithTimeout(Scaled(absl::Seconds(20))));
}

TEST(HttpServerTest, AClientThatLeavesIsSeenBeforeItsAnswer) {
  absl::Notification asked, gone;
  std::shared_ptr<Exchange> held;
  const auto server = Start({}, [&](std::shared_ptr<Exchange> exchange) {
    held = exchange;
    exchange->OnGone([&gone] { gone.Notify(); });
    asked.Notify();
  });
  {
    HttpPeer peer(server->address());
    ASSERT_TRUE(peer.Send("GET / HTTP/1.1\r\nHost: h\r\n\r\n"));
    asked.WaitForNotification();
  }
  EXPECT_TRUE(gone.WaitForNotificationWithTimeout(Scaled(absl::Seconds(20))));
  held->Answer({});  // too late, and harmless
}

TEST(HttpServerTest, AHandlerThatLetsGoClosesTheConnection) {
  const auto server = Start({}, [](const std::shared_ptr<Exchange>&) {});
  HttpPeer peer(server->address());
  ASSERT_TRUE(peer.Send("GET / HTTP/1.1\r\nHost: h\r\n\r\n"));
  EXPECT_EQ(peer.ReadToEnd(), "");
}

TEST(HttpServerTest, AnswersMayEndBeforeTheServerDoes) {
  absl::Notification asked;
  std::shared_ptr<Exchange> held;
  auto server = Start({}, [&](std::shared_ptr<Exchange> exchange) {
    held = exchange;
    asked.Notify();
  });
  HttpPeer peer(server->address()), idle(server->address());
  ASSERT_TRUE(peer.Send("GET / HTTP/1.1\r\nHost: h\r\n\r\n"));
  asked.WaitForNotification();
  std::thread answer([&] { held->Answer({.body = "late"}); });
  server->Stop(Scaled(absl::Seconds(20)));
  answer.join();
  EXPECT_THAT(peer.ReadToEnd(), testing::EndsWith("late"));
  EXPECT_EQ(idle.ReadToEnd(), "");
  server.reset();
  held->After(1, [] { ADD_FAILURE() << "there is no server"; });
  held.reset();
}

TEST(HttpServerTest, OldClientsGetNoChunks) {
  const auto server = Start({}, [](std::shared_ptr<Exchange> exchange) {
    exchange->Begin({.body = "a"});
    exchange->Write("b", nullptr);
    exchange->End();
  });
  HttpPeer peer(server->address());
  ASSERT_TRUE(peer.Send("GET / HTTP/1.0\r\n\r\n"));
  const std::string answer = peer.ReadToEnd();
  EXPECT_THAT(answer, testing::EndsWith("\r\n\r\nab"));
  EXPECT_EQ(answer.find("chunked"), std::string::npos);
}

TEST(HttpServerTest, AnAddressThatIsNoneOrTaken) {
  EXPECT_TRUE(absl::IsInvalidArgument(Server::Start({.listen = "nowhere"}, Echo).status()));
  const auto server = Start();
  EXPECT_TRUE(absl::IsUnavailable(Server::Start({.listen = server->address()}, Echo).status()));
}

}  // namespace
}  // namespace baton::gateway::http
