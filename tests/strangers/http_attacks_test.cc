// Attacks of strangers on the gateway by HTTP/1.1: what lies beside and behind a body, bodies that stop
// before their end, answers that nobody takes, keys that no router would take.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <tuple>
#include <vector>

#include "tests/strangers/deployment.h"
#include "tests/strangers/raw_client.h"

namespace baton::strangers {
namespace {

class HttpAttacksTest : public testing::TestWithParam<bool> {
 protected:
  // Others are served, and memory and descriptors come back.
  void Withstands(const std::string& name, int64_t height_allowed, const std::function<void()>& attack) {
    const Victim victim = deployment_.gateway();
    const int64_t descriptors = DescriptorsOf(victim.pid);
    Withstand(victim, name, height_allowed, attack);
    Await([&] { return DescriptorsOf(victim.pid) <= descriptors; },
          [&] { return fmt::format("{} descriptors, not {}", descriptors, DescriptorsOf(victim.pid)); });
  }
  RawClient Client(uint32_t from = 2) { return RawClient(deployment_.gateway().address, GetParam(), from); }

  Deployment deployment_{GetParam()};
};
INSTANTIATE_TEST_SUITE_P(HttpAttacksTest, HttpAttacksTest, testing::Bool(),
                         [](const auto& info) { return info.param ? "TlsAndKeys" : "Plain"; });

constexpr char kChunked[] = "POST /v1/models HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n";

TEST_P(HttpAttacksTest, WhatLiesBesideAndBehindABody) {
  std::string fields, sizes;
  while (fields.size() < 64'000) fields += "a:b\r\n";
  while (sizes.size() < 64'000) sizes += "1;" + std::string(1000, 'e') + "\r\nx\r\n";
  for (const auto& [name, begin, more] : {std::tuple("trailers without end", "0\r\n", fields),
                                          {"one long trailer", "0\r\na: ", std::string(64'000, 'b')},
                                          {"an endless extension", "1;a=", std::string(64'000, 'e')},
                                          {"many extensions", "", sizes}}) {
    Withstands(name, 8 * kMiB, [&, begin = begin, more = more] {
      for (int round = 0; round < 5; ++round) {
        RawClient client = Client();
        bool cut = !client.Send(kChunked) || !client.Send(begin);
        // As much as a gateway without limits would keep for seconds.
        for (int i = 0; i < 1000 && !cut; ++i) cut = !client.Send(more);
        EXPECT_TRUE(cut || client.AwaitClose());
      }
    });
  }
}

// Before any key is asked for: an eighth of 512 MiB for one address.
TEST_P(HttpAttacksTest, BodiesThatStopBeforeTheirEnd) {
  Withstands("bodies that stop", 256 * kMiB, [&] {
    const std::string body(4 << 20, ' ');
    std::vector<RawClient> held;
    for (int i = 0; i < 120; ++i) {
      held.push_back(Client());
      if (held.back().Send(
              fmt::format("POST /v1/chat/completions HTTP/1.1\r\nHost: h\r\nContent-Length: {}\r\n\r\n",
                          body.size() + 1))) {
        (void)held.back().Send(body);
      }
    }
  });
}

TEST_P(HttpAttacksTest, ResetsWhileAnswersAreWritten) {
  Withstands("resets", 64 * kMiB, [&] {
    std::string requests;
    for (int i = 0; i < 200; ++i) requests += "GET /v1/models HTTP/1.1\r\nHost: h\r\n\r\n";
    for (int i = 0; i < 100; ++i) {
      RawClient client = Client();
      (void)client.Send(requests);
    }  // what it has not read resets the connection
  });
}

// The gateway's calls of the router share one connection.
TEST_P(HttpAttacksTest, KeysThatNoRouterWouldTake) {
  Withstands("large keys", 16 * kMiB, [&] {
    for (const size_t bytes : {2'000, 7'753, 8'300, 15'000}) {
      for (const std::string name : {"x-api-key", "authorization", "traceparent", "tracestate", "x-other"}) {
        RawClient client = Client();
        EXPECT_TRUE(client.Send(
            fmt::format("GET /v1/models HTTP/1.1\r\nHost: h\r\nConnection: close\r\n{}: {}\r\n\r\n", name,
                        std::string(bytes, 'k'))));
        EXPECT_TRUE(client.AwaitClose());
      }
    }
  });
}

}  // namespace
}  // namespace baton::strangers
