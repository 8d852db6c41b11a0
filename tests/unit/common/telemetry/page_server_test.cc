// PageServer's limits, one by one, each by a client that goes beyond it.
#include "common/telemetry/page_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <isa-l/igzip_lib.h>
#include <sys/resource.h>

#include <atomic>
#include <vector>

#include "common/telemetry/gzip.h"
#include "tests/descriptors.h"
#include "tests/patience.h"
#include "tests/unit/common/telemetry/http_peer.h"

namespace baton::telemetry {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

constexpr absl::Duration kShort = absl::Milliseconds(30);

class PageServerTest : public testing::Test {
 protected:
  std::unique_ptr<PageServer> Start(const PageServerOptions& options = {}) {
    auto server = PageServer::Start(options, [this] {
      ++pages_;
      return page_;
    });
    EXPECT_TRUE(server.ok()) << server.status();
    return *std::move(server);
  }

  std::string page_ = "the page\n";
  std::atomic<int> pages_ = 0;
};

TEST_F(PageServerTest, AWildcardIsOfBothFamilies) {
  for (const char* const everywhere : {"0.0.0.0:0", "[::]:0"}) {
    const auto server = Start({.listen = everywhere});
    HttpPeer peer(server->address());
    EXPECT_EQ(peer.Get().body, "the page\n") << everywhere;
    EXPECT_EQ(ListensOnIpv6(server->address()), HostHasIpv6()) << everywhere;
  }
  const auto server = Start({.listen = "127.0.0.1:0"});
  EXPECT_FALSE(ListensOnIpv6(server->address()));
}

TEST_F(PageServerTest, AnswersGetAndHeadAndNothingElse) {
  const auto server = Start();
  HttpPeer peer(server->address());
  ASSERT_TRUE(peer.Send("GET /metrics?match[]=up HTTP/1.1\r\nHost: test\r\n\r\n"));
  EXPECT_EQ(peer.Receive().body, "the page\n");
  ASSERT_TRUE(peer.Send("HEAD /metrics HTTP/1.1\r\nHost: test\r\n\r\n"));
  const HttpAnswer head = peer.Receive(/*head_only=*/true);
  EXPECT_EQ(head.status(), 200);
  EXPECT_THAT(head.head, HasSubstr("Content-Length: 9\r\n"));
  for (const char* other : {"/", "/metric", "/metrics/x", "http://test/metrics"}) {
    ASSERT_TRUE(peer.Send(std::string("GET ") + other + " HTTP/1.1\r\nHost: test\r\n\r\n"));
    EXPECT_EQ(peer.Receive().status(), 404)
        << other;  // on the same connection: no body of HEAD was in between
  }
  EXPECT_EQ(pages_, 2);
  for (const char* method : {"POST", "PUT", "DELETE", "OPTIONS", "TRACE", "CONNECT", "BREW"}) {
    HttpPeer stranger(server->address());
    ASSERT_TRUE(stranger.Send(std::string(method) + " /metrics HTTP/1.1\r\nHost: test\r\n\r\n"));
    const std::string answer = stranger.ReadToEnd();
    EXPECT_THAT(answer, HasSubstr(" 405 ")) << method;
    EXPECT_THAT(answer, HasSubstr("Allow: GET, HEAD\r\n")) << method;
    EXPECT_TRUE(stranger.at_end()) << method;
  }
  EXPECT_EQ(pages_, 2);
}

TEST_F(PageServerTest, KeepsAConnectionAsLongAsTheClientWants) {
  const auto server = Start();
  HttpPeer once(server->address());
  ASSERT_TRUE(once.Send("GET /metrics HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n"));
  EXPECT_THAT(once.ReadToEnd(), HasSubstr("the page\n"));
  EXPECT_TRUE(once.at_end());
  HttpPeer old(server->address());
  ASSERT_TRUE(old.Send("GET /metrics HTTP/1.0\r\n\r\n"));
  EXPECT_THAT(old.ReadToEnd(), StartsWith("HTTP/1.0 200 "));
  EXPECT_TRUE(old.at_end());
  HttpPeer pipelined(server->address());
  ASSERT_TRUE(
      pipelined.Send("GET /metrics HTTP/1.1\r\n\r\nHEAD /metrics HTTP/1.1\r\n\r\nGET /x HTTP/1.1\r\n\r\n"));
  EXPECT_EQ(pipelined.Receive().status(), 200);
  EXPECT_EQ(pipelined.Receive(/*head_only=*/true).status(), 200);
  EXPECT_EQ(pipelined.Receive().status(), 404);
}

TEST_F(PageServerTest, GarbageEndsItsOwnConnection) {
  const auto server = Start();
  HttpPeer scraper(server->address());
  EXPECT_EQ(scraper.Get().status(), 200);
  for (const std::string& garbage :
       {std::string("\0\0\0\0", 4), std::string("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11),
        std::string("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), std::string("GET /metrics\r\n\r\n"),
        std::string("GET /metrics HTTP/1.1\r\nno colon\r\n\r\n"), std::string("\r\n\r\n\r\n\r\n"),
        std::string("GET /metrics HTTP/1.1\r\nContent-Length: -1\r\n\r\n"),
        std::string(4096, '\xff') + "\r\n"}) {
    HttpPeer attacker(server->address());
    // Behind a proper request, so that the answer to that one is not lost.
    ASSERT_TRUE(attacker.Send("GET /metrics HTTP/1.1\r\nHost: test\r\n\r\n" + garbage + garbage));
    EXPECT_EQ(attacker.Receive().status(), 200);
    EXPECT_THAT(attacker.ReadToEnd(), StartsWith("HTTP/1.1 400 "));
    EXPECT_TRUE(attacker.at_end());
  }
  EXPECT_EQ(scraper.Get().status(), 200);
}

TEST_F(PageServerTest, TakesNoBody) {
  const auto server = Start();
  for (const std::string& body :
       {std::string("Content-Length: 33\r\n\r\nGET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"),
        std::string("Transfer-Encoding: chunked\r\n\r\n5\r\nGET /\r\n0\r\n\r\n")}) {
    HttpPeer attacker(server->address());
    ASSERT_TRUE(attacker.Send("GET /metrics HTTP/1.1\r\nHost: test\r\n" + body));
    EXPECT_THAT(attacker.ReadToEnd(), StartsWith("HTTP/1.1 413 "));
    EXPECT_TRUE(attacker.at_end());
  }
  EXPECT_EQ(pages_, 0) << "nothing in a body was taken for a request";
}

TEST_F(PageServerTest, BoundsTheHeader) {
  const auto server = Start({.max_header_bytes = 1024});
  for (const std::string start : {"GET /metrics HTTP/1.1\r\nX: ", "GET /", ""}) {
    HttpPeer attacker(server->address());
    attacker.Send(start + std::string(100'000, 'x'));  // the server may have hung up before the end
    EXPECT_THAT(attacker.ReadToEnd(), testing::AnyOf(HasSubstr(" 431 "), HasSubstr(" 400 "))) << start;
  }
  HttpPeer many(server->address());
  std::string fields = "GET /metrics HTTP/1.1\r\n";
  for (int i = 0; i < 500; ++i) fields += "A: b\r\n";
  many.Send(fields + "\r\n");
  EXPECT_THAT(many.ReadToEnd(), HasSubstr(" 431 "));
  HttpPeer scraper(server->address());
  EXPECT_EQ(scraper.Get().status(), 200);
}

TEST_F(PageServerTest, AHalfSentRequestIsGivenUp) {
  const auto server = Start({.request_timeout = kShort});
  HttpPeer silent(server->address());
  HttpPeer half(server->address());
  ASSERT_TRUE(half.Send("GET /metrics HTTP/1.1\r\nHost: te"));
  HttpPeer second_half(server->address());
  EXPECT_EQ(second_half.Get().status(), 200);
  ASSERT_TRUE(second_half.Send("GET /metrics HTTP/1.1\r\nHost: te"));
  for (HttpPeer* peer : {&silent, &half, &second_half}) {
    EXPECT_EQ(peer->ReadToEnd(), "");
    EXPECT_TRUE(peer->at_end());
  }
}

TEST_F(PageServerTest, TheLimitIsForTheWholeRequestNotForEachByte) {
  const auto server = Start({.request_timeout = kShort});
  HttpPeer slow(server->address());
  ASSERT_TRUE(slow.Send("GET /metrics HTTP/1.1\r\nX: "));
  // One byte a millisecond. If each byte bought time, the header's limit would come first, with an answer.
  while (!slow.Readable(1) && slow.Send("x")) {
  }
  EXPECT_EQ(slow.ReadToEnd(), "");
}

TEST_F(PageServerTest, AnIdleConnectionIsGivenUp) {
  const auto server = Start({.idle_timeout = kShort});
  HttpPeer peer(server->address());
  EXPECT_EQ(peer.Get().status(), 200);
  EXPECT_EQ(peer.ReadToEnd(), "");
  EXPECT_TRUE(peer.at_end());
}

TEST_F(PageServerTest, WhoReadsNothingKeepsNobodyWaiting) {
  page_ = std::string(32 << 20, 'x');  // more than the sockets hold
  const auto server = Start({.send_timeout = absl::Minutes(5)});
  std::vector<HttpPeer> attackers;
  for (int i = 0; i < 10; ++i) {
    ASSERT_TRUE(
        attackers.emplace_back(server->address()).Send("GET /metrics HTTP/1.1\r\nHost: test\r\n\r\n"));
  }
  HttpPeer scraper(server->address());
  EXPECT_EQ(scraper.Get().body.size(), page_.size());
}

TEST_F(PageServerTest, WhoReadsNothingIsGivenUp) {
  page_ = std::string(32 << 20, 'x');
  const auto server = Start({.send_timeout = kShort});
  HttpPeer attacker(server->address());
  ASSERT_TRUE(attacker.Send("GET /metrics HTTP/1.1\r\nHost: test\r\n\r\n"));
  ASSERT_TRUE(attacker.Readable(Scaled(20'000)));
  Await([&] { return server->connections() == 0; }, "the end of the connection");
  EXPECT_LT(attacker.ReadToEnd().size(), page_.size());
}

TEST_F(PageServerTest, TheConnectionThatWaitedLongestGivesWay) {
  const auto server = Start({.max_connections = 3});
  HttpPeer first(server->address());
  EXPECT_EQ(first.Get().status(), 200);
  HttpPeer second(server->address());
  EXPECT_EQ(second.Get().status(), 200);
  HttpPeer third(server->address());
  EXPECT_EQ(third.Get().status(), 200);
  // Its wait begins once more, so that the second's is the longest now.
  EXPECT_EQ(first.Get().status(), 200);
  HttpPeer fourth(server->address());
  EXPECT_EQ(fourth.Get().status(), 200);
  EXPECT_EQ(second.ReadToEnd(), "");
  EXPECT_TRUE(second.at_end());
  EXPECT_EQ(server->connections(), 3u);
  for (HttpPeer* peer : {&first, &third, &fourth}) EXPECT_EQ(peer->Get().status(), 200);
}

TEST_F(PageServerTest, IsThereAgainWhenDescriptorsAre) {
  if (kSanitizerNeedsDescriptors) GTEST_SKIP() << "the sanitizer itself needs a descriptor";
  const auto server = Start();
  HttpPeer idle(server->address());
  EXPECT_EQ(idle.Get().status(), 200);
  HttpPeer scraper;
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit none = before;
  none.rlim_cur = 0;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  scraper.Connect(server->address());
  // The server gives up its oldest connection: it has failed to accept.
  EXPECT_EQ(idle.ReadToEnd(), "");
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(scraper.Get().status(), 200);
}

TEST_F(PageServerTest, CompressesForThoseWhoAsk) {
  page_.clear();
  for (int i = 0; i < 5000; ++i) page_ += "baton_kv_blocks{state=\"held\"} " + std::to_string(i) + "\n";
  const auto server = Start();
  HttpPeer peer(server->address());
  ASSERT_TRUE(peer.Send("GET /metrics HTTP/1.1\r\nAccept-Encoding: br, gzip\r\n\r\n"));
  HttpAnswer answer = peer.Receive();
  EXPECT_THAT(answer.head, HasSubstr("Content-Encoding: gzip\r\n"));
  EXPECT_LT(answer.body.size(), page_.size() / 3);
  std::string plain(page_.size() + 1, '\0');
  inflate_state inflate;
  isal_inflate_init(&inflate);
  inflate.crc_flag = ISAL_GZIP;
  inflate.next_in = reinterpret_cast<uint8_t*>(answer.body.data());
  inflate.avail_in = static_cast<uint32_t>(answer.body.size());
  inflate.next_out = reinterpret_cast<uint8_t*>(plain.data());
  inflate.avail_out = static_cast<uint32_t>(plain.size());
  ASSERT_EQ(isal_inflate_stateless(&inflate), ISAL_DECOMP_OK);
  plain.resize(inflate.total_out);
  EXPECT_TRUE(plain == page_);
  EXPECT_THAT(peer.Get().head, Not(HasSubstr("Content-Encoding")));
}

TEST(GzipTest, TakesAnythingAndKnowsWhoWantsIt) {
  for (const size_t size : {size_t{0}, size_t{1}, size_t{70'000}}) {
    std::string noise(size, '\0');
    uint32_t state = 1;
    for (char& byte : noise) byte = static_cast<char>((state = state * 1664525 + 1013904223) >> 24);
    EXPECT_FALSE(Gzip(noise).empty()) << size;
  }
  for (const char* yes : {"gzip", "br,gzip", "deflate, gzip;q=0.5 , br", "gzip;q=1"}) {
    EXPECT_TRUE(AcceptsGzip(yes)) << yes;
  }
  for (const char* no : {"", "identity", "xgzip", "gzip;q=0", "br, gzip; q=0.0", ",,,"}) {
    EXPECT_FALSE(AcceptsGzip(no)) << no;
  }
}

}  // namespace
}  // namespace baton::telemetry
