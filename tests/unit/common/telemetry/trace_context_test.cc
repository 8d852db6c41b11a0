// traceparent and tracestate by the cases of the W3C's own test suite
// (https://github.com/w3c/trace-context/blob/main/test/test.py), as far as they concern a reader.
#include "common/telemetry/trace_context.h"

#include <gtest/gtest.h>

#include <set>

#include "common/base/random.h"

namespace baton::telemetry {
namespace {

constexpr char kTrace[] = "12345678901234567890123456789012";
constexpr char kValid[] = "00-12345678901234567890123456789012-1234567890123456-01";

std::optional<TraceContext> Parse(std::vector<std::string_view> parents,
                                  std::vector<std::string_view> states = {}) {
  return ParseTraceContext(parents, states);
}

std::string StateOf(std::vector<std::string_view> states) { return Parse({kValid}, states)->state; }

TEST(TraceContextTest, AValidTraceparentIsRead) {
  const auto context = Parse({kValid});
  ASSERT_TRUE(context.has_value());
  EXPECT_EQ(context->TraceIdText(), kTrace);
  EXPECT_EQ(Hex(context->span_id), "1234567890123456");
  EXPECT_TRUE(context->sampled);
  EXPECT_EQ(context->Traceparent(), kValid);
  EXPECT_FALSE(Parse({"00-12345678901234567890123456789012-1234567890123456-00"})->sampled);
}

TEST(TraceContextTest, UnknownFlagsAreReadAndNotHandedOn) {
  const auto context = Parse({"00-12345678901234567890123456789012-1234567890123456-ff"});
  EXPECT_TRUE(context->sampled);
  EXPECT_EQ(context->Traceparent(), kValid);
  EXPECT_FALSE(Parse({"00-12345678901234567890123456789012-1234567890123456-02"})->sampled);
}

TEST(TraceContextTest, OfAHigherVersionTheKnownPartIsRead) {
  for (const char* text :
       {"cc-12345678901234567890123456789012-1234567890123456-01",
        "cc-12345678901234567890123456789012-1234567890123456-01-what-the-future-will-be"}) {
    EXPECT_EQ(Parse({text})->Traceparent(), kValid) << text;
  }
  EXPECT_FALSE(Parse({"cc-12345678901234567890123456789012-1234567890123456-01.what-the-future-will-be"}));
}

TEST(TraceContextTest, ATraceparentThatBreaksTheRulesCountsAsAbsent) {
  for (const char* text : {
           "",
           "ff-12345678901234567890123456789012-1234567890123456-01",   // version ff is forbidden
           "0-12345678901234567890123456789012-1234567890123456-01",    // version too short
           "000-12345678901234567890123456789012-1234567890123456-01",  // too long
           ".0-12345678901234567890123456789012-1234567890123456-01",
           "0.-12345678901234567890123456789012-1234567890123456-01",
           "00-00000000000000000000000000000000-1234567890123456-01",
           "00-.2345678901234567890123456789012-1234567890123456-01",
           "00-1234567890123456789012345678901.-1234567890123456-01",
           "00-123456789012345678901234567890123-1234567890123456-01",
           "00-1234567890123456789012345678901-1234567890123456-01",
           "00-ABCDEF78901234567890123456789012-1234567890123456-01",  // upper case
           "00-12345678901234567890123456789012-0000000000000000-01",
           "00-12345678901234567890123456789012-.234567890123456-01",
           "00-12345678901234567890123456789012-123456789012345.-01",
           "00-12345678901234567890123456789012-12345678901234567-01",
           "00-12345678901234567890123456789012-123456789012345-01",
           "00-12345678901234567890123456789012-1234567890123456-.0",
           "00-12345678901234567890123456789012-1234567890123456-0.",
           "00-12345678901234567890123456789012-1234567890123456-001",
           "00-12345678901234567890123456789012-1234567890123456-1",
           "00-12345678901234567890123456789012-1234567890123456-01-",
           "00-12345678901234567890123456789012-1234567890123456-01-what",  // version 00 has no more
           "00_12345678901234567890123456789012-1234567890123456-01",
           "00-12345678901234567890123456789012_1234567890123456-01",
           "00-12345678901234567890123456789012-1234567890123456_01",
       }) {
    EXPECT_FALSE(Parse({text}).has_value()) << text;
  }
  EXPECT_FALSE(Parse({}).has_value());
}

TEST(TraceContextTest, TwoTraceparentsAreNone) {
  EXPECT_FALSE(Parse({kValid, kValid}).has_value());
  EXPECT_FALSE(Parse({kValid, "00-12345678901234567890123456789011-1234567890123456-01"}).has_value());
}

TEST(TraceContextTest, BlanksAroundTheValueDoNotBelongToIt) {
  EXPECT_EQ(Parse({" \t00-12345678901234567890123456789012-1234567890123456-01 \t"})->Traceparent(), kValid);
}

TEST(TraceContextTest, TracestateIsHandedOnInOrder) {
  EXPECT_EQ(StateOf({}), "");
  EXPECT_EQ(StateOf({"foo=1,bar=2"}), "foo=1,bar=2");
  EXPECT_EQ(StateOf({"foo=1", "bar=2"}), "foo=1,bar=2");
  EXPECT_EQ(StateOf({"foo=1 \t , \t bar=2, \t baz=3"}), "foo=1,bar=2,baz=3");
  EXPECT_EQ(StateOf({"foo=1,"}), "foo=1");
  EXPECT_EQ(StateOf({"", "foo=1"}), "foo=1");
  EXPECT_EQ(StateOf({"0@v=1,a-_*/0@v=a b"}), "0@v=1,a-_*/0@v=a b");
  EXPECT_EQ(StateOf({"z=" + std::string(256, 'v')}).size(), 258u);
}

TEST(TraceContextTest, ATracestateThatBreaksTheRulesIsDroppedAlone) {
  const std::string long_key = std::string(257, 'k') + "=1", long_value = "k=" + std::string(257, 'v');
  const std::string long_tenant = std::string(242, 't') + "@v=1",
                    long_system = "t@" + std::string(15, 'v') + "=1";
  for (const std::string_view state :
       {std::string_view("foo"), std::string_view("foo="), std::string_view("=1"), std::string_view("foo =1"),
        std::string_view("FOO=1"), std::string_view("foo.bar=1"), std::string_view("foo@=1,bar=2"),
        std::string_view("@foo=1"), std::string_view("foo@@bar=1"), std::string_view("foo@bar@baz=1"),
        std::string_view("foo=1=2"), std::string_view("foo=1,foo=1"), std::string_view("foo=1,foo=2"),
        std::string_view("0foo=1"), std::string_view("foo=\x7f"), std::string_view(long_key),
        std::string_view(long_value), std::string_view(long_tenant), std::string_view(long_system)}) {
    const auto context = Parse({kValid}, {state});
    ASSERT_TRUE(context.has_value());
    EXPECT_EQ(context->state, "") << state;
    EXPECT_EQ(context->TraceIdText(), kTrace);
  }
}

TEST(TraceContextTest, TracestateHasAtMost32Members) {
  std::string state;
  for (int i = 0; i < 32; ++i)
    state += (i > 0 ? ",bar" : "bar") + std::to_string(i) + "=" + std::to_string(i);
  EXPECT_EQ(StateOf({state}), state);
  EXPECT_EQ(StateOf({state, "bar32=32"}), "");
}

// Whatever comes is read or ignored, and what is handed on is read as the same.
TEST(TraceContextTest, BrokenHeadersAreReadOrIgnored) {
  const std::string parent = kValid, state = "foo=1,0@bar=a b, baz=c\t,x=y";
  int read = 0;
  for (uint64_t round = 0; round < 20'000; ++round) {
    uint64_t draws = 0;
    const auto draw = [&](size_t below) {
      return static_cast<size_t>(UniformAt(round, draws++) * static_cast<double>(below));
    };
    const auto broken = [&](std::string text) {
      for (size_t changes = draw(4); changes > 0; --changes) {
        const size_t at = draw(text.size());
        const std::string other(1, static_cast<char>(draw(256)));
        const size_t kind = draw(3);
        text.replace(at, kind == 0 ? 0 : 1, kind == 2 ? "" : other);
      }
      return text;
    };
    const std::string one = broken(parent), two = broken(state);
    const auto context = Parse({one}, {two});
    if (!context.has_value()) continue;
    ++read;
    EXPECT_EQ(Parse({context->Traceparent()}, {context->state}), context) << one << " " << two;
  }
  EXPECT_GT(read, 5'000);
}

TEST(TraceContextTest, IdsAreNewAndNotZero) {
  std::set<SpanId> spans;
  std::set<TraceId> traces;
  for (int i = 0; i < 100; ++i) {
    spans.insert(NewSpanId());
    traces.insert(NewTraceId());
  }
  EXPECT_EQ(spans.size(), 100u);
  EXPECT_EQ(traces.size(), 100u);
  EXPECT_FALSE(spans.contains(SpanId{}));
  EXPECT_FALSE(traces.contains(TraceId{}));
}

TEST(TraceContextTest, AChildIsInTheSameTrace) {
  TraceContext context = *Parse({kValid}, {"foo=1"});
  const TraceContext child = context.Child();
  EXPECT_NE(child.span_id, context.span_id);
  context.span_id = child.span_id;
  EXPECT_EQ(child, context);
  EXPECT_EQ(TraceContext().Traceparent(), "");
  EXPECT_EQ(TraceContext().TraceIdText(), "");
}

}  // namespace
}  // namespace baton::telemetry
