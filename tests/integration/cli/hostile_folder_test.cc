// A model folder that somebody else wrote: whatever its chat template and its tokenizer say, the router ends
// at once, says which folder it was, and takes no more memory than is allowed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/integration/cli/baton_process.h"

namespace baton::cli {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

// The shipped model with another chat template or tokenizer.
class HostileFolderTest : public ::testing::Test {
 protected:
  HostileFolderTest() : folder_(fs::path(::testing::TempDir()) / ("hostile-" + std::to_string(getpid()))) {
    fs::create_directories(folder_);
    for (const auto& file : fs::directory_iterator(kModel)) {
      if (file.is_regular_file())
        fs::create_symlink(fs::absolute(file.path()), folder_ / file.path().filename());
    }
  }
  ~HostileFolderTest() override { fs::remove_all(folder_); }

  void Replace(const std::string& name, const std::string& content) const {
    fs::remove(folder_ / name);
    std::ofstream(folder_ / name) << content;
  }
  // The worker is not there: the model comes first.
  Outcome StartRouter() const {
    return RunProgram("baton-router", {"--model", folder_.string(), "--decode", "127.0.0.1:1", "--listen",
                                       "127.0.0.1:0", "--metrics", "127.0.0.1:0"});
  }

  const fs::path folder_;
};

TEST_F(HostileFolderTest, ATextThatDoublesItselfEndsTheRouter) {
  Replace("chat_template.jinja",
          "{% set ns = namespace(x='ab') %}{% for i in range(60) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}");
  const Outcome outcome = StartRouter();
  EXPECT_EQ(outcome.code, 1) << outcome.err;
  EXPECT_THAT(outcome.err, AllOf(HasSubstr(folder_.string() + ": "), HasSubstr("2048 MiB of memory")));
  rusage ended = {};
  ASSERT_EQ(getrusage(RUSAGE_CHILDREN, &ended), 0);
  EXPECT_LT(ended.ru_maxrss, 5 << 20) << "KiB";  // twice the bound: a text is copied as it grows
  EXPECT_THAT(RunBaton({"model", "inspect", folder_.string()}).err, HasSubstr(folder_.string() + ": "));
}

TEST_F(HostileFolderTest, ATokenizerThatMultipliesIsRefused) {
  std::ifstream file(fs::path(kModel) / "tokenizer.json");
  auto tokenizer = nlohmann::ordered_json::parse(file);
  auto steps = nlohmann::ordered_json::array();
  for (int i = 0; i < 6; ++i) {
    steps.push_back(
        {{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", std::string(100, 'a')}});
  }
  tokenizer["normalizer"] = {{"type", "Sequence"}, {"normalizers", steps}};
  Replace("tokenizer.json", tokenizer.dump());
  const Outcome outcome = StartRouter();
  EXPECT_EQ(outcome.code, 1) << outcome.err;
  EXPECT_THAT(outcome.err, AllOf(HasSubstr(folder_.string() + "/tokenizer.json: "), HasSubstr("normalizer")));
}

}  // namespace
}  // namespace baton::cli
