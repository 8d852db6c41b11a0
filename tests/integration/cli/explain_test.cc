// `baton explain` against a scripted server, and with a relay of its own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "absl/synchronization/notification.h"
#include "tests/fakes/fake_inference.h"
#include "tests/integration/cli/baton_process.h"

namespace baton::cli {
namespace {

using fakes::AnswerWith;
using fakes::FakeInference;
using fakes::Script;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

// Two tokens with their traces, and KV over a link.
Script ExplainedAnswer() {
  Script script = AnswerWith({5, 6}, 3);
  for (size_t i : {1, 2}) {
    v1::SamplingTrace& trace = *script.steps[i].event.mutable_delta()->add_sampling();
    trace.set_how(v1::SamplingTrace::HOW_DRAWN);
    trace.set_token_id(static_cast<int32_t>(4 + i));
    trace.set_vocabulary(1000);
    trace.set_after_constraint(1000);
    trace.set_after_temperature(1000);
    trace.set_after_top_k(50);
    trace.set_after_top_p(9);
    trace.set_after_min_p(9);
    trace.set_uniform(0.125);
    v1::TokenTrace& token = *trace.add_likeliest();
    token.set_token_id(trace.token_id());
    token.set_bytes(i == 1 ? " five" : "\xC3");
    token.set_drawn_probability(0.5f);
  }
  v1::Finished& finished = *script.steps.back().event.mutable_finished();
  finished.mutable_usage()->set_cached_tokens(2);
  finished.mutable_relay()->set_shipped_blocks(1);
  finished.mutable_relay()->set_shipped_bytes(16 * 100);
  return script;
}

TEST(ExplainCommandTest, ShowsThePromptThePhasesAndEachDraw) {
  FakeInference server({.generate = [](const v1::GenerateRequest&) { return ExplainedAnswer(); }});
  const Outcome outcome = RunBaton({"explain", "--server", server.address(), "cat", "--top-k", "50"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out,
              HasSubstr("The prompt has 3 tokens. The KV of 2 was cached, that of 1 was computed.\n"
                        "  cached    \"p0 \" 0  \"p1 \" 1\n"
                        "  computed  \"p2 \" 2\n"));
  EXPECT_THAT(outcome.out, HasSubstr("fake-decode"));
  EXPECT_THAT(outcome.out, HasSubstr("prefill queue"));
  EXPECT_THAT(outcome.out, HasSubstr("= TTFT"));
  EXPECT_THAT(outcome.out, HasSubstr("1 tokens x 100 bytes = 100 B of KV written"));
  EXPECT_THAT(outcome.out, HasSubstr("Token 1: \" five\" 5, drawn with the random number 0.125000"));
  EXPECT_THAT(outcome.out, HasSubstr("950 dropped"));
  EXPECT_THAT(outcome.out, HasSubstr("Token 2: \"\\xc3\" 6, drawn"));
  EXPECT_THAT(outcome.out, HasSubstr("The answer: \"t5 t6 \"\n"));
  EXPECT_THAT(outcome.out, Not(HasSubstr("\x1b["))) << "this is no terminal";
  const v1::GenerateRequest request = server.generate_requests().at(0);
  EXPECT_EQ(request.text(), "cat");
  EXPECT_TRUE(request.output().explain());
  EXPECT_EQ(request.stop().max_tokens(), 8u);
  EXPECT_EQ(request.sampling().top_k(), 50);
}

// The server has the prompt, and does not answer.
TEST(ExplainCommandTest, EndsAtAnInterruptBeforeTheAnswer) {
  absl::Notification asked, over;
  {
    FakeInference server({.tokens = [&](const v1::Conversation&) {
      asked.Notify();
      over.WaitForNotification();
      return 1;
    }});
    BatonOnTerminal baton({"explain", "--server", server.address(), "--chat", "hi"});
    asked.WaitForNotification();
    baton.Type("\x03");
    EXPECT_EQ(baton.Wait(), 1);
    EXPECT_THAT(baton.seen(), HasSubstr("cancelled"));
    over.Notify();
  }
}

TEST(ExplainCommandTest, JsonHasPromptAndTraces) {
  FakeInference server({.generate = [](const v1::GenerateRequest&) { return ExplainedAnswer(); }});
  const Outcome outcome =
      RunBaton({"explain", "--server", server.address(), "--json", "--max-tokens", "2"}, "ab");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const nlohmann::json json = nlohmann::json::parse(outcome.out);
  EXPECT_EQ(json["prompt"].dump(), R"([{"token":"p0 ","token_id":0},{"token":"p1 ","token_id":1}])");
  const nlohmann::json& traces = json["choices"][0]["sampling"];
  ASSERT_EQ(traces.size(), 2u);
  EXPECT_EQ(traces[0]["after_top_k"], 50);
  EXPECT_EQ(traces[0]["uniform"], 0.125);
  EXPECT_EQ(traces[1]["likeliest"][0]["bytes"], nlohmann::json::array({0xC3}));
  EXPECT_EQ(server.generate_requests().at(0).text(), "ab") << "from a pipe";
  EXPECT_EQ(server.generate_requests().at(0).stop().max_tokens(), 2u);
}

TEST(ExplainCommandTest, AChatIsAUsersMessage) {
  FakeInference server;
  const Outcome outcome = RunBaton({"explain", "--server", server.address(), "--chat", "Hi"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const v1::ChatRequest request = server.chat_requests().at(0);
  EXPECT_EQ(request.conversation().messages(0).role(), "user");
  EXPECT_EQ(request.conversation().messages(0).content(), "Hi");
  EXPECT_TRUE(request.output().explain());
  EXPECT_THAT(outcome.out, HasSubstr("The server tells no traces")) << "the fake is one without";
}

TEST(ExplainCommandTest, ARelayOfItsOwnDraws) {
  const Outcome outcome = RunBaton({"explain", "--model", kModel, "--threads", "1", "--kv-memory", "32MiB",
                                    "Once upon a time", "-m", "3", "--top-k", "7", "--seed", "1"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, ContainsRegex("computed +\".*Once\" [0-9]+  \" upon\" [0-9]+  \" a\" [0-9]+"));
  EXPECT_THAT(outcome.out, HasSubstr("  top-k               7 left"));
  EXPECT_THAT(outcome.out,
              ContainsRegex("Token 3: \"[^\n]*\" [0-9]+, drawn with the random number 0\\.[0-9]+"));
  EXPECT_THAT(outcome.out, ContainsRegex("-  top-k\n"));
}

}  // namespace
}  // namespace baton::cli
