// A request's spans, however it ends, and the trace context of its calls to workers.
#include <gtest/gtest.h>

#include <map>

#include "tests/unit/router/request_flow_fixture.h"

namespace baton::router {
namespace {

using telemetry::Span;

class RequestTraceTest : public RequestFlowTest {
 protected:
  RequestTraceTest()
      : tracer_(
            [this](std::vector<Span> spans) { spans_.insert(spans_.end(), spans.begin(), spans.end()); }) {
    incoming_.trace_id = telemetry::NewTraceId();
    incoming_.span_id = telemetry::NewSpanId();
    incoming_.state = "shop=7";
  }

  void Trace(bool sampled) {
    incoming_.sampled = sampled;
    flow_ = std::make_unique<RequestFlow>(RequestFlow::Options{.request_id = "r",
                                                               .router_id = "me",
                                                               .arrival = clock_.Now(),
                                                               .tracer = &tracer_,
                                                               .trace = incoming_,
                                                               .method = "Chat"},
                                          clock_, probe_);
  }
  // Seconds since the request came.
  double Start(const Span& span) const {
    return absl::ToDoubleSeconds(span.start - Named("router.request").start);
  }
  double End(const Span& span) const {
    return absl::ToDoubleSeconds(span.end - Named("router.request").start);
  }
  const Span& Named(const std::string& name, size_t which = 0) const {
    for (const Span& span : spans_) {
      if (span.name == name && which-- == 0) return span;
    }
    ADD_FAILURE() << "no span " << name;
    return spans_.front();
  }
  static std::optional<Span::Value> Attribute(const Span& span, const std::string& key) {
    for (const auto& [name, value] : span.attributes) {
      if (name == key) return value;
    }
    return std::nullopt;
  }

  telemetry::TraceContext incoming_;
  const telemetry::Tracer tracer_;
  std::vector<Span> spans_;
};

TEST_F(RequestTraceTest, ARequestThatEndsWell) {
  Trace(true);
  clock_.Advance(absl::Seconds(1));
  flow_->OnPrepared(Request());
  clock_.Advance(absl::Seconds(2));
  const Actions placed = flow_->OnPlaced(0, Place(0));
  const telemetry::TraceContext carried = Only<Dial>(placed).trace;
  flow_->OnDecodeEvent(0, 1, Accepted());
  flow_->OnWritten(true);
  clock_.Advance(absl::Seconds(4));
  flow_->OnDecodeEvent(0, 1, Token("a"));
  flow_->OnWritten(true);
  clock_.Advance(absl::Seconds(3));
  baton::fleet::v1::DecodeEvent done = Done();
  done.mutable_finished()->mutable_timing()->set_prefill_seconds(1.5);
  const Actions ended = flow_->OnDecodeEvent(0, 1, done);
  const v1::Timing timing = Only<WriteLast>(ended).response.finished().timing();

  ASSERT_EQ(spans_.size(), 4u);
  const Span& whole = Named("router.request");
  EXPECT_EQ(whole.trace_id, incoming_.trace_id);
  EXPECT_EQ(whole.parent, incoming_.span_id);
  EXPECT_EQ(whole.trace_state, "shop=7");
  EXPECT_EQ(whole.kind, Span::Kind::kServer);
  EXPECT_EQ(End(whole), 10);
  EXPECT_EQ(whole.error, "");
  EXPECT_EQ(Attribute(whole, "gen_ai.request.model"), Span::Value(std::string("m")));
  EXPECT_EQ(Attribute(whole, "gen_ai.operation.name"), Span::Value(std::string("chat")));
  EXPECT_EQ(Attribute(whole, "gen_ai.response.id"), Span::Value(std::string("r")));
  EXPECT_EQ(Attribute(whole, "gen_ai.usage.input_tokens"), Span::Value(int64_t{2}));
  EXPECT_EQ(Attribute(whole, "gen_ai.usage.output_tokens"), Span::Value(int64_t{1}));

  const Span& admit = Named("router.admit");
  EXPECT_EQ(admit.parent, whole.id);
  EXPECT_EQ(Start(admit), 0);
  EXPECT_EQ(End(admit), 3);
  EXPECT_NEAR(timing.admit_seconds(), 3, 1e-9);
  const Span& place = Named("router.place");
  EXPECT_EQ(place.parent, admit.id);
  EXPECT_EQ(Start(place), 1);
  EXPECT_EQ(End(place), 3);
  const Span& first = Named("first_token");
  EXPECT_EQ(first.parent, whole.id);
  EXPECT_NEAR(End(first), 7, 1e-6);
  EXPECT_NEAR(End(first) - Start(first), timing.first_token_seconds(), 1e-6);
  EXPECT_NEAR(timing.first_token_seconds(), 2.5, 1e-9);

  EXPECT_EQ(carried.trace_id, incoming_.trace_id);
  EXPECT_EQ(carried.span_id, whole.id);
  EXPECT_EQ(carried.state, "shop=7");
  EXPECT_TRUE(carried.sampled);
}

TEST_F(RequestTraceTest, WhatIsNotRecordedIsHandedOn) {
  Trace(false);
  flow_->OnPrepared(Request());
  const Actions placed = flow_->OnPlaced(0, Place(0));
  const telemetry::TraceContext carried = Only<Dial>(placed).trace;
  EXPECT_EQ(carried.trace_id, incoming_.trace_id);
  EXPECT_NE(carried.span_id, incoming_.span_id);
  EXPECT_FALSE(carried.sampled);
  flow_->OnCancelled();
  EXPECT_TRUE(spans_.empty());
}

TEST_F(RequestTraceTest, ARefusedRequestHasItsCodeAndNotItsWords) {
  Trace(true);
  clock_.Advance(absl::Seconds(1));
  flow_->OnPrepared(absl::InvalidArgumentError("prompt: \"secret\" is wrong"));
  ASSERT_EQ(spans_.size(), 2u);
  EXPECT_EQ(Named("router.request").error, "INVALID_ARGUMENT");
  EXPECT_EQ(Attribute(Named("router.request"), "error.type"), Span::Value(std::string("INVALID_ARGUMENT")));
  EXPECT_EQ(End(Named("router.admit")), 1);
}

TEST_F(RequestTraceTest, EachPlacementHasASpan) {
  Trace(true);
  flow_->OnPrepared(Request(2));
  clock_.Advance(absl::Seconds(1));
  flow_->OnPlaced(0, Place(0));
  flow_->OnPlaced(1, Place(1));
  flow_->OnDecodeEnd(0, 1, absl::ResourceExhaustedError("full"));
  clock_.Advance(absl::Seconds(1));
  flow_->OnPlaced(0, Place(1));
  flow_->OnDecodeEvent(0, 2, Accepted());
  flow_->OnDecodeEvent(0, 2, Token("a"));
  flow_->OnDecodeEnd(0, 2, absl::UnavailableError("gone"));
  clock_.Advance(absl::Seconds(1));
  flow_->OnPlaced(0, Place(0));
  flow_->OnCancelled();
  flow_->OnWritten(false);
  // Placements: 0, 1, 0 again, and 0 once more when it had begun.
  const Span& whole = Named("router.request");
  const Span& admit = Named("router.admit");
  EXPECT_EQ(Named("router.place", 0).parent, admit.id);
  EXPECT_EQ(Named("router.place", 1).parent, Named("router.admit", 1).id);
  EXPECT_EQ(Named("router.place", 2).parent, admit.id);
  EXPECT_EQ(Start(Named("router.place", 2)), 1);
  EXPECT_EQ(Attribute(Named("router.place", 2), "baton.attempt"), Span::Value(int64_t{2}));
  EXPECT_EQ(Named("router.place", 3).parent, whole.id);
  EXPECT_EQ(End(admit), 2) << "until it was placed for its first token";
  EXPECT_EQ(End(Named("router.admit", 1)), 1);
  EXPECT_EQ(whole.error, "CANCELLED");
  EXPECT_EQ(spans_.size(), 7u);
}

}  // namespace
}  // namespace baton::router
