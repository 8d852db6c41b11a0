// `baton chat` on a terminal, as a person uses it: keys, pastes, signals, long lines; against a scripted
// server.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include <string>

#include "tests/fakes/fake_inference.h"
#include "tests/integration/cli/baton_process.h"

namespace baton::cli {
namespace {

using fakes::AnswerWith;
using fakes::FakeInference;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kLeft[] = "\x1b[D";
constexpr char kUp[] = "\x1b[A";
constexpr char kDown[] = "\x1b[B";
constexpr char kCtrlA[] = "\x01";
constexpr char kCtrlC[] = "\x03";
constexpr char kCtrlE[] = "\x05";
constexpr char kCtrlK[] = "\x0b";
constexpr char kCtrlR[] = "\x12";
constexpr char kCtrlW[] = "\x17";
constexpr char kAltEnter[] = "\x1b\r";

std::string Pasted(const std::string& text) { return "\x1b[200~" + text + "\x1b[201~"; }

// Printable, without a period that a lost piece could hide behind.
std::string LongText(size_t size) {
  std::string text;
  for (int i = 0; text.size() < size; ++i) text += std::to_string(i) + ' ';
  text.resize(size);
  text.back() = '.';
  return text;
}

class ChatTerminalTest : public ::testing::Test {
 protected:
  explicit ChatTerminalTest(fakes::FakeInferenceOptions options = {})
      : server_(std::move(options)), baton_({"chat", "--server", server_.address()}) {}

  void SetUp() override { ASSERT_TRUE(baton_.WaitFor("/help for help")) << baton_.seen(); }

  // Types `keys` and Enter, and waits for the next prompt. What the server was asked; "" if nothing came.
  std::string Ask(const std::string& keys) {
    baton_.Type(keys + "\r");
    if (!baton_.WaitFor("you said: ") || !baton_.WaitFor("\n> ")) return "";
    const v1::ChatRequest request = server_.chat_requests().back();
    return request.conversation().messages().rbegin()->content();
  }

  FakeInference server_;
  BatonOnTerminal baton_;
};

TEST_F(ChatTerminalTest, KeysEditTheLine) {
  EXPECT_EQ(Ask(std::string("helo") + kLeft + "l"), "hello");
  EXPECT_EQ(Ask(std::string("world") + kCtrlA + "hello "), "hello world");
  EXPECT_EQ(Ask(std::string("one two three") + kCtrlW + kCtrlW + "2"), "one 2");
  EXPECT_EQ(Ask(std::string("gone") + kCtrlA + kCtrlK + "kept"), "kept");
  // Whatever the locale, a character is one: two are taken back.
  EXPECT_EQ(Ask("gr\xc3\xbc\xe2\x82\xac\x7f\x7f\xc3\xa4"), "gr\xc3\xa4");
}

TEST_F(ChatTerminalTest, WhatWasTypedComesBack) {
  EXPECT_EQ(Ask("first"), "first");
  EXPECT_EQ(Ask("second"), "second");
  EXPECT_EQ(Ask(kUp), "second");
  EXPECT_EQ(Ask(std::string(kUp) + kUp + " again"), "first again");
  EXPECT_EQ(Ask(std::string("dra") + kUp + kUp + kDown + kDown + "ft"), "draft");
  EXPECT_EQ(Ask(std::string(kUp) + kUp + kDown + kDown + "empty"), "empty") << "an empty draft";
  EXPECT_EQ(Ask(std::string(kCtrlR) + "seco\x1b" + kCtrlE + "!"), "second!");
  // Longer than the line editor's own buffer.
  const std::string draft = LongText(3000);
  EXPECT_EQ(Ask(draft + kUp + kDown), draft);
}

TEST_F(ChatTerminalTest, APasteIsOneTurn) {
  EXPECT_EQ(Ask(Pasted("one\rtwo\r\n\rthree\r")), "one\ntwo\n\nthree");
  EXPECT_EQ(Ask("see: " + Pasted("a\tb \x1b[31m") + kLeft + kLeft + "_"), "see: a\tb [3_1m")
      << "control characters stay outside";
  EXPECT_EQ(Ask(kUp + std::string("!")), "see: a\tb [3_1m!");
  EXPECT_EQ(Ask(Pasted("above\rbelow") + kUp + kCtrlA + "> "), "> above\nbelow")
      << "up goes through the text";
  EXPECT_EQ(Ask(std::string("a") + kAltEnter + "b"), "a\nb");
  EXPECT_EQ(server_.chat_requests().size(), 5u);
}

TEST_F(ChatTerminalTest, ALongLineIsNotCut) {
  const std::string line = LongText(20'000);
  EXPECT_EQ(Ask(line), line);
  EXPECT_EQ(Ask(Pasted(line + "\r" + line)), line + "\n" + line);
  EXPECT_EQ(Ask(kUp), line + "\n" + line) << "nor in the history";
}

class SlowAnswerTest : public ChatTerminalTest {
 protected:
  SlowAnswerTest()
      : ChatTerminalTest({.chat = [](const v1::ChatRequest& request) {
          if (request.conversation().messages().rbegin()->content() != "slow") return AnswerWith({9}, 1);
          return AnswerWith({1, 2, 3, 4, 5, 6}, 1, absl::ZeroDuration(), absl::Milliseconds(200));
        }}) {}
};

TEST_F(SlowAnswerTest, WhatIsTypedDuringAnAnswerWaitsForThePrompt) {
  const std::string line = LongText(20'000);
  baton_.Type("slow\r");
  ASSERT_TRUE(baton_.WaitFor("t1 ")) << baton_.seen();
  baton_.Type(line + "\r");
  ASSERT_TRUE(baton_.WaitFor("t6 ")) << baton_.seen();
  ASSERT_TRUE(baton_.WaitFor("t9 ")) << baton_.seen();
  EXPECT_THAT(baton_.seen(), HasSubstr("t1 t2 t3 t4 t5 t6 ")) << "the answer stays whole";
  EXPECT_EQ(server_.chat_requests().at(1).conversation().messages().rbegin()->content(), line);
}

TEST_F(ChatTerminalTest, CtrlCGivesUpTheLineAndNothingElse) {
  // The terminal drops what nobody has read when Ctrl-C is typed.
  baton_.Type("not this");
  ASSERT_TRUE(baton_.WaitFor("not this")) << baton_.seen();
  baton_.Type(kCtrlC);
  ASSERT_TRUE(baton_.WaitFor("^C")) << baton_.seen();
  EXPECT_EQ(Ask("but this"), "but this");
  baton_.Type(kCtrlC);
  ASSERT_TRUE(baton_.WaitFor("Ctrl-C again")) << baton_.seen();
  baton_.Type("nor that");
  ASSERT_TRUE(baton_.WaitFor("nor that")) << baton_.seen();
  baton_.Type(kCtrlC);
  ASSERT_TRUE(baton_.WaitFor("^C")) << baton_.seen();
  EXPECT_EQ(Ask("still here"), "still here");
}

TEST_F(ChatTerminalTest, TheTerminalIsGivenBack) {
  EXPECT_FALSE(baton_.IsCooked());
  EXPECT_THAT(baton_.seen(), HasSubstr("\x1b[?2004h"));
  baton_.Type("/quit\r");
  EXPECT_EQ(baton_.Wait(), 0);
  EXPECT_TRUE(baton_.IsCooked());
  EXPECT_THAT(baton_.seen(), HasSubstr("\x1b[?2004l"));
}

TEST_F(ChatTerminalTest, TheTerminalIsGivenBackByASignalToo) {
  kill(baton_.pid(), SIGTERM);
  EXPECT_EQ(baton_.Wait(), -1);
  EXPECT_TRUE(baton_.IsCooked());
}

TEST_F(ChatTerminalTest, CtrlZGivesTheTerminalBackUntilItGoesOn) {
  baton_.Type("be");
  ASSERT_TRUE(baton_.WaitFor("be")) << baton_.seen();
  kill(baton_.pid(), SIGTSTP);
  int status = 0;
  ASSERT_EQ(waitpid(baton_.pid(), &status, WUNTRACED), baton_.pid());
  ASSERT_TRUE(WIFSTOPPED(status));
  EXPECT_TRUE(baton_.IsCooked());
  kill(baton_.pid(), SIGCONT);
  ASSERT_TRUE(baton_.WaitFor("> be")) << "the line is drawn again: " << baton_.seen();
  EXPECT_EQ(Ask("fore"), "before");
}

TEST(ChatContextTest, AFullContextNamesReset) {
  FakeInference server({.chat =
                            [](const v1::ChatRequest& request) {
                              const std::string text = request.conversation().messages().rbegin()->content();
                              if (text == "much") return AnswerWith({1, 2, 3}, 97);
                              if (text == "too much" || text == "nonsense") {
                                return fakes::Script{{}, absl::InvalidArgumentError("prompt: no")};
                              }
                              return AnswerWith({1}, 1);
                            },
                        .tokens =
                            [](const v1::Conversation& conversation) {
                              return conversation.messages().rbegin()->content() == "too much" ? 100 : 99;
                            },
                        .context_tokens = 100});
  BatonOnTerminal baton({"chat", "--server", server.address(), "--overflow", "refuse"});
  const std::string hint = "the conversation fills the context of 100 tokens: /reset begins a new one";
  baton.Type("too much\r");
  ASSERT_TRUE(baton.WaitFor("prompt: no")) << baton.seen();
  baton.Type("little\r");
  ASSERT_TRUE(baton.WaitFor("t1 ")) << baton.seen();
  baton.Type("nonsense\r");
  ASSERT_TRUE(baton.WaitFor("prompt: no")) << baton.seen();
  EXPECT_THAT(baton.seen(), Not(HasSubstr("/reset")))
      << "neither a first message nor another error is helped by it";
  baton.Type("too much\r");
  ASSERT_TRUE(baton.WaitFor(hint)) << baton.seen();
  baton.Type("much\r");
  ASSERT_TRUE(baton.WaitFor("t3 ")) << baton.seen();
  ASSERT_TRUE(baton.WaitFor(hint)) << "an answer that was cut: " << baton.seen();
  baton.Type("/reset\r");
  ASSERT_TRUE(baton.WaitFor("a new conversation")) << baton.seen();
}

}  // namespace
}  // namespace baton::cli
