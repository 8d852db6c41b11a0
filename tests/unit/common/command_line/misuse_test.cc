// The messages for a command line that makes no sense.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "common/command_line/explain.h"
#include "common/command_line/option_types.h"

namespace baton::command_line {
namespace {

using ::testing::HasSubstr;

// A command like ours, with one of each kind of option.
class MisuseTest : public ::testing::Test {
 protected:
  MisuseTest() {
    app_.require_subcommand(1);
    CLI::App* serve = app_.add_subcommand("serve", "");
    serve->add_option("--model", model_, "")->required();
    serve->add_option("--threads", threads_, "")->check(CLI::Range(1, 1024));
    serve->add_option("--rate", rate_, "")->check(CLI::PositiveNumber);
    serve->add_option("--backend", backend_, "")->check(CLI::IsMember({"cpu", "reference"}));
    serve->add_option("--seed", seed_, "")->transform(WholeNumber());
    serve->add_option("--listen", listen_, "")->check(Address());
    serve->add_option("--guess", guess_, "")->check(OneOrSeveral({"off", "auto"}, {"a", "b", "c"}));
    CLI::App* key = app_.add_subcommand("key", "");
    key->require_subcommand(1);
    key->add_subcommand("new", "");
  }

  // "" if nothing is wrong with it.
  std::string Said(std::vector<std::string> arguments) {
    std::reverse(arguments.begin(), arguments.end());
    try {
      app_.parse(arguments);
    } catch (const CLI::ParseError& error) {
      return Explain(app_, error);
    }
    return "";
  }

  CLI::App app_{"", "tool"};
  std::string model_, backend_, listen_, guess_;
  int threads_ = 0;
  double rate_ = 0;
  uint64_t seed_ = 0;
};

TEST_F(MisuseTest, AnUnknownCommandIsNamedWithTheOneThatWasMeant) {
  EXPECT_EQ(Said({"sevre", "--model", "m"}),
            "tool: tool has no command \"sevre\"; did you mean serve?\nSee `tool --help`.\n");
  EXPECT_THAT(Said({"frobnicate"}), HasSubstr("tool has no command \"frobnicate\": it has serve, key"));
  EXPECT_THAT(Said({"key", "nwe"}),
              HasSubstr("key has no command \"nwe\"; did you mean new?\nSee `tool key --help`"));
}

TEST_F(MisuseTest, AnUnknownOptionComesBeforeWhatIsMissing) {
  EXPECT_EQ(Said({"serve", "--modle", "m"}),
            "tool: serve has no option \"--modle\"; did you mean --model?\nSee `tool serve --help`.\n");
  EXPECT_THAT(Said({"serve", "--modle=m"}), HasSubstr("no option \"--modle\"; did you mean --model?"));
  EXPECT_THAT(Said({"serve", "--quux"}), HasSubstr("serve has no option \"--quux\"\n"));
  EXPECT_THAT(Said({"serve", "--model", "m", "please"}), HasSubstr("serve takes no argument \"please\""));
  EXPECT_THAT(Said({"--model", "m", "serve"}),
              HasSubstr("--model belongs behind the command: tool serve --model"));
}

TEST_F(MisuseTest, WhatIsMissingIsNamed) {
  EXPECT_THAT(Said({}), HasSubstr("tool needs a command: serve, key"));
  EXPECT_THAT(Said({"key"}), HasSubstr("key needs a command: new"));
  EXPECT_THAT(Said({"serve"}), HasSubstr("--model is required"));
  EXPECT_THAT(Said({"serve", "--model"}), HasSubstr("--model needs a value"));
  EXPECT_THAT(Said({"serve", "--model", "a", "--model", "b"}), HasSubstr("--model is given more than once"));
}

TEST_F(MisuseTest, ABadValueIsShownWithWhatIsTaken) {
  const auto serve = [this](const std::string& option, const std::string& value) {
    return Said({"serve", "--model", "m", option, value});
  };
  EXPECT_THAT(serve("--threads", "0"), HasSubstr("--threads: \"0\" is not a whole number from 1 to 1024"));
  EXPECT_THAT(serve("--threads", "many"),
              HasSubstr("--threads: \"many\" is not a whole number from 1 to 1024"));
  EXPECT_THAT(serve("--rate", "-1"), HasSubstr("--rate: \"-1\" is not a number above 0"));
  EXPECT_THAT(serve("--backend", "cup"),
              HasSubstr("--backend: \"cup\" is not one of cpu, reference; did you mean cpu?"));
  EXPECT_THAT(serve("--listen", "8470"), HasSubstr("--listen: \"8470\" is not an address"));
  EXPECT_THAT(serve("--listen", "h:70000"), HasSubstr("is not an address"));
  EXPECT_THAT(serve("--listen", "::1:80"), HasSubstr("is not an address"));
  for (const char* right : {"127.0.0.1:0", "[::1]:80", "unix:/tmp/x", "name:8470"}) {
    EXPECT_EQ(serve("--listen", right), "") << right;
  }
}

TEST_F(MisuseTest, OneWordOrSeveralOfOthers) {
  const auto guess = [this](const std::string& value) {
    return Said({"serve", "--model", "m", "--guess", value});
  };
  for (const char* right : {"off", "auto", "a", "c,a", "a,b,c"}) {
    EXPECT_EQ(guess(right), "") << right;
    EXPECT_EQ(guess_, right);
  }
  EXPECT_THAT(guess("d"),
              HasSubstr("--guess: \"d\" is neither off nor auto, nor some of a, b, c with commas"));
  for (const char* wrong : {"", "off,a", "a,auto", "a,", ",a", "a, b", "off,off"}) {
    EXPECT_THAT(guess(wrong), HasSubstr("is neither off nor auto")) << wrong;
  }
  EXPECT_THAT(guess("a,b,a"), HasSubstr("--guess: \"a,b,a\" has a twice"));
}

TEST_F(MisuseTest, WholeNumbersAreWhatTheySay) {
  for (const char* wrong : {"-1", "18446744073709551616", "1e3", "0x10", "", " 1", "1.5"}) {
    EXPECT_THAT(Said({"serve", "--model", "m", "--seed", wrong}), HasSubstr("is not a whole number"))
        << wrong;
  }
  EXPECT_EQ(Said({"serve", "--model", "m", "--seed", "18446744073709551615"}), "");
  EXPECT_EQ(seed_, UINT64_MAX);
  EXPECT_EQ(Said({"serve", "--model", "m", "--seed", "010"}), "");
  EXPECT_EQ(seed_, 10u) << "nobody writes octal";
}

}  // namespace
}  // namespace baton::command_line
