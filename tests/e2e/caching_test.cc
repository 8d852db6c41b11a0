// Cache marks on real processes: what is marked outlasts pressure, what is charged adds up, a prompt can be
// warmed, and a miss is told with its reason.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <csignal>
#include <string>
#include <vector>

#include "tests/e2e/fleet.h"

namespace baton::e2e {
namespace {

// Some 190 blocks: a conversation of a few hundred tokens takes some 20 of them.
constexpr char kSmallPool[] = "9MiB";

void Tell(v1::Conversation& conversation, const std::string& role, const std::string& content) {
  v1::Message& message = *conversation.add_messages();
  message.set_role(role);
  message.set_content(content);
}

std::string Rules(const std::string& subject, int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += fmt::format("The {} number {} is kept by all. ", subject, i);
  return text;
}

// A system prompt of some 300 tokens and a question.
v1::ChatRequest AskAbout(const std::string& subject, const std::string& question) {
  v1::ChatRequest request;
  Tell(*request.mutable_conversation(), "system", Rules(subject, 20));
  Tell(*request.mutable_conversation(), "user", question);
  request.mutable_stop()->set_max_tokens(4);
  request.mutable_sampling()->set_temperature(0);
  return request;
}

void Mark(v1::ChatRequest& request, v1::CacheTtl ttl) {
  request.mutable_conversation()->mutable_messages(0)->mutable_cache()->set_ttl(ttl);
}

void ExpectAddsUp(const v1::Usage& usage) {
  EXPECT_EQ(usage.cached_tokens() + usage.written_five_minutes_tokens() + usage.written_hour_tokens() +
                usage.plain_tokens(),
            usage.prompt_tokens());
}

v1::Usage Used(Fleet& fleet, const v1::ChatRequest& request) {
  const Answer answer = fleet.Chat(request);
  EXPECT_TRUE(answer.status.ok()) << answer.status;
  if (!answer.status.ok()) return {};
  ExpectAddsUp(answer.end().usage());
  return answer.end().usage();
}

TEST(CachingTest, AMarkedPrefixOutlastsPressureAndIsChargedOnce) {
  for (const int prefill : {1, 0}) {
    SCOPED_TRACE(prefill);
    // A peer's blocks would hide the decode worker's loss of its own.
    const std::vector<std::string> alone = {"--peer-fetch", "never"};
    Fleet fleet({.prefill = prefill, .prefill_flags = alone, .decode_flags = alone, .kv_memory = kSmallPool});
    v1::ChatRequest marked = AskAbout("rule", "What is the first rule?");
    Mark(marked, v1::CACHE_TTL_1H);
    const v1::ChatRequest unmarked = AskAbout("custom", "What is the first custom?");
    const v1::Usage first = Used(fleet, marked);
    EXPECT_EQ(first.cached_tokens(), 0u);
    EXPECT_GT(first.written_hour_tokens(), 200u);
    EXPECT_EQ(first.written_hour_tokens() % 16, 0u);
    EXPECT_EQ(first.written_five_minutes_tokens(), 0u);
    EXPECT_EQ(first.retained_tokens(), first.written_hour_tokens());
    const v1::Usage plain = Used(fleet, unmarked);
    EXPECT_EQ(plain.written_hour_tokens() + plain.written_five_minutes_tokens() + plain.retained_tokens(),
              0u);
    // More than the decode worker's cache holds.
    for (int i = 0; i < 24; ++i) Used(fleet, AskAbout(fmt::format("habit of town {}", i), "Which?"));
    // Another question under the same mark.
    v1::ChatRequest again = AskAbout("rule", "And the last one?");
    Mark(again, v1::CACHE_TTL_1H);
    const v1::Usage second = Used(fleet, again);
    EXPECT_GE(second.decode_cached_tokens(), first.written_hour_tokens());
    EXPECT_EQ(second.written_hour_tokens(), 0u) << "what is found is not written";
    EXPECT_EQ(second.retained_tokens(), first.retained_tokens());
    EXPECT_EQ(Used(fleet, unmarked).decode_cached_tokens(), 0u);
    EXPECT_GT(Metric(fleet.decode(), "baton_cache_lease_blocks_total{event=\"renewed\",ttl=\"1h\"}"), 0);
    EXPECT_EQ(Metric(fleet.decode(), "baton_cache_lease_blocks_total{event=\"broken\""), 0);
    fleet.ExpectNothingHeld();
  }
}

TEST(CachingTest, WithoutAShareNothingIsRetainedAndNothingRefused) {
  Fleet fleet({.decode_flags = {"--cache-lease-share", "0"}});
  v1::ChatRequest request = AskAbout("rule", "What is the first rule?");
  Mark(request, v1::CACHE_TTL_5M);
  const v1::Usage usage = Used(fleet, request);
  EXPECT_GT(usage.written_five_minutes_tokens(), 200u);
  EXPECT_EQ(usage.retained_tokens(), 0u);
  EXPECT_EQ(Metric(fleet.decode(), "baton_kv_leased_blocks"), 0);
}

TEST(CachingTest, AWarmedPromptIsFoundAndItsAnswerIsTheSame) {
  for (const int prefill : {1, 0}) {
    SCOPED_TRACE(prefill);
    Fleet fleet({.prefill = prefill});
    v1::ChatRequest warm = AskAbout("rule", "What is the first rule?");
    warm.mutable_stop()->clear_max_tokens();
    warm.mutable_options()->set_prefill_only(true);
    warm.mutable_options()->mutable_cache()->set_ttl(v1::CACHE_TTL_5M);
    const Answer warmed = fleet.Chat(warm);
    ASSERT_TRUE(warmed.status.ok()) << warmed.status;
    EXPECT_EQ(warmed.text, "");
    EXPECT_EQ(warmed.end().reason(), v1::FINISH_REASON_LENGTH);
    EXPECT_EQ(warmed.end().usage().completion_tokens(), 0u);
    EXPECT_GT(warmed.end().timing().e2e_seconds(), 0);
    ExpectAddsUp(warmed.end().usage());
    const uint32_t blocks = warmed.end().usage().prompt_tokens() / 16;
    EXPECT_EQ(warmed.end().usage().written_five_minutes_tokens(), blocks * 16);
    EXPECT_EQ(warmed.end().usage().retained_tokens(), blocks * 16);

    v1::ChatRequest request = AskAbout("rule", "What is the first rule?");
    const Answer answer = fleet.Chat(request);
    ASSERT_TRUE(answer.status.ok()) << answer.status;
    EXPECT_GE(answer.end().usage().decode_cached_tokens() + 16, blocks * 16);
    Fleet cold({.prefill = prefill});
    EXPECT_EQ(cold.Chat(request).text, answer.text);

    warm.mutable_options()->set_n(2);
    EXPECT_EQ(fleet.Chat(warm).status.code(), absl::StatusCode::kInvalidArgument);
    fleet.ExpectNothingHeld();
  }
}

// "first", "system", ... of the next request of the session, or "" if it misses nothing.
std::string MissOf(Fleet& fleet, v1::ChatRequest request, const std::string& session) {
  request.mutable_options()->set_session_id(session);
  const Answer answer = fleet.Chat(request);
  EXPECT_TRUE(answer.status.ok()) << answer.status;
  if (!answer.status.ok() || !answer.end().has_cache_miss()) return "";
  EXPECT_GE(answer.end().cache_miss().tokens(), 16u);
  EXPECT_LE(answer.end().cache_miss().tokens(), answer.end().usage().prompt_tokens());
  return v1::CacheMiss::Reason_Name(answer.end().cache_miss().reason());
}

TEST(CachingTest, AMissIsToldWithItsReason) {
  Fleet fleet({.kv_memory = kSmallPool});
  v1::ChatRequest request = AskAbout("rule", "What is the first rule?");
  EXPECT_EQ(MissOf(fleet, request, "s"), "REASON_FIRST");
  EXPECT_EQ(MissOf(fleet, request, "s"), "");
  Tell(*request.mutable_conversation(), "assistant", "It is kept by all.");
  Tell(*request.mutable_conversation(), "user", Rules("answer", 10));
  EXPECT_EQ(MissOf(fleet, request, "s"), "") << "it goes on";
  request.mutable_conversation()->mutable_messages(1)->set_content("Which rule comes first, please?");
  EXPECT_EQ(MissOf(fleet, request, "s"), "REASON_MESSAGES");
  request.mutable_conversation()->mutable_messages(0)->set_content(Rules("law", 20));
  EXPECT_EQ(MissOf(fleet, request, "s"), "REASON_SYSTEM");
  v1::Tool& tool = *request.mutable_conversation()->add_tools();
  tool.set_name("look_up");
  tool.set_description("Looks a rule up.");
  EXPECT_EQ(MissOf(fleet, request, "s"), "REASON_TOOLS");
  EXPECT_EQ(MissOf(fleet, request, "s"), "");
  EXPECT_GT(Metric(fleet.router(), "baton_router_cache_miss_tokens_total{reason=\"system\"}"), 0);
  fleet.ExpectNothingHeld();
}

TEST(CachingTest, EvictionIsTold) {
  Fleet fleet({.prefill = 0, .kv_memory = kSmallPool});
  const v1::ChatRequest request = AskAbout("rule", "What is the first rule?");
  EXPECT_EQ(MissOf(fleet, request, "s"), "REASON_FIRST");
  for (int i = 0; i < 24; ++i) Used(fleet, AskAbout(fmt::format("habit of town {}", i), "Which?"));
  EXPECT_EQ(MissOf(fleet, request, "s"), "REASON_EVICTED");
}

TEST(CachingTest, ALostWorkerIsTold) {
  // Nobody fetches: blocks are where they were computed.
  Fleet fleet({.prefill = 0, .decode = 2, .decode_flags = {"--peer-fetch", "never"}});
  const std::string session = "s";
  v1::ChatRequest request = AskAbout("rule of town 0", "What is the first rule?");
  request.mutable_options()->set_session_id(session);
  const Answer first = fleet.Chat(request);
  ASSERT_TRUE(first.status.ok()) << first.status;
  EXPECT_EQ(first.end().cache_miss().reason(), v1::CacheMiss::REASON_FIRST);
  const std::string& worker = first.end().relay().decode_worker();
  // The router has observed one worker, and knows of the other what it measured at its start.
  const Answer second = fleet.Chat(request);
  ASSERT_TRUE(second.status.ok()) << second.status;
  EXPECT_FALSE(second.end().has_cache_miss()) << second.end().cache_miss().ShortDebugString();
  ASSERT_EQ(second.end().relay().decode_worker(), worker) << "the conversation left its blocks";
  // The worker that it ran on dies.
  for (int i = 0; i < 2; ++i) {
    grpc::ClientContext context;
    const auto stub = fleet::v1::Worker::NewStub(
        grpc::CreateChannel(fleet.decode(i).grpc(), grpc::InsecureChannelCredentials()));
    const auto watch = stub->Watch(&context, {});
    fleet::v1::WatchEvent event;
    ASSERT_TRUE(watch->Read(&event));
    const bool is_it = event.snapshot().info().worker_id() == worker;
    context.TryCancel();
    if (!is_it) continue;
    fleet.decode(i).Signal(SIGKILL);
    fleet.decode(i).Wait();
    break;
  }
  fleet.AwaitWorkers(0, 1);
  EXPECT_EQ(MissOf(fleet, request, session), "REASON_WORKER_LOST");
}

}  // namespace
}  // namespace baton::e2e
