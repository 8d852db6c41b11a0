// `baton chat` against a scripted server, from flags, from a pipe and on a terminal.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <fstream>
#include <string>
#include <vector>

#include "tests/fakes/fake_inference.h"
#include "tests/integration/cli/baton_process.h"

namespace baton::cli {
namespace {

using fakes::AnswerWith;
using fakes::FakeInference;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// "role: content" of each message.
std::vector<std::string> Turns(const v1::ChatRequest& request) {
  std::vector<std::string> turns;
  for (const v1::Message& message : request.conversation().messages()) {
    turns.push_back(message.role() + ": " + message.content());
  }
  return turns;
}

TEST(ChatTest, MessagesAreTurnsOfOneConversation) {
  FakeInference server;
  const Outcome outcome = RunBaton({"chat", "--server", server.address(), "--system", "Be brief.",
                                    "--message", "one", "--message", "two", "--thinking"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.out, "you said: one\nyou said: two\n");
  const std::vector<v1::ChatRequest> requests = server.chat_requests();
  ASSERT_EQ(requests.size(), 2u);
  EXPECT_THAT(Turns(requests[1]),
              ElementsAre("system: Be brief.", "user: one", "assistant: you said: one", "user: two"));
  EXPECT_TRUE(requests[1].thinking().enabled());
}

TEST(ChatTest, ModerationIsAskedForWithEachTurnOnlyIfSaid) {
  FakeInference server;
  EXPECT_EQ(RunBaton({"chat", "--server", server.address(), "--moderate"}, "one\ntwo\n").code, 0);
  EXPECT_EQ(RunBaton({"chat", "--server", server.address()}, "three\n").code, 0);
  const std::vector<v1::ChatRequest> requests = server.chat_requests();
  ASSERT_EQ(requests.size(), 3u);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(requests[i].options().moderation().policy(), v1::Moderation::POLICY_BLOCK);
    EXPECT_TRUE(requests[i].options().moderation().input());
  }
  EXPECT_FALSE(requests[2].options().has_moderation());
}

TEST(ChatTest, HowItIsDraftedGoesWithEachTurn) {
  FakeInference server;
  EXPECT_EQ(
      RunBaton({"chat", "--server", server.address(), "--speculation", "off", "--even-frames"}, "one\ntwo\n")
          .code,
      0);
  EXPECT_EQ(RunBaton({"chat", "--server", server.address()}, "three\n").code, 0);
  const std::vector<v1::ChatRequest> requests = server.chat_requests();
  ASSERT_EQ(requests.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(requests[i].output().even_frames(), i < 2);
    EXPECT_EQ(requests[i].options().speculation(), i < 2 ? v1::SPECULATION_OFF : v1::SPECULATION_UNSPECIFIED);
  }
}

TEST(ChatTest, ASchemaGoesWithEachTurn) {
  FakeInference server;
  const std::string file = testing::TempDir() + "/answer.schema.json";
  std::ofstream(file) << "{\"type\": \"object\"}";
  EXPECT_EQ(RunBaton({"chat", "--server", server.address(), "--schema", file}, "one\ntwo\n").code, 0);
  const std::vector<v1::ChatRequest> requests = server.chat_requests();
  ASSERT_EQ(requests.size(), 2u);
  for (const v1::ChatRequest& request : requests) {
    EXPECT_EQ(request.constraint().json_schema(), "{\"type\": \"object\"}");
  }
  const Outcome missing =
      RunBaton({"chat", "--server", server.address(), "--schema", file + ".not"}, "one\n");
  EXPECT_EQ(missing.code, 2);
  EXPECT_THAT(missing.err, HasSubstr("--schema"));
}

// Once for each cut, and of each kind of it.
TEST(ChatTest, SaysWhatIsLeftOutOfALongConversation) {
  std::atomic<int> turn = 0;
  fakes::FakeInferenceOptions options;
  options.chat = [&turn](const v1::ChatRequest&) {
    fakes::Script script = AnswerWith({1}, 10);
    v1::ContextReport& context = *script.steps.front().event.mutable_started()->mutable_context();
    switch (turn++) {
      case 0:
        break;
      case 1:
      case 2:
        context.set_dropped_messages(2);
        break;
      case 3:
        context.set_dropped_messages(4);
        break;
      case 4:
        context.set_cleared_tool_results(3);
        break;
      default:
        context.set_cleared_thinking(5);
    }
    return script;
  };
  FakeInference server(options);
  const Outcome outcome = RunBaton({"chat", "--server", server.address(), "--overflow", "drop-oldest"},
                                   "one\ntwo\nthree\nfour\nfive\nsix\n");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  const auto times = [&](const std::string& words) {
    int count = 0;
    for (size_t at = outcome.err.find(words); at != std::string::npos; at = outcome.err.find(words, at + 1)) {
      ++count;
    }
    return count;
  };
  const std::string why = "the conversation is longer than the model's context: ";
  EXPECT_EQ(times(why), 4) << outcome.err;
  EXPECT_EQ(times(why + "its 2 oldest messages are left out"), 1) << outcome.err;
  EXPECT_EQ(times(why + "its 4 oldest messages are left out"), 1) << outcome.err;
  EXPECT_EQ(times(why + "3 old results of tools are left out"), 1) << outcome.err;
  EXPECT_EQ(times(why + "the thinking of 5 old answers is left out"), 1) << outcome.err;
  for (const v1::ChatRequest& request : server.chat_requests()) {
    EXPECT_EQ(request.overflow().mode(), v1::Overflow::MODE_DROP_OLDEST);
  }
}

TEST(ChatTest, APipeIsOneTurnPerLineAndTakesCommands) {
  FakeInference server;
  const Outcome outcome =
      RunBaton({"chat", "--server", server.address()},
               "hi\n\n/system S\nagain\n/stats\n/reset\nfresh\n/nonsense\n//slash\n/quit\nnever\n");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.out, "you said: hi\nyou said: again\nyou said: fresh\nyou said: /slash\n");
  EXPECT_THAT(outcome.err, HasSubstr("TTFT"));
  EXPECT_THAT(outcome.err, HasSubstr("\"/nonsense\" is not a command"));
  const std::vector<v1::ChatRequest> requests = server.chat_requests();
  ASSERT_EQ(requests.size(), 4u);
  EXPECT_THAT(Turns(requests[1]),
              ElementsAre("system: S", "user: hi", "assistant: you said: hi", "user: again"));
  EXPECT_THAT(Turns(requests[2]), ElementsAre("system: S", "user: fresh"));
}

TEST(ChatTest, AnErrorEndsAPipe) {
  FakeInference server({.chat = [](const v1::ChatRequest&) {
    return fakes::Script{{}, absl::InvalidArgumentError("conversation.messages: the template refuses this")};
  }});
  const Outcome outcome = RunBaton({"chat", "--server", server.address()}, "a\nb\n");
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("the template refuses this"));
  EXPECT_EQ(server.chat_requests().size(), 1u);
}

TEST(ChatTest, ALineThatIsNotUtf8IsATurnAllTheSame) {
  FakeInference server;
  // Latin-1, and a character that is cut off.
  const Outcome outcome = RunBaton({"chat", "--server", server.address()},
                                   "caf\xe9 au lait\nnext\n\xe2\x82\n/system \xff\nlast\n");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.out,
            "you said: caf\xef\xbf\xbd au lait\nyou said: next\nyou said: \xef\xbf\xbd\nyou said: last\n");
  EXPECT_THAT(outcome.err, HasSubstr("were not UTF-8"));
  EXPECT_EQ(Turns(server.chat_requests().at(3)).front(), "system: \xef\xbf\xbd");
  EXPECT_EQ(RunBaton({"chat", "--server", server.address(), "--message", "\xff"}).code, 2);
}

TEST(ChatTest, AFullContextNamesResetInAPipeToo) {
  FakeInference server({.chat =
                            [](const v1::ChatRequest&) {
                              return AnswerWith({1, 2}, 98);
                            },
                        .context_tokens = 100});
  const Outcome outcome = RunBaton({"chat", "--server", server.address(), "--overflow", "refuse"}, "a\n");
  EXPECT_EQ(outcome.code, 0);
  EXPECT_THAT(outcome.err, HasSubstr("/reset begins a new one"));
  EXPECT_EQ(RunBaton({"chat", "--server", server.address(), "--message", "a"}).err, "");
}

TEST(ChatTest, EchoPrintsWhatIsAsked) {
  FakeInference server;
  const Outcome messages =
      RunBaton({"chat", "--server", server.address(), "--echo", "--message", "one", "--message", "two"});
  EXPECT_EQ(messages.out, "> one\nyou said: one\n> two\nyou said: two\n");
  EXPECT_EQ(RunBaton({"chat", "--server", server.address(), "--echo"}, "hi\n").out, "> hi\nyou said: hi\n");
}

TEST(ChatTest, CtrlCCancelsTheAnswerAndNothingElse) {
  FakeInference server({.chat = [](const v1::ChatRequest& request) {
    if (request.conversation().messages().rbegin()->content() != "endless") {
      return AnswerWith({9}, 1);
    }
    fakes::Script script = AnswerWith({1, 2}, 1);
    script.steps[2].wait = absl::InfiniteDuration();
    return script;
  }});
  BatonOnTerminal baton({"chat", "--server", server.address()});
  ASSERT_TRUE(baton.WaitFor("/help for help")) << baton.seen();
  baton.Type("endless\n");
  ASSERT_TRUE(baton.WaitFor("t1 ")) << baton.seen();
  baton.Type("\x03");
  ASSERT_TRUE(baton.WaitFor("(cancelled)")) << baton.seen();
  EXPECT_TRUE(server.WaitForCancelled(1));
  baton.Type("next\n");
  ASSERT_TRUE(baton.WaitFor("t9 ")) << baton.seen();
  // Text written before the cancel is part of the conversation.
  EXPECT_THAT(Turns(server.chat_requests().at(1)),
              ElementsAre("user: endless", "assistant: t1 ", "user: next"));
  baton.Type("/quit\n");
  EXPECT_EQ(baton.Wait(), 0) << baton.seen();
}

TEST(ChatTest, CtrlCAtThePromptAsksOnceThenLeaves) {
  FakeInference server;
  BatonOnTerminal baton({"chat", "--server", server.address()});
  ASSERT_TRUE(baton.WaitFor("> ")) << baton.seen();
  baton.Type("\x03");
  ASSERT_TRUE(baton.WaitFor("Ctrl-C again")) << baton.seen();
  baton.Type("\x03");
  EXPECT_EQ(baton.Wait(), 0);
}

TEST(ChatTest, AnErrorOnATerminalLetsThePersonGoOn) {
  FakeInference server({.chat = [](const v1::ChatRequest& request) {
    if (request.conversation().messages().rbegin()->content() == "bad") {
      return fakes::Script{{}, absl::ResourceExhaustedError("the queue is full")};
    }
    return AnswerWith({9}, 1);
  }});
  BatonOnTerminal baton({"chat", "--server", server.address()});
  baton.Type("bad\n");
  ASSERT_TRUE(baton.WaitFor("the queue is full")) << baton.seen();
  baton.Type("good\n");
  ASSERT_TRUE(baton.WaitFor("t9 ")) << baton.seen();
  EXPECT_THAT(Turns(server.chat_requests().at(1)), ElementsAre("user: good"))
      << "a failed turn leaves no trace";
  baton.Type("\x04");
  EXPECT_EQ(baton.Wait(), 0);
}

}  // namespace
}  // namespace baton::cli
