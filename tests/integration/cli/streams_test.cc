// Standard streams that don't take what is written: full disks, pipes whose readers have gone, closed
// descriptors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/fakes/fake_inference.h"
#include "tests/integration/cli/baton_process.h"

namespace baton::cli {
namespace {

using fakes::AnswerWith;
using fakes::FakeInference;
using ::testing::HasSubstr;

class StreamTest : public ::testing::TestWithParam<Sink> {
 protected:
  std::vector<std::string> With(std::vector<std::string> arguments) const {
    arguments.insert(arguments.end(), {"--server", server_.address()});
    return arguments;
  }

  FakeInference server_;
};

std::string NameOf(const ::testing::TestParamInfo<Sink>& sink) {
  switch (sink.param) {
    case Sink::kFull:
      return "Full";
    case Sink::kGone:
      return "Gone";
    case Sink::kClosed:
      return "Closed";
    case Sink::kRead:
      break;
  }
  return "Read";
}

class StandardErrorTest : public StreamTest {};
INSTANTIATE_TEST_SUITE_P(, StandardErrorTest, ::testing::Values(Sink::kFull, Sink::kGone, Sink::kClosed),
                         NameOf);

TEST_P(StandardErrorTest, CommandsGoOnWithoutIt) {
  const Outcome generate =
      RunBaton(With({"generate", "-p", "x", "-m", "2", "--show-timing", "--digest", "--logprobs", "1"}), "",
               Sink::kRead, GetParam());
  EXPECT_EQ(generate.code, 0);
  EXPECT_EQ(generate.out, "t0 t1 \n");

  const Outcome chat =
      RunBaton(With({"chat", "--show-timing"}), "a\n/stats\n/nonsense\n/help\nb\n", Sink::kRead, GetParam());
  EXPECT_EQ(chat.code, 0);
  EXPECT_EQ(chat.out, "you said: a\nyou said: b\n");

  const Outcome bench = RunBaton(With({"bench", "-c", "2", "--requests", "4", "--prompt-tokens", "8",
                                       "--output-tokens", "2", "--json", "-"}),
                                 "", Sink::kRead, GetParam());
  EXPECT_EQ(bench.code, 0);
  EXPECT_FALSE(nlohmann::json::parse(bench.out, nullptr, false).is_discarded()) << bench.out;

  const Outcome misuse = RunBaton({"generate", "--no-such-flag"}, "", Sink::kRead, GetParam());
  EXPECT_EQ(misuse.code, 2);
}

class StandardOutputTest : public StreamTest {};
INSTANTIATE_TEST_SUITE_P(, StandardOutputTest, ::testing::Values(Sink::kFull, Sink::kGone, Sink::kClosed),
                         NameOf);

TEST_P(StandardOutputTest, AnAnswerThatWasNotWrittenIsAnError) {
  const std::vector<std::vector<std::string>> commands = {
      With({"generate", "-p", "x", "-m", "2"}),
      With({"generate", "-p", "x", "-m", "2", "--json"}),
      With({"generate", "-p", "x", "-m", "2", "--ids-out"}),
      With({"chat", "--message", "hi"}),
      With({"bench", "-c", "1", "--requests", "2", "--prompt-tokens", "8", "--output-tokens", "2"}),
      {"model", "inspect", BATON_SOURCE_DIR "/models/baton-tiny"},
      {"version"},
      {"--help"},
  };
  for (const std::vector<std::string>& command : commands) {
    const Outcome outcome = RunBaton(command, "", GetParam());
    EXPECT_EQ(outcome.code, 1) << command[0] << ": " << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr("written to standard output")) << command[0];
  }
  const Outcome both = RunBaton(With({"generate", "-p", "x"}), "", GetParam(), GetParam());
  EXPECT_EQ(both.code, 1);
}

TEST(StandardOutputGoneTest, AnAnswerThatNobodyReadsIsCancelled) {
  FakeInference server({.generate = [](const v1::GenerateRequest&) {
    fakes::Script script = AnswerWith({1, 2, 3}, 1);
    script.steps.back().wait = absl::InfiniteDuration();
    return script;
  }});
  const Outcome outcome = RunBaton({"generate", "--server", server.address(), "-p", "x"}, "", Sink::kGone);
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("standard output: Broken pipe"));
  EXPECT_TRUE(server.WaitForCancelled(1));
}

}  // namespace
}  // namespace baton::cli
