// Every binary, as somebody who mistypes it: help and version, words in place of the parser's own, exit
// code 2.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <iterator>
#include <sstream>
#include <tuple>

#include "tests/integration/cli/baton_process.h"

namespace baton::cli {
namespace {

using ::testing::AnyOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

const std::vector<std::string> kServers = {"baton-router", "baton-prefill", "baton-decode"};

std::vector<std::string> Words(const std::string& line) {
  std::istringstream stream(line);
  return {std::istream_iterator<std::string>(stream), {}};
}

// A file without a bound, or a bound without a file.
TEST(MisuseTest, ExpertsOutsideMemoryTakeBothFlags) {
  for (const auto& [flag, value, lacks] : {std::tuple("--expert-file", "x", "--expert-memory"),
                                           std::tuple("--expert-memory", "1GiB", "--expert-file")}) {
    for (const std::vector<std::string>& command : {std::vector<std::string>{"baton-prefill"},
                                                    {"baton-decode"},
                                                    {"baton", "serve"},
                                                    {"baton", "chat"}}) {
      std::vector<std::string> arguments(command.begin() + 1, command.end());
      arguments.insert(arguments.end(), {"--model", kModel, flag, value});
      const Outcome outcome = RunProgram(command[0], arguments);
      EXPECT_EQ(outcome.code, 2) << command.back();
      EXPECT_THAT(outcome.err, HasSubstr(std::string(flag) + " requires " + lacks)) << command.back();
    }
  }
}

TEST(MisuseTest, EveryBinarySaysItsVersion) {
  for (const std::string program : {"baton", "baton-router", "baton-prefill", "baton-decode"}) {
    const Outcome outcome = RunProgram(program, {"--version"});
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_THAT(outcome.out, ContainsRegex("^" + program + " [0-9]+\\.[0-9]+\\.[0-9]+ \\(commit "));
  }
}

TEST(MisuseTest, HelpHasNoneOfTheParsersOwnWords) {
  std::vector<std::pair<std::string, std::vector<std::string>>> pages;
  for (const std::string& server : kServers) pages.push_back({server, {"--help"}});
  for (const char* page :
       {"--help", "serve --help", "chat --help", "generate --help", "explain --help", "bench --help",
        "health --help", "key --help", "key new --help", "model --help", "model inspect --help",
        "model prune --help", "plan --help", "simulate --help", "version --help"}) {
    pages.push_back({"baton", Words(page)});
  }
  // A text is what these take; nothing else is.
  const auto texts = ContainsRegex("(--(prompt|stop|message|system)|/system|/result|^  prompt) TEXT");
  const auto own =
      ContainsRegex("\\b(TEXT|INT|UINT|FLOAT|ENUM|BOOLEAN|POSITIVE|NONNEGATIVE|REQUIRED)\\b|->|\\bin \\[");
  for (const auto& [program, arguments] : pages) {
    const Outcome outcome = RunProgram(program, arguments);
    EXPECT_EQ(outcome.code, 0);
    EXPECT_GT(outcome.out.size(), 50u);
    std::istringstream lines(outcome.out);
    for (std::string line; std::getline(lines, line);) {
      EXPECT_THAT(line, AnyOf(texts, Not(own))) << program;
      for (const char c : line) EXPECT_GE(static_cast<unsigned char>(c), 0x20) << program << ": " << line;
    }
  }
}

TEST(MisuseTest, EveryBinaryEndsWithTwoAndSaysWhatWasMeant) {
  const Outcome command = RunBaton({"sevre", "--model", kModel});
  EXPECT_EQ(command.code, 2);
  EXPECT_EQ(command.err, "baton: baton has no command \"sevre\"; did you mean serve?\nSee `baton --help`.\n");
  const Outcome option = RunBaton({"generate", "--max-token", "3"});
  EXPECT_EQ(option.code, 2);
  EXPECT_THAT(option.err, HasSubstr("did you mean --max-tokens?"));
  for (const std::string& server : kServers) {
    const Outcome typo = RunProgram(server, {"--modle", kModel});
    EXPECT_EQ(typo.code, 2);
    EXPECT_THAT(typo.err,
                HasSubstr(server + ": " + server + " has no option \"--modle\"; did you mean --model?"));
    EXPECT_EQ(RunProgram(server, {}).code, 2);
    EXPECT_EQ(RunProgram(server, {"--model", "/nowhere"}).code, 2);
  }
}

TEST(MisuseTest, AServerEndsWithTwoWhereFlagsMakeNoSense) {
  const auto misuse = [](const std::string& server, std::vector<std::string> flags) {
    std::vector<std::string> all = {"--model", kModel};
    all.insert(all.end(), flags.begin(), flags.end());
    const Outcome outcome = RunProgram(server, all);
    EXPECT_EQ(outcome.code, 2) << server << " " << flags.front() << ": " << outcome.err;
    return outcome.err;
  };
  for (const std::string& server : kServers) {
    EXPECT_THAT(misuse(server, {"--listen", "8470"}), HasSubstr("--listen: \"8470\" is not an address"));
    EXPECT_THAT(misuse(server, {"--metrics", "nine"}), HasSubstr("is not an address"));
    EXPECT_THAT(misuse(server, {"--log-level", "loud"}), HasSubstr("one of debug, info, warn, error, off"));
    EXPECT_THAT(misuse(server, {"--tls-cert", "x.pem"}), HasSubstr("give both or neither"));
  }
  // Its router could reach no worker.
  const Outcome serve = RunBaton({"serve", "--model", kModel, "--tls-cert", "x.pem", "--tls-key", "x.key"});
  EXPECT_EQ(serve.code, 2);
  EXPECT_THAT(serve.err, HasSubstr("--tls-cert needs --tls-ca"));
  EXPECT_THAT(misuse("baton-decode", {"--link-floor-gbps", "5"}), HasSubstr("add --link-peers"));
  EXPECT_THAT(misuse("baton-decode", {"--key-dtype", "f12"}), HasSubstr("one of f32, bf16, f16, f8, i8, i4"));
  EXPECT_THAT(misuse("baton-router", {"--policy", "random"}),
              HasSubstr("\"random\" is not one of prefix_affinity"));
  EXPECT_THAT(misuse("baton-router", {"--log-level", "warn"}), HasSubstr("give --decode or --fleet-file"));
}

TEST(MisuseTest, NumbersThatAreNoneAreRefused) {
  const auto refused = [](const std::string& option, const std::string& value) {
    const Outcome outcome = RunBaton({"generate", "--server", "127.0.0.1:1", "--prompt", "x", option, value});
    EXPECT_EQ(outcome.code, 2) << option << " " << value << ": " << outcome.err;
    return outcome.err;
  };
  EXPECT_THAT(refused("--seed", "-1"), HasSubstr("--seed: \"-1\" is not a whole number from 0 to"));
  EXPECT_THAT(refused("--seed", "18446744073709551616"), HasSubstr("is not a whole number"));
  for (const char* option : {"--token-ids", "--stop-token-ids"}) {
    EXPECT_THAT(refused(option, ""), HasSubstr("\"\" at place 1 is not a token id"));
    EXPECT_THAT(refused(option, "5,,6"), HasSubstr("\"\" at place 2 is not a token id"));
    EXPECT_THAT(refused(option, "5,-6"), HasSubstr("\"-6\" at place 2"));
    EXPECT_THAT(refused(option, "2147483648"), HasSubstr("2147483648"));
  }
  for (const char* command : {"bench", "simulate"}) {
    EXPECT_EQ(RunBaton({command, "--seed", "-1"}).code, 2) << command;
  }
}

TEST(MisuseTest, CommandsOfTheLabAreRunByItsBinary) {
  const std::string help = RunBaton({"--help"}).out;
  for (const std::string command : {"bench", "eval", "plan", "simulate"}) {
    EXPECT_THAT(help, HasSubstr("  " + command + " "));
    EXPECT_THAT(RunBaton({command, "--help"}).out, HasSubstr("Usage: baton " + command + " "));
  }
  // Without that binary beside it.
  namespace fs = std::filesystem;
  const fs::path alone = fs::path(BATON_BINARY_DIR) / "tests" / "alone";
  fs::create_directories(alone);
  fs::remove(alone / "baton");
  fs::create_hard_link(fs::path(BATON_BINARY_DIR) / "bin" / "baton", alone / "baton");
  const Outcome outcome = RunProgram("../tests/alone/baton", {"bench"});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.err, ContainsRegex("`baton bench` is run by .*/alone/baton-lab: No such file"));
  EXPECT_EQ(RunProgram("../tests/alone/baton", {"version"}).code, 0);
}

// As somebody who copies them from the page, in the source's folder.
TEST(MisuseTest, TheExamplesOfPlanRun) {
  const std::string help = RunBaton({"plan", "--help"}).out;
  const size_t begin = help.find("baton plan", help.find("Examples:"));
  ASSERT_NE(begin, std::string::npos);
  std::vector<std::string> words = Words(help.substr(begin, help.find('\n', begin) - begin));
  words.erase(words.begin());
  for (std::string& word : words) {
    if (word.starts_with("deploy/")) word = std::string(BATON_SOURCE_DIR "/") + word;
  }
  const Outcome outcome = RunBaton(words);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("Helm: --set prefill.replicas="));
}

}  // namespace
}  // namespace baton::cli
