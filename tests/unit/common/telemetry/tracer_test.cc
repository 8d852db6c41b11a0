#include "common/telemetry/tracer.h"

#include <gtest/gtest.h>

#include "absl/time/clock.h"

namespace baton::telemetry {
namespace {

class TracerTest : public ::testing::Test {
 protected:
  RequestSpans::Sink Keep() {
    return [this](std::vector<Span> spans) { spans_.insert(spans_.end(), spans.begin(), spans.end()); };
  }
  static TraceContext Incoming(bool sampled) {
    TraceContext context;
    context.trace_id = NewTraceId();
    context.span_id = NewSpanId();
    context.sampled = sampled;
    context.state = "foo=1";
    return context;
  }

  FakeClock clock_{absl::UnixEpoch() + absl::Hours(5)};
  std::vector<Span> spans_;
};

TEST_F(TracerTest, SpansAreOfTheirRequestAndLieOnTheCalendar) {
  const Tracer tracer(Keep());
  const TraceContext incoming = Incoming(true);
  const absl::Time start = clock_.Now();
  auto request =
      tracer.Begin(tracer.Continue(incoming), clock_, "whole", Span::Kind::kServer, start - absl::Seconds(1));
  ASSERT_NE(request, nullptr);
  const SpanId inner = request->Add("inner", start, start + absl::Seconds(2)).id;
  request->Add("innermost", start, start + absl::Seconds(1), inner);
  const TraceContext context = request->context();
  clock_.Advance(absl::Seconds(3));
  EXPECT_TRUE(spans_.empty());
  request = nullptr;
  ASSERT_EQ(spans_.size(), 3u);
  for (const Span& span : spans_) {
    EXPECT_EQ(span.trace_id, incoming.trace_id);
    EXPECT_EQ(span.trace_state, "foo=1");
  }
  EXPECT_EQ(spans_[0].name, "whole");
  EXPECT_EQ(spans_[0].kind, Span::Kind::kServer);
  EXPECT_EQ(spans_[0].id, context.span_id);
  EXPECT_EQ(spans_[0].parent, incoming.span_id);
  EXPECT_EQ(spans_[1].parent, context.span_id);
  EXPECT_EQ(spans_[2].parent, inner);
  // The clock that the times are on is 5 hours behind the calendar's zero, or so.
  EXPECT_LT(absl::AbsDuration(absl::Now() - spans_[1].start), absl::Minutes(10));
  EXPECT_EQ(spans_[0].end - spans_[0].start, absl::Seconds(4)) << "it ended when it was destroyed";
  EXPECT_EQ(spans_[1].start - spans_[0].start, absl::Seconds(1));
  EXPECT_EQ(spans_[1].end - spans_[1].start, absl::Seconds(2));
}

TEST_F(TracerTest, TheCallerDecidesWhatIsRecorded) {
  const Tracer tracer(Keep(), 1);
  const TraceContext incoming = Incoming(false);
  EXPECT_EQ(tracer.Continue(incoming), incoming);
  EXPECT_EQ(tracer.Begin(incoming, clock_, "whole", Span::Kind::kServer, clock_.Now()), nullptr);
  const Tracer none(Keep(), 0);
  EXPECT_NE(none.Begin(Incoming(true), clock_, "whole", Span::Kind::kServer, clock_.Now()), nullptr);
}

TEST_F(TracerTest, WithoutATraceOneBegins) {
  const Tracer tracer(Keep(), 0.25);
  int sampled = 0;
  for (int i = 0; i < 4000; ++i) {
    const TraceContext made = tracer.Continue({});
    EXPECT_NE(made.trace_id, TraceId{});
    sampled += made.sampled;
  }
  EXPECT_GT(sampled, 800);
  EXPECT_LT(sampled, 1200);
  const TraceContext made = Tracer(Keep(), 1).Continue({});
  tracer.Begin(made, clock_, "whole", Span::Kind::kServer, clock_.Now());
  ASSERT_EQ(spans_.size(), 1u);
  EXPECT_EQ(spans_[0].parent, SpanId{}) << "nothing caused it";
}

TEST_F(TracerTest, WithoutACollectorNothingIsRecorded) {
  const Tracer tracer;
  EXPECT_EQ(tracer.Begin(Incoming(true), clock_, "whole", Span::Kind::kServer, clock_.Now()), nullptr);
  EXPECT_FALSE(tracer.Continue({}).sampled);
  EXPECT_TRUE(tracer.Continue({}).Child().valid());
}

}  // namespace
}  // namespace baton::telemetry
