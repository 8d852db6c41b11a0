// The metrics page among clients that mean it ill, or nothing at all: whoever asks properly is answered.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <filesystem>
#include <iterator>
#include <vector>

#include "common/telemetry/metrics.h"
#include "tests/patience.h"
#include "tests/unit/common/telemetry/http_peer.h"

namespace baton::telemetry {
namespace {

using testing::HasSubstr;
using testing::Not;

class MetricsServerTest : public testing::Test {
 protected:
  void SetUp() override {
    metrics_.Counter("baton_test_total", "Of this test").Increment(7);
    auto started = MetricsServer::Start("127.0.0.1:0", metrics_);
    ASSERT_TRUE(started.ok()) << started.status();
    server_ = *std::move(started);
  }

  // A scraper gets a page on a connection of its own.
  void ExpectAPage() {
    HttpPeer scraper(server_->address());
    const HttpAnswer answer = scraper.Get();
    EXPECT_EQ(answer.status(), 200);
    EXPECT_THAT(answer.body, HasSubstr("baton_test_total 7\n"));
  }

  Metrics metrics_;
  std::unique_ptr<MetricsServer> server_;
};

TEST_F(MetricsServerTest, ShowsTheRegistryAndTheProcess) {
  HttpPeer scraper(server_->address());
  for (int scrape = 0; scrape < 3; ++scrape) {  // on one connection
    const HttpAnswer answer = scraper.Get();
    EXPECT_EQ(answer.status(), 200);
    EXPECT_THAT(answer.head, HasSubstr("Content-Type: text/plain; charset=utf-8\r\n"));
    EXPECT_THAT(answer.body, HasSubstr("# HELP baton_test_total Of this test\n"));
    EXPECT_THAT(answer.body, HasSubstr("baton_build_info"));
    EXPECT_THAT(answer.body, Not(HasSubstr("baton_tls_certificate"))) << "without TLS";
  }
}

TEST_F(MetricsServerTest, ShowsTheEndOfTheCertificate) {
  const auto server = MetricsServer::Start("127.0.0.1:0", metrics_, "/nowhere/certificate.pem");
  ASSERT_TRUE(server.ok()) << server.status();
  EXPECT_THAT(HttpPeer((*server)->address()).Get().body,
              HasSubstr("baton_tls_certificate_expiry_timestamp_seconds 0\n"));
}

TEST_F(MetricsServerTest, HalfSentRequestsBlindNobody) {
  std::vector<HttpPeer> attackers;
  for (int i = 0; i < 40; ++i) {
    ASSERT_TRUE(attackers.emplace_back(server_->address()).Send("GET /metrics HTTP/1.1\r\nHost: te"));
  }
  ExpectAPage();
}

TEST_F(MetricsServerTest, TwoHundredIdleConnectionsBlindNobody) {
  std::vector<HttpPeer> attackers;
  for (int i = 0; i < 200; ++i) attackers.emplace_back(server_->address());
  ExpectAPage();
  // As many that have been answered once and stay.
  std::vector<HttpPeer> idle;
  for (int i = 0; i < 200; ++i) EXPECT_EQ(idle.emplace_back(server_->address()).Get().status(), 200);
  ExpectAPage();
}

TEST_F(MetricsServerTest, SlowSendersBlindNobody) {
  std::vector<HttpPeer> attackers;
  for (int i = 0; i < 40; ++i) attackers.emplace_back(server_->address());
  const std::string_view request = "GET /metrics HTTP/1.1\r\nHost: test\r\nX: ";
  for (const char& byte : request) {
    for (HttpPeer& attacker : attackers) ASSERT_TRUE(attacker.Send({&byte, 1}));
    if (&byte == &request[request.size() / 2]) ExpectAPage();
  }
  ExpectAPage();
}

TEST_F(MetricsServerTest, ItsEndWaitsForNoClient) {
  HttpPeer scraper(server_->address());
  EXPECT_EQ(scraper.Get().status(), 200);
  HttpPeer half(server_->address());
  ASSERT_TRUE(half.Send("GET /metrics HT"));
  HttpPeer silent(server_->address());
  // Threads that poll and sleep give up the processor again and again; to wait for a thread's end takes a few
  // times.
  rusage before = {};
  ASSERT_EQ(getrusage(RUSAGE_THREAD, &before), 0);
  server_.reset();
  rusage after = {};
  ASSERT_EQ(getrusage(RUSAGE_THREAD, &after), 0);
  EXPECT_LE(after.ru_nvcsw - before.ru_nvcsw, 20);
  EXPECT_EQ(scraper.ReadToEnd(), "");
  EXPECT_TRUE(scraper.at_end());
  half.ReadToEnd();
  silent.ReadToEnd();
}

TEST_F(MetricsServerTest, LeavesNoThreadBehind) {
  const auto threads = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/task"), {});
  };
  const auto with_one = threads();
  auto second = MetricsServer::Start("127.0.0.1:0", metrics_);
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ(threads(), with_one + 1);
  HttpPeer client((*second)->address());
  EXPECT_EQ(client.Get().status(), 200);
  second->reset();
  // The kernel strikes a thread off its list a moment after others may know that it has ended.
  Await([&] { return threads() == with_one; }, "the end of the server's thread");
}

TEST_F(MetricsServerTest, ATakenPortIsAnError) {
  const auto second = MetricsServer::Start(server_->address(), metrics_);
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(second.status().message()),
              HasSubstr("metrics: can't listen on " + server_->address()));
}

TEST(MetricsServerAddressTest, MustBeHostAndPort) {
  const Metrics metrics;
  for (const char* address :
       {"", "9470", "127.0.0.1:", "localhost", "127.0.0.1:http", "127.0.0.1:70000", "127.0.0.1:-1"}) {
    EXPECT_EQ(MetricsServer::Start(address, metrics).status().code(), absl::StatusCode::kInvalidArgument)
        << address;
  }
  const absl::Status elsewhere = MetricsServer::Start("192.0.2.1:0", metrics).status();
  EXPECT_EQ(elsewhere.code(), absl::StatusCode::kUnavailable) << "not an address of this machine";
  const auto any = MetricsServer::Start("[::1]:0", metrics);
  if (any.ok()) {  // a machine may lack IPv6
    EXPECT_THAT((*any)->address(), testing::StartsWith("[::1]:"));
  }
}

}  // namespace
}  // namespace baton::telemetry
