// The HTTP server's limits, one by one, each by a client that goes beyond it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "gateway/http/server.h"
#include "tests/http2_frames.h"
#include "tests/patience.h"
#include "tests/unit/common/telemetry/http_peer.h"

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
        "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3, 3", "POST / HTTP/1.0\r\nTransfer-Encoding: chunked",
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

TEST(HttpServerTest, ATargetMayBeAWholeUrl) {
  const auto server = Start();
  for (const auto& [target, path] :
       {std::pair("http://h:80/x/y?q", "/x/y"), {"http://h", "/"}, {"/a://b", "/a://b"}}) {
    HttpPeer peer(server->address());
    ASSERT_TRUE(peer.Send(std::string("GET ") + target + " HTTP/1.1\r\nHost: h\r\n\r\n"));
    EXPECT_EQ(peer.Receive().body, std::string("GET ") + path + " ");
  }
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

constexpr char kChunked[] = "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n";

TEST(HttpServerTest, AFieldBehindABodyThatIsTooLongEndsItsClientAlone) {
  const auto server = Start();
  for (const std::string& rest :
       {"0\r\nA: " + std::string(70'000, 'b'), "0\r\n" + std::string(70'000, 'n') + ": b",
        "1;a=" + std::string(70'000, 'e'), std::string(70'000, '0') + "1"}) {
    HttpPeer peer(server->address());
    (void)peer.Send(kChunked + rest + "\r\n\r\n");  // it may be refused before it is sent
    EXPECT_THAT(peer.ReadToEnd(), StartsWith("HTTP/1.1 431 ")) << rest.substr(0, 8);
  }
  HttpPeer other(server->address());
  ASSERT_TRUE(other.Send(Post("one")));
  EXPECT_EQ(other.Receive().body, "POST /x one");
}

// Small lines without end, each of which fits.
TEST(HttpServerTest, WhatLiesBesideABodyCountsAgainstItsLimit) {
  const auto server = Start({.max_header_bytes = 1000, .max_body_bytes = 10'000});
  std::string extensions = kChunked, fields = kChunked + std::string("0\r\n");
  for (int i = 0; i < 100; ++i) extensions += "1;a=" + std::string(500, 'e') + "\r\nb\r\n";
  for (int i = 0; i < 50'000; ++i) fields += "a:b\r\n";
  for (const auto& [sent, status] : {std::pair(extensions, "HTTP/1.1 413 "), {fields, "HTTP/1.1 431 "}}) {
    HttpPeer peer(server->address());
    (void)peer.Send(sent);
    EXPECT_THAT(peer.ReadToEnd(), StartsWith(status));
  }
}

TEST(HttpServerTest, FieldsBehindABodyAreNoHeaders) {
  const auto server = Start({}, [](const std::shared_ptr<Exchange>& exchange) {
    const Request& request = exchange->request();
    exchange->Answer({.body = request.body + "|" + std::string(request.Header("x-api-key")) + "|" +
                              std::string(request.Header("x-other"))});
  });
  HttpPeer peer(server->address());
  ASSERT_TRUE(
      peer.Send("POST / HTTP/1.1\r\nHost: h\r\nX-Other: 1\r\nTransfer-Encoding: chunked\r\n\r\n"
                "3\r\nabc\r\n0\r\nX-Api-Key: k\r\nX-Other: 2\r\n\r\n"));
  EXPECT_EQ(peer.Receive().body, "abc||1");
  ASSERT_TRUE(peer.Send(Post("next")));
  EXPECT_EQ(peer.Receive().body, "next||");
}

TEST(HttpServerTest, AHandlerThatThrowsEndsNobodyElse) {
  const auto server = Start({}, [](const std::shared_ptr<Exchange>& exchange) {
    if (exchange->request().body == "throw") throw std::length_error("too long");
    Echo(exchange);
  });
  HttpPeer thrown(server->address());
  ASSERT_TRUE(thrown.Send(Post("throw")));
  EXPECT_EQ(thrown.ReadToEnd(), "");
  HttpPeer other(server->address());
  ASSERT_TRUE(other.Send(Post("one")));
  EXPECT_EQ(other.Receive().body, "POST /x one");
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
    absl::Mutex mutex;
    std::vector<std::shared_ptr<Exchange>> held;
    const auto server = Start(options, [&](std::shared_ptr<Exchange> exchange) {
      if (exchange->request().body != "hold") return Echo(exchange);
      absl::MutexLock lock(&mutex);
      held.push_back(std::move(exchange));
    });
    std::vector<HttpPeer> peers;
    for (size_t i = 0; i < 2; ++i) {
      peers.emplace_back(server->address());
      ASSERT_TRUE(peers.back().Send(Post("hold")));
      Await(
          [&] {
            absl::MutexLock lock(&mutex);
            return held.size() == i + 1;
          },
          "a request");
    }
    HttpPeer third(server->address());
    EXPECT_EQ(third.ReadToEnd(), "") << "both are served, and stay";
    EXPECT_EQ(server->counts().refused_connections, 1u);
    EXPECT_EQ(server->counts().connections, 2u);
    peers.pop_back();
    Await([&] { return server->counts().connections <= 1; }, "the end of a connection");
    HttpPeer fourth(server->address());
    ASSERT_TRUE(fourth.Send(Post("a")));
    EXPECT_EQ(fourth.Receive().status(), 200);
    held.front()->Answer({.body = "held"});
    EXPECT_EQ(peers.front().Receive().body, "held");
  }
}

// A client that has nothing to say keeps nobody out: silent, in the middle of a request, resting.
TEST(HttpServerTest, WhereThereIsNoRoomTheClientThatIsWaitedForLongestGivesWay) {
  for (const ServerOptions& options :
       {ServerOptions{.max_connections = 3}, ServerOptions{.max_connections_per_address = 3}}) {
    const auto server = Start(options);
    HttpPeer silent(server->address());
    Await([&] { return server->counts().connections == 1; }, "a connection");
    HttpPeer half(server->address());
    ASSERT_TRUE(half.Send(Post("half").substr(0, 54)));
    Await([&] { return server->counts().held_bytes > 0; }, "half of a request");
    HttpPeer resting(server->address());
    ASSERT_TRUE(resting.Send(Post("rest")));
    EXPECT_EQ(resting.Receive().body, "POST /x rest");
    std::vector<HttpPeer> others;
    for (HttpPeer* const gives_way : {&silent, &half, &resting}) {
      others.emplace_back(server->address());
      ASSERT_TRUE(others.back().Send(Post("other")));
      EXPECT_EQ(others.back().Receive().body, "POST /x other");
      EXPECT_EQ(gives_way->ReadToEnd(), "");
    }
    EXPECT_EQ(server->counts().refused_connections, 3u);
  }
}

// As a host over HTTP/1.1: by it a page is known as the server's own.
TEST(HttpServerTest, AnAuthorityIsTheHost) {
  std::string host;
  absl::Notification asked;
  const auto server = Start({}, [&](std::shared_ptr<Exchange> exchange) {
    host = exchange->request().Header("host");
    exchange->Answer({});
    asked.Notify();
  });
  const std::string head = http2::Literal(":method", "GET") + http2::Literal(":scheme", "http") +
                           http2::Literal(":path", "/x") + http2::Literal(":authority", "gpu:8000");
  HttpPeer peer(server->address());
  ASSERT_TRUE(
      peer.Send(std::string(http2::kPreface) + http2::Frame(4, 0, 0, "") + http2::Frame(1, 4 | 1, 1, head)));
  ASSERT_TRUE(asked.WaitForNotificationWithTimeout(Scaled(absl::Seconds(10))));
  EXPECT_EQ(host, "gpu:8000");
}

TEST(HttpServerTest, StreamsThatAreAnsweredGiveWayToNobody) {
  const std::string head = http2::Literal(":method", "POST") + http2::Literal(":scheme", "http") +
                           http2::Literal(":path", "/x") + http2::Literal(":authority", "h");
  std::shared_ptr<Exchange> held;
  const auto holds = Start({.max_connections = 1}, [&](std::shared_ptr<Exchange> exchange) {
    exchange->Begin({});
    held = std::move(exchange);
  });
  HttpPeer half(holds->address());
  ASSERT_TRUE(
      half.Send(std::string(http2::kPreface) + http2::Frame(4, 0, 0, "") + http2::Frame(1, 4, 1, head)));
  ASSERT_TRUE(half.Readable(Scaled(10'000)));
  Await([&] { return holds->counts().streams == 1; }, "a stream without its body");
  HttpPeer asks(holds->address());
  ASSERT_TRUE(
      asks.Send(std::string(http2::kPreface) + http2::Frame(4, 0, 0, "") + http2::Frame(1, 4 | 1, 1, head)));
  half.ReadToEnd();
  EXPECT_TRUE(half.at_end()) << "its request is not whole";
  Await([&] { return holds->counts().streams == 1 && holds->counts().connections == 1; }, "a stream");
  ASSERT_TRUE(asks.Readable(Scaled(10'000)));
  HttpPeer refused(holds->address());
  EXPECT_EQ(refused.ReadToEnd(), "");
}

// Half of all that clients may have the process hold is for requests that have not come whole, and an eighth
// for those of one address.
TEST(HttpServerTest, RequestsThatHaveNotComeWholeAreBoundedByAddress) {
  absl::Mutex mutex;
  std::vector<std::shared_ptr<Exchange>> held;
  const auto server = Start({.max_held_bytes = 800'000}, [&](std::shared_ptr<Exchange> exchange) {
    if (exchange->request().body.size() < 1000) return Echo(exchange);
    absl::MutexLock lock(&mutex);
    held.push_back(std::move(exchange));
  });
  // Whole ones count in all alone.
  std::vector<HttpPeer> whole;
  for (size_t i = 1; i <= 4; ++i) {
    whole.emplace_back(server->address());
    ASSERT_TRUE(whole.back().Send(Post(std::string(90'000, 'w'))));
    Await([&] { return server->counts().held_bytes == i * 90'000; }, "a whole request");
  }
  const std::string most = Post(std::string(90'000, 'u'));
  const std::string part = most.substr(0, most.size() - 1);
  HttpPeer first(server->address()), second(server->address());
  ASSERT_TRUE(first.Send(part));
  Await([&] { return server->counts().held_bytes == 5 * 90'000 - 1; }, "a part of a request");
  (void)second.Send(part);
  EXPECT_THAT(second.ReadToEnd(), StartsWith("HTTP/1.1 503 "));
  HttpPeer other(server->address(), 2);
  ASSERT_TRUE(other.Send(part));
  Await([&] { return server->counts().held_bytes == 6 * 90'000 - 2; }, "another address's part");
  HttpPeer small(server->address());
  ASSERT_TRUE(small.Send(Post("small")));
  EXPECT_EQ(small.Receive().body, "POST /x small");
  ASSERT_TRUE(first.Send("u"));
  Await([&] { return server->counts().held_bytes == 6 * 90'000 - 1; }, "the rest of it");
  {
    absl::MutexLock lock(&mutex);
    for (const auto& exchange : std::exchange(held, {})) exchange->Answer({});
  }
  EXPECT_EQ(first.Receive().status(), 200);
}

// The observer hears of what is held while nothing that is counted happens.
TEST(HttpServerTest, WhatIsHeldIsTold) {
  std::shared_ptr<Exchange> held;
  std::atomic<bool> room = true;
  std::atomic<size_t> told = 0;
  const auto server = Server::Start(
      {.max_held_bytes = 8000},
      [&](std::shared_ptr<Exchange> exchange) {
        held = std::move(exchange);
        held->Post([&] { room = held->Hold(5000) && !held->Hold(8001); });
      },
      nullptr, [&told](const ServerCounts& counts) { told = counts.held_bytes; });
  ASSERT_TRUE(server.ok()) << server.status();
  HttpPeer peer((*server)->address());
  ASSERT_TRUE(peer.Send(Post("abc")));
  ASSERT_TRUE(Await([&] { return told == 5003; }, "the body and what is held for the answer"));
  EXPECT_TRUE(room);
  held->Answer({});
  held = nullptr;
  ASSERT_TRUE(Await([&] { return told == 0; }, "nothing"));
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

// Whatever it sent meanwhile: nothing, a part of its next request, several of them, more than is read ahead.
TEST(HttpServerTest, AClientThatLeavesIsSeenBeforeItsAnswer) {
  std::string several;
  for (int i = 0; i < 20; ++i) several += Post("more");
  for (const std::string& more : {std::string(), std::string("P"), several, std::string(200'000, 'P')}) {
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
      ASSERT_TRUE(peer.Send(more));
    }
    EXPECT_TRUE(gone.WaitForNotificationWithTimeout(Scaled(absl::Seconds(20)))) << more.size();
    held->Answer({});  // too late, and harmless
  }
}

TEST(HttpServerTest, RequestsThatComeDuringAnAnswerAreAnsweredInTurn) {
  for (const size_t next : {2, 200}) {
    absl::Notification asked;
    std::shared_ptr<Exchange> held;
    const auto server = Start({.max_header_bytes = 1000}, [&](std::shared_ptr<Exchange> exchange) {
      if (exchange->request().body != "first") return Echo(exchange);
      held = exchange;
      asked.Notify();
    });
    HttpPeer peer(server->address());
    ASSERT_TRUE(peer.Send(Post("first")));
    asked.WaitForNotification();
    std::string more;
    for (size_t i = 0; i < next; ++i) more += Post("next");
    ASSERT_TRUE(peer.Send(more));
    std::exchange(held, nullptr)->Answer({.body = "first"});
    EXPECT_EQ(peer.Receive().body, "first");
    size_t answered = 0;
    while (answered < next && peer.Receive().body == "POST /x next") ++answered;
    EXPECT_TRUE(answered == next || (next == 200 && peer.at_end())) << answered << " of " << next;
  }
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

TEST(HttpServerTest, AWildcardIsOfBothFamilies) {
  for (const char* const everywhere : {"0.0.0.0:0", "[::]:0"}) {
    auto server = Server::Start({.listen = everywhere}, [](std::shared_ptr<Exchange> exchange) {
      exchange->Answer({.body = exchange->request().address});
    });
    ASSERT_TRUE(server.ok()) << server.status();
    HttpPeer peer((*server)->address());
    ASSERT_TRUE(peer.Send("GET / HTTP/1.1\r\nHost: h\r\n\r\n"));
    EXPECT_EQ(peer.Receive().body, "127.0.0.1") << everywhere;
    EXPECT_EQ(telemetry::ListensOnIpv6((*server)->address()), telemetry::HostHasIpv6()) << everywhere;
  }
}

TEST(HttpServerTest, AnAddressThatIsNoneOrTaken) {
  for (const char* address : {"nowhere", "127.0.0.1:", "127.0.0.1:65536", "unix:/tmp/socket"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(Server::Start({.listen = address}, Echo).status())) << address;
  }
  const auto server = Start();
  EXPECT_TRUE(absl::IsUnavailable(Server::Start({.listen = server->address()}, Echo).status()));
}

}  // namespace
}  // namespace baton::gateway::http
