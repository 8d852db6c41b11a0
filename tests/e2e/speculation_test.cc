// Drafts on real processes: the answers of a fleet that drafts, whose decode workers are killed and leave in
// the middle, are those of a fleet that does not, bit for bit; and what was drafted is counted over both
// workers.
#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <iterator>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cli/serve/child.h"
#include "tests/e2e/fleet.h"
#include "tests/e2e/folded_answer.h"
#include "tests/e2e/solo_answers.h"
#include "tests/fakes/layer_stack.h"
#include "tests/patience.h"
#include "tests/seed.h"

namespace baton::e2e {
namespace {

// A text that repeats itself, so that its answer is drafted; with everything that depends on what came
// before.
v1::GenerateRequest Repeating(int i, uint32_t max_tokens) {
  v1::GenerateRequest request;
  // Its own from the first block on, so that nothing of it is cached, whatever ran on the worker before.
  std::string text = "Page " + std::to_string(i) + " of the book about the cat and the dog. ";
  for (int line = 0; line < 12; ++line) text += "The cat sat on the mat, and the dog sat beside the cat. ";
  request.set_text(text + (i % 2 == 0 ? "The cat" : "The dog"));
  request.mutable_sampling()->set_seed(static_cast<uint64_t>(70 + i));
  request.mutable_sampling()->set_temperature(i % 3 == 0 ? 0.0f : 0.7f);
  if (i % 4 == 1) {
    request.mutable_sampling()->set_repetition_penalty(1.05f);
    request.mutable_sampling()->set_frequency_penalty(0.1f);
  }
  request.mutable_stop()->set_max_tokens(max_tokens);
  request.mutable_stop()->set_ignore_eos(true);
  request.mutable_output()->set_token_ids(true);
  request.mutable_output()->set_logits_digest(i % 2 == 0);
  request.mutable_output()->set_logprobs(i % 4 == 3);
  return request;
}

// The usage without what says how much was drafted, and, if asked, how much of the prompt was found where:
// that depends on what ran there before.
std::string UsageText(const v1::Finished& finished, bool found) {
  v1::Usage usage = finished.usage();
  EXPECT_EQ(usage.cached_tokens() + usage.written_five_minutes_tokens() + usage.written_hour_tokens() +
                usage.plain_tokens(),
            usage.prompt_tokens());
  usage.clear_drafted_tokens();
  usage.clear_accepted_tokens();
  if (!found) {
    usage.clear_decode_cached_tokens();
    usage.clear_prefill_cached_tokens();
    usage.clear_cached_tokens();
    usage.clear_plain_tokens();
  }
  return usage.ShortDebugString();
}

void ExpectSame(const v1::ChatUnaryResponse& plain, const v1::ChatUnaryResponse& drafted, bool found = true) {
  ASSERT_EQ(plain.choices_size(), drafted.choices_size());
  for (int i = 0; i < plain.choices_size(); ++i) {
    v1::AnswerChoice a = plain.choices(i), b = drafted.choices(i);
    EXPECT_EQ(a.finished().reason(), b.finished().reason());
    EXPECT_EQ(UsageText(a.finished(), found), UsageText(b.finished(), found));
    EXPECT_EQ(a.finished().usage().drafted_tokens(), 0u);
    a.clear_finished();
    b.clear_finished();
    EXPECT_EQ(a.SerializeAsString(), b.SerializeAsString());
  }
}

// The answers of a fleet that does not draft, and those of one that does, whose decode workers are killed and
// leave in the middle. BATON_SPECULATION_KILLS: how many requests, 6 without it.
int HowMany() {
  const char* const asked = std::getenv("BATON_SPECULATION_KILLS");
  return asked == nullptr ? 6 : std::atoi(asked);
}

// A way to draft.
struct Drafts {
  const char* name;
  // The decode workers' flags.
  std::vector<std::string> flags;
  uint32_t tokens = 300;
  // Its drafts take seconds, and whether they pay is measured: a sanitizer changes the times.
  bool model = false;
  // Requests have a grammar, much of which leaves no choice.
  bool grammar = false;
  // Each request was asked before, of workers that live.
  bool twice = false;
};

v1::GenerateRequest RequestFor(const Drafts& drafts, int i) {
  v1::GenerateRequest request = Repeating(i, drafts.tokens);
  if (drafts.grammar) {
    request.mutable_stop()->set_ignore_eos(false);
    request.mutable_constraint()->set_regex(
        R"((\{"the name of the animal": "[a-z]{1,8}", "what the animal sat on": "[a-z]{1,8}"\} ){40})");
  }
  return request;
}

class SpeculationKillsTest : public testing::TestWithParam<Drafts> {};

TEST_P(SpeculationKillsTest, InTheMiddleOfDraftsNoAnswerChanges) {
  const Drafts& drafts = GetParam();
  if (drafts.model && kSanitized) GTEST_SKIP() << "whether these drafts pay is measured";
  // The shipped model drafts for one that says the same in four times the layers.
  std::optional<LayerStack> stack;
  if (drafts.model) stack.emplace(kModel, 24);
  const std::string model = stack.has_value() ? stack->folder() : kModel;
  const int requests = HowMany();
  std::vector<v1::ChatUnaryResponse> plain;
  {
    Fleet fleet({.decode_flags = {"--speculation", "off"}, .model = model});
    for (int i = 0; i < requests; ++i) {
      const FoldedAnswer answer = Fold(fleet, RequestFor(drafts, i));
      ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
      plain.push_back(answer.answer);
    }
  }
  Fleet fleet(
      {.decode = 2, .decode_flags = drafts.flags, .model = model, .gated = true, .drain_grace = "0.05"});
  uint32_t drafted = 0, accepted = 0, completed = 0;
  for (int i = 0; i < requests; ++i) {
    SCOPED_TRACE(i);
    const v1::GenerateRequest request = RequestFor(drafts, i);
    if (drafts.twice) {
      const FoldedAnswer first = Fold(fleet, request);
      ASSERT_TRUE(first.status.ok()) << first.status.error_message();
      ExpectSame(plain[static_cast<size_t>(i)], first.answer);
    }
    // Its worker is held after a few steps: some for the prompt, some for the draft model, and the others
    // leave a part of the answer, whatever is drafted.
    constexpr int64_t kLeast = 6, kMost = 11;
    ASSERT_LT(kMost * kStepTokens, drafts.tokens);
    fleet.decode_gates().Allow(kLeast + i % (kMost - kLeast + 1));
    int victim = -1;
    const int signal = i % 2 == 0 ? SIGKILL : SIGTERM;
    const FoldedAnswer answer = Fold(fleet, request, 1, [&] { victim = fleet.LoseHeldDecode(signal); });
    ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
    ExpectSame(plain[static_cast<size_t>(i)], answer.answer, !drafts.twice);
    const v1::Finished& end = answer.answer.choices(0).finished();
    drafted += end.usage().drafted_tokens();
    accepted += end.usage().accepted_tokens();
    completed += end.usage().completion_tokens();
    EXPECT_EQ(end.relay().migrations(), 1u);
    EXPECT_LE(end.usage().accepted_tokens(), end.usage().drafted_tokens());
    fleet.RestartDecode(victim);
    fleet.decode_gates().Open();
    fleet.AwaitWorkers(1, 2);
  }
  EXPECT_GT(accepted, 0u);
  std::printf("%d answers moved, %u tokens, %u drafted, %u accepted: none differs\n", requests, completed,
              drafted, accepted);
  fleet.ExpectNothingHeld();
  for (int i = 0; i < 2; ++i) EXPECT_EQ(Metric(fleet.decode(i), "baton_decode_draft_model_blocks_held"), 0);
}

INSTANTIATE_TEST_SUITE_P(
    Drafters, SpeculationKillsTest,
    testing::Values(Drafts{.name = "all", .flags = {"--speculation", "auto"}, .tokens = 700},
                    Drafts{.name = "ngram", .flags = {"--speculation", "ngram"}},
                    Drafts{.name = "past_answers", .flags = {"--speculation", "past-answers"}, .twice = true},
                    Drafts{.name = "grammar", .flags = {"--speculation", "grammar"}, .grammar = true},
                    Drafts{.name = "draft_model",
                           .flags = {"--draft-model", kModel, "--speculation", "draft-model"},
                           .model = true},
                    Drafts{
                        .name = "self", .flags = {"--self-draft", "--speculation", "self"}, .model = true}),
    [](const auto& info) { return std::string(info.param.name); });

// The tokens of an answer that has no end of its own.
constexpr uint32_t kOneOfMany = 160;

// One of many requests at once, of several kinds. `accepted`: called once a worker has it.
FoldedAnswer AskOneOfMany(Fleet& fleet, int i, const std::function<void()>& accepted) {
  if (i % 5 == 4) {
    v1::ChatRequest request;
    v1::Conversation& conversation = *request.mutable_conversation();
    v1::Message& message = *conversation.add_messages();
    message.set_role("user");
    message.set_content("What is the weather in town " + std::to_string(i % 7) + "?");
    v1::Tool& tool = *conversation.add_tools();
    tool.set_name("get_weather");
    tool.set_parameters_json(R"({"type": "object", "properties": {"city": {"type": "string"}}})");
    request.mutable_sampling()->set_seed(static_cast<uint64_t>(i));
    request.mutable_stop()->set_max_tokens(60);
    request.mutable_output()->set_token_ids(true);
    return Fold(fleet, request, 0, accepted);
  }
  v1::GenerateRequest request = Repeating(i, kOneOfMany);
  if (i % 5 == 3) {
    request.mutable_stop()->set_ignore_eos(false);
    request.mutable_constraint()->set_regex("The (cat|dog|mat) sat on the [a-z]{3,9}( and [a-z]{2,7}){1,4}");
  }
  if (i % 7 == 0) request.mutable_stop()->add_stop("dog");
  return Fold(fleet, request, 0, accepted);
}

// Decode workers are killed under sixteen requests at once, again and again. BATON_SPECULATION_REQUESTS: how
// many requests in all, 64 without it.
void ExpectManyAnswersWhileWorkersAreKilled(const FleetOptions& drafting) {
  const char* const asked = std::getenv("BATON_SPECULATION_REQUESTS");
  const int requests = asked == nullptr ? 64 : std::atoi(asked);
  constexpr int kAtOnce = 16;
  const uint64_t seed = TestSeed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  // `disturb` is called once workers have all of them.
  const auto run = [](Fleet& fleet, int first, int count, const std::function<void()>& disturb) {
    std::vector<FoldedAnswer> answers(static_cast<size_t>(count));
    std::atomic<int> accepted = 0;
    std::vector<std::thread> clients;
    for (int i = 0; i < count; ++i) {
      clients.emplace_back([&, i] {
        answers[static_cast<size_t>(i)] = AskOneOfMany(fleet, first + i, [&accepted] { ++accepted; });
      });
    }
    EXPECT_TRUE(Await([&] { return accepted == count; }, "all requests at workers"));
    disturb();
    for (std::thread& client : clients) client.join();
    return answers;
  };
  std::vector<FoldedAnswer> plain;
  {
    Fleet fleet({.decode = 2, .decode_flags = {"--speculation", "off"}});
    for (int first = 0; first < requests; first += kAtOnce) {
      auto round = run(fleet, first, std::min(kAtOnce, requests - first), [] {});
      std::ranges::move(round, std::back_inserter(plain));
    }
  }
  Fleet fleet(drafting);
  std::mt19937_64 random(seed);
  uint32_t drafted = 0, accepted = 0, moved = 0, tokens = 0;
  for (int first = 0; first < requests; first += kAtOnce) {
    const int count = std::min(kAtOnce, requests - first);
    // After so many steps no answer is over that has no end of its own.
    constexpr int64_t kMost = 6;
    static_assert(1 + kMost * kStepTokens < kOneOfMany);
    const int64_t steps = kMost - static_cast<int64_t>(random() % 4);
    int victim = static_cast<int>(random() % 2);
    // Returns whether the worker, when it has made its steps, is held with answers that are not over.
    const auto is_in_the_middle = [&](int worker) {
      const auto left = [&] {
        const fleet::v1::Load load = LoadOf(fleet.decode(worker));
        return load.running() + load.queued();
      };
      const auto stands = [&] { return fleet.decode_gates()[worker].used() || left() == 0; };
      EXPECT_TRUE(Await(stands, "a worker that has made its steps"));
      return left() > 0;
    };
    fleet.decode_gates().Close();
    const auto answers = run(fleet, first, count, [&] {
      fleet.decode_gates().Allow(steps);
      if (!is_in_the_middle(victim)) victim = 1 - victim;
      EXPECT_TRUE(is_in_the_middle(victim));
      fleet.decode(victim).Signal(SIGKILL);
      fleet.decode_gates()[1 - victim].Open();
    });
    for (int i = 0; i < count; ++i) {
      SCOPED_TRACE(first + i);
      const FoldedAnswer &expected = plain[static_cast<size_t>(first + i)],
                         &seen = answers[static_cast<size_t>(i)];
      ASSERT_TRUE(expected.status.ok()) << expected.status.error_message();
      ASSERT_TRUE(seen.status.ok()) << seen.status.error_message();
      const v1::Finished& end = seen.answer.choices(0).finished();
      // Conversations begin with the same tools, so some of their prompts are cached. An answer whose worker
      // is lost before its first token finds cached what was computed for it.
      const bool once = end.relay().migrations() == 0 && end.relay().failovers() == 0;
      ExpectSame(expected.answer, seen.answer, (first + i) % 5 != 4 && once);
      drafted += end.usage().drafted_tokens();
      accepted += end.usage().accepted_tokens();
      tokens += end.usage().completion_tokens();
      moved += end.relay().migrations() > 0 ? 1 : 0;
    }
    if (testing::Test::HasFailure()) return;
    fleet.RestartDecode(victim);
    fleet.decode_gates().Open();
    fleet.AwaitWorkers(1, 2);
  }
  EXPECT_GT(moved, 0u);
  EXPECT_GT(accepted, 0u);
  std::printf("%d requests of %u tokens, %u answers moved, %u tokens drafted, %u accepted: none differs\n",
              requests, tokens, moved, drafted, accepted);
  fleet.ExpectNothingHeld();
}

TEST(SpeculationTest, ManyAnswersWhileWorkersAreKilled) {
  ExpectManyAnswersWhileWorkersAreKilled({.decode = 2,
                                          .decode_flags = {"--speculation", "auto", "--self-draft"},
                                          .gated = true,
                                          .drain_grace = "0.05"});
}

// Wrong tokens, ids that no model has, tokens outside of a grammar (lying_decode_main.cc).
TEST(SpeculationTest, DraftersThatLieChangeNoAnswer) {
  ExpectManyAnswersWhileWorkersAreKilled(
      {.decode = 2, .worker_folder = "../tests/lying/", .gated = true, .drain_grace = "0.05"});
}

// A worker says at its start what is wrong with a draft model, and what to do.
TEST(SpeculationTest, ADraftModelThatCannotDraftIsRefusedAtTheStart) {
  const auto refused = [](std::vector<std::string> flags) {
    flags.insert(flags.end(), {"--model", kModel, "--threads", "1", "--kv-memory", "16MiB"});
    auto child = cli::Child::Spawn(BATON_BINARY_DIR "/bin/baton-decode", flags);
    EXPECT_TRUE(child.ok()) << child.status();
    std::string errors;
    std::optional<cli::ExitStatus> status;
    while (!status.has_value()) {
      pollfd fds[2] = {{child->ended_fd(), POLLIN, 0}, {child->error_fd(), POLLIN, 0}};
      if (poll(fds, 2, Scaled(20'000)) <= 0) break;
      char buffer[4096];
      for (ssize_t n; (n = read(child->error_fd(), buffer, sizeof(buffer))) > 0;) {
        errors.append(buffer, static_cast<size_t>(n));
      }
      if ((fds[0].revents & POLLIN) != 0) status = child->Reap();
    }
    EXPECT_TRUE(status.has_value()) << "it runs";
    return std::pair(status.value_or(cli::ExitStatus{}).value, errors);
  };
  struct {
    std::vector<std::string> flags;
    std::string says;
  } const cases[] = {
      {{"--draft-model", "/no/such/folder"}, "--draft-model /no/such/folder"},
      {{"--speculation", "draft-model"}, "add --draft-model"},
      {{"--speculation", "self"}, "add --self-draft"},
      {{"--draft-model", kModel, "--self-draft"}, "leave out the other"},
      {{"--draft-model", kModel, "--speculation", "off"}, "use --speculation draft-model"},
      {{"--draft-model", kModel, "--speculation", "ngram,grammar"},
       "use --speculation ngram,grammar,draft-model"},
      {{"--speculation", "ngram,self"}, "add --self-draft"},
      {{"--draft-model", BATON_SOURCE_DIR "/models/baton-guard"}, "its vocabulary is"},
      {{"--self-draft", "--weights", "int4"}, "leave out --self-draft"},
  };
  for (const auto& [flags, says] : cases) {
    const auto [status, errors] = refused(flags);
    EXPECT_NE(status, 0) << says;
    EXPECT_NE(errors.find(says), std::string::npos) << errors;
  }
}

TEST(SpeculationTest, ARequestSaysWhetherAndTheUsageHowMany) {
  Fleet fleet;
  v1::GenerateRequest request = Repeating(0, 300);
  const FoldedAnswer drafts = Fold(fleet, request);
  ASSERT_TRUE(drafts.status.ok()) << drafts.status.error_message();
  const v1::Usage& usage = drafts.answer.choices(0).finished().usage();
  EXPECT_GT(usage.drafted_tokens(), 0u);
  EXPECT_GT(usage.accepted_tokens(), 0u);
  EXPECT_EQ(Metric(fleet.decode(), "baton_decode_drafted_tokens_total"), usage.drafted_tokens());
  EXPECT_EQ(Metric(fleet.decode(), "baton_decode_accepted_tokens_total"), usage.accepted_tokens());
  EXPECT_EQ(Metric(fleet.decode(), "baton_decode_accepted_tokens_by_position_total"),
            usage.accepted_tokens());
  EXPECT_EQ(Metric(fleet.router(), "baton_router_answer_tokens_total"), 300);

  request.mutable_options()->set_speculation(v1::SPECULATION_OFF);
  const FoldedAnswer plain = Fold(fleet, request);
  ASSERT_TRUE(plain.status.ok());
  ExpectSame(plain.answer, drafts.answer, false);

  // One token a delta.
  request.mutable_options()->set_speculation(v1::SPECULATION_NGRAM);
  request.mutable_output()->set_even_frames(true);
  grpc::ClientContext context;
  const auto reader = fleet.stub().Generate(&context, request);
  int deltas = 0;
  for (v1::GenerateResponse response; reader->Read(&response);) {
    if (!response.has_delta()) continue;
    ++deltas;
    EXPECT_EQ(response.delta().tokens(), 1u);
  }
  EXPECT_TRUE(reader->Finish().ok());
  EXPECT_EQ(deltas, 300);

  request.mutable_options()->set_speculation(static_cast<v1::Speculation>(77));
  const FoldedAnswer wrong = Fold(fleet, request);
  EXPECT_EQ(wrong.status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_NE(wrong.status.error_message().find("options.speculation: 77"), std::string::npos)
      << wrong.status.error_message();
}

// Two routers with different salts, as two tenants are, in front of the same worker.
TEST(SpeculationTest, PastAnswersAreOfATenantsOwn) {
  const auto salted = [](const std::string& name) {
    const std::string file = testing::TempDir() + "/speculation_salt_" + name;
    std::ofstream(file) << name << std::string(32, 's');
    return file;
  };
  Fleet fleet({.prefill = 0,
               .decode_flags = {"--speculation", "past-answers"},
               .router_flags = {"--tenant-salt-file", salted("a")}});
  const Process other("baton-router",
                      {"--model", kModel, "--decode", fleet.decode().grpc(), "--listen", "127.0.0.1:0",
                       "--metrics", "127.0.0.1:0", "--tenant-salt-file", salted("b")});
  const auto others =
      v1::Inference::NewStub(grpc::CreateChannel(other.grpc(), grpc::InsecureChannelCredentials()));
  const v1::GenerateRequest request = Repeating(0, 200);
  const auto drafted = [&](v1::Inference::Stub& stub) {
    grpc::ClientContext context;
    context.set_wait_for_ready(true);
    v1::GenerateUnaryRequest whole;
    *whole.mutable_generate() = request;
    v1::GenerateUnaryResponse answer;
    const grpc::Status status = stub.GenerateUnary(&context, whole, &answer);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return status.ok() ? answer.choices(0).finished().usage().drafted_tokens() : 0;
  };
  EXPECT_EQ(drafted(fleet.stub()), 0u) << "nothing was answered before";
  EXPECT_EQ(drafted(*others), 0u) << "another tenant's answer was copied";
  EXPECT_GT(drafted(fleet.stub()), 0u);
  EXPECT_GT(drafted(*others), 0u);
}

}  // namespace
}  // namespace baton::e2e
