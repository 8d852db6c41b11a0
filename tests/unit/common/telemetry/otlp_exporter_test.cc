// The exporter against a collector over real sockets, one that takes what it gets and one that does not.
#include "common/telemetry/otlp_exporter.h"

#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "absl/time/clock.h"
#include "tests/fakes/fake_collector.h"

namespace baton::telemetry {
namespace {

class OtlpExporterTest : public ::testing::Test {
 protected:
  std::unique_ptr<OtlpExporter> Start(OtlpExporterOptions options) {
    if (options.url.empty()) options.url = collector_.url();
    auto exporter = OtlpExporter::Start(std::move(options), metrics_);
    EXPECT_TRUE(exporter.ok()) << exporter.status();
    return *std::move(exporter);
  }
  static std::vector<Span> Spans(int count, const std::string& name = "span") {
    std::vector<Span> spans(count);
    for (Span& span : spans) span.name = name;
    return spans;
  }
  bool Shows(const std::string& line) const { return absl::StrContains(metrics_.Text(), line + "\n"); }
  bool ShowsDropped(const std::string& reason, int count) const {
    return Shows("baton_trace_spans_dropped_total{reason=\"" + reason + "\"} " + std::to_string(count));
  }
  bool ShowsExported(int count) const {
    return Shows("baton_trace_spans_exported_total " + std::to_string(count));
  }

  Metrics metrics_;
  FakeCollector collector_;
};

TEST_F(OtlpExporterTest, SpansArriveInBatchesOnOneConnection) {
  auto exporter =
      Start({.resource = {{"service.name", "me"}}, .max_batch = 4, .delay = absl::Milliseconds(1)});
  exporter->Add(Spans(3, "first"));
  ASSERT_TRUE(collector_.AwaitSpans([](const auto& spans) { return spans.size() == 3; }));
  exporter->Add(Spans(9, "second"));
  ASSERT_TRUE(collector_.AwaitSpans([](const auto& spans) { return spans.size() == 12; }));
  for (const auto& request : collector_.requests()) {
    EXPECT_EQ(request.target, "/v1/traces");
    EXPECT_EQ(request.content_type, "application/json");
  }
  const auto spans = collector_.spans();
  EXPECT_EQ(spans[0]["name"], "first");
  EXPECT_EQ(spans[3]["name"], "second");
  EXPECT_EQ(spans[0]["resource"][0]["value"]["stringValue"], "me");
  EXPECT_EQ(collector_.requests().size(), 4u) << "3, and 9 in batches of at most 4";
  exporter = nullptr;
  EXPECT_TRUE(ShowsExported(12));
}

TEST_F(OtlpExporterTest, WhatIsQueuedLeavesAtTheEnd) {
  auto exporter = Start({.max_batch = 1000, .delay = absl::Hours(1)});
  exporter->Add(Spans(10));
  exporter = nullptr;
  EXPECT_EQ(collector_.spans().size(), 10u);
}

TEST_F(OtlpExporterTest, ABatchThatCannotBeTakenNowIsSentAgain) {
  collector_.SetAnswer([](int number) {
    return FakeCollector::Answer{.status = number == 0 ? 503 : number == 1 ? 429 : 200, .close = number == 0};
  });
  auto exporter = Start({.delay = absl::ZeroDuration(), .retry_delay = absl::Milliseconds(1)});
  exporter->Add(Spans(2));
  ASSERT_TRUE(collector_.Await([](const auto& requests) { return requests.size() == 3; }));
  exporter = nullptr;
  EXPECT_TRUE(ShowsExported(2));
  const auto requests = collector_.requests();
  EXPECT_EQ(requests[0].body, requests[2].body);
}

TEST_F(OtlpExporterTest, ABatchThatIsRefusedIsDropped) {
  collector_.SetAnswer([](int number) { return FakeCollector::Answer{.status = number == 0 ? 400 : 200}; });
  auto exporter = Start({.max_batch = 5, .delay = absl::ZeroDuration()});
  exporter->Add(Spans(5, "bad"));
  exporter->Add(Spans(1, "good"));
  ASSERT_TRUE(collector_.AwaitSpans(
      [](const auto& spans) { return !spans.empty() && spans.back()["name"] == "good"; }));
  exporter = nullptr;
  EXPECT_EQ(collector_.requests().size(), 2u);
  EXPECT_TRUE(ShowsDropped("collector", 5));
  EXPECT_TRUE(ShowsExported(1));
}

TEST_F(OtlpExporterTest, WhatACollectorRejectsIsCounted) {
  collector_.SetAnswer(
      [](int) { return FakeCollector::Answer{.body = R"({"partialSuccess": {"rejectedSpans": "2"}})"}; });
  auto exporter = Start({.delay = absl::ZeroDuration()});
  exporter->Add(Spans(5));
  exporter = nullptr;
  EXPECT_TRUE(ShowsDropped("rejected", 2));
  EXPECT_TRUE(ShowsExported(3));
}

TEST_F(OtlpExporterTest, WithoutACollectorSpansAreDroppedAndNobodyWaits) {
  uint16_t port = 0;
  { port = FakeCollector().port(); }  // nobody listens there any more
  auto exporter = Start({.url = "http://127.0.0.1:" + std::to_string(port),
                         .max_queued = 10,
                         .max_batch = 10,
                         .delay = absl::Hours(1),
                         .retry_delay = absl::Milliseconds(1)});
  exporter->Add(Spans(4));
  exporter = nullptr;
  EXPECT_TRUE(ShowsDropped("collector", 4));
  EXPECT_TRUE(ShowsExported(0));
}

TEST_F(OtlpExporterTest, TheQueueIsBounded) {
  // The first batch is never answered, so that the rest has to wait.
  collector_.SetAnswer([](int number) { return FakeCollector::Answer{.hang = number == 0}; });
  auto exporter =
      Start({.max_queued = 10, .max_batch = 1, .timeout = absl::Hours(1), .flush = absl::Milliseconds(1)});
  exporter->Add(Spans(1));
  ASSERT_TRUE(collector_.Await([](const auto& requests) { return requests.size() == 1; }));
  exporter->Add(Spans(7));
  exporter->Add(Spans(7));
  EXPECT_TRUE(ShowsDropped("queue", 4));
  // A collector that does not answer holds up nobody's end: this returns.
  exporter = nullptr;
  EXPECT_TRUE(ShowsDropped("collector", 11));
}

TEST_F(OtlpExporterTest, AnAnswerThatDoesNotComeIsTriedAgain) {
  collector_.SetAnswer([](int number) { return FakeCollector::Answer{.hang = number == 0}; });
  auto exporter = Start({.delay = absl::ZeroDuration(),
                         .timeout = absl::Milliseconds(50),
                         .retry_delay = absl::Milliseconds(1)});
  exporter->Add(Spans(1));
  ASSERT_TRUE(collector_.Await([](const auto& requests) { return requests.size() >= 2; }));
}

TEST(OtlpEndpointTest, AUrlIsHostPortAndPath) {
  const auto parse = [](const std::string& url) {
    const auto endpoint = ParseOtlpEndpoint(url);
    return endpoint.ok() ? endpoint->host + " " + endpoint->port + " " + endpoint->path : "";
  };
  EXPECT_EQ(parse("http://collector:4318"), "collector 4318 /v1/traces");
  EXPECT_EQ(parse("http://collector"), "collector 4318 /v1/traces");
  EXPECT_EQ(parse("http://collector:80/"), "collector 80 /v1/traces");
  EXPECT_EQ(parse("http://collector.ns.svc:80/otlp/"), "collector.ns.svc 80 /otlp/v1/traces");
  EXPECT_EQ(parse("http://[::1]:4318"), "::1 4318 /v1/traces");
  EXPECT_EQ(parse("http://[::1]"), "::1 4318 /v1/traces");
  for (const char* wrong : {"", "collector:4318", "https://collector:4318", "http://", "http://:4318",
                            "http://collector:0", "http://collector:65536", "http://collector:x",
                            "http://user@collector:4318", "http://collector:4318/a?b", "http://a b:1"}) {
    EXPECT_EQ(ParseOtlpEndpoint(wrong).status().code(), absl::StatusCode::kInvalidArgument) << wrong;
  }
}

}  // namespace
}  // namespace baton::telemetry
