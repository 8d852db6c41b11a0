// A client may go at any time: while its answer is written, when the handler has let go of its exchange.
#include "gateway/counted_exchange.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <new>

#include "common/telemetry/metrics.h"

namespace baton::gateway {
namespace {

// Keeps what is to run when the client goes, as the server does until the answer has left.
class OpenExchange final : public http::Exchange {
 public:
  const http::Request& request() const override { return request_; }
  void Answer(http::Response) override {}
  void Begin(http::Response) override {}
  void Write(std::string, std::function<void()>) override {}
  void End() override {}
  void Abort() override {}
  bool Hold(size_t) override { return true; }
  void OnGone(std::function<void()> gone) override { gone_ = std::move(gone); }
  void Post(std::function<void()>) override {}
  void After(int, std::function<void()>) override {}

  void Go() { gone_(); }

 private:
  const http::Request request_;
  std::function<void()> gone_;
};

TEST(CountedExchangeTest, WhoGoesAfterTheAnswerTouchesNothingOfIt) {
  telemetry::Metrics metrics;
  Probe probe(metrics);
  const auto open = std::make_shared<OpenExchange>();
  // Memory that somebody else has once the exchange has ended.
  alignas(CountedExchange) std::array<std::byte, sizeof(CountedExchange)> memory;
  auto* const counted = new (memory.data()) CountedExchange(open, "/v1/models", probe, nullptr, {});
  bool told = false;
  counted->OnGone([&told] { told = true; });
  counted->Answer({});
  counted->~CountedExchange();
  memory.fill(std::byte{0xAB});
  open->Go();
  EXPECT_TRUE(told);
  EXPECT_TRUE(std::ranges::all_of(memory, [](std::byte byte) { return byte == std::byte{0xAB}; }));
}

}  // namespace
}  // namespace baton::gateway
