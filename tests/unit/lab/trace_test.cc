#include "lab/bench/trace.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>

#include "common/base/random.h"

namespace baton::lab::bench {
namespace {

using ::testing::HasSubstr;

constexpr char kGood[] =
    R"({"timestamp": 27482, "input_length": 600, "output_length": 52, "hash_ids": [46, 47]})";

TEST(TraceTest, ParsesALine) {
  const TraceEntry entry = *ParseTraceLine(kGood, 1);
  EXPECT_EQ(entry.timestamp_ms, 27482);
  EXPECT_EQ(entry.input_tokens, 600);
  EXPECT_EQ(entry.output_tokens, 52);
  EXPECT_THAT(entry.hash_ids, ::testing::ElementsAre(46, 47));
}

TEST(TraceTest, NamesTheLineAndTheField) {
  const auto error = [](const std::string& line) {
    const absl::StatusOr<TraceEntry> entry = ParseTraceLine(line, 42);
    EXPECT_EQ(entry.status().code(), absl::StatusCode::kInvalidArgument) << line;
    EXPECT_THAT(std::string(entry.status().message()), HasSubstr("line 42: ")) << line;
    return std::string(entry.status().message());
  };
  EXPECT_THAT(error("{"), HasSubstr("not JSON"));
  EXPECT_THAT(error(""), HasSubstr("not JSON"));
  EXPECT_THAT(error("\xff\xfe"), HasSubstr("not JSON"));
  EXPECT_THAT(error("[1]"), HasSubstr("not a JSON object"));
  EXPECT_THAT(error("{}"), HasSubstr("timestamp"));
  EXPECT_THAT(error(R"({"timestamp": "0"})"), HasSubstr("timestamp"));
  EXPECT_THAT(error(R"({"timestamp": -1})"), HasSubstr("timestamp"));
  EXPECT_THAT(error(R"({"timestamp": 1e300})"), HasSubstr("timestamp"));
  EXPECT_THAT(error(R"({"timestamp": 0, "input_length": 0})"), HasSubstr("input_length"));
  EXPECT_THAT(error(R"({"timestamp": 0, "input_length": 1.5})"), HasSubstr("input_length"));
  EXPECT_THAT(error(R"({"timestamp": 0, "input_length": 18446744073709551615})"), HasSubstr("input_length"));
  EXPECT_THAT(error(R"({"timestamp": 0, "input_length": 1, "output_length": -1})"),
              HasSubstr("output_length"));
  EXPECT_THAT(error(R"({"timestamp": 0, "input_length": 1, "output_length": 1})"), HasSubstr("hash_ids"));
  EXPECT_THAT(error(R"({"timestamp": 0, "input_length": 513, "output_length": 1, "hash_ids": [0]})"),
              HasSubstr("needs 2 hash_ids"));
  EXPECT_THAT(error(R"({"timestamp": 0, "input_length": 1, "output_length": 1, "hash_ids": [-3]})"),
              HasSubstr("hash_ids"));
  EXPECT_THAT(error(R"({"timestamp": 0, "input_length": 1, "output_length": 1, "hash_ids": ["a"]})"),
              HasSubstr("hash_ids"));
  // Nesting must not cost stack.
  EXPECT_THAT(error(std::string(1'000'000, '[')), HasSubstr("not JSON"));
}

TEST(TraceTest, NoLineCrashesIt) {
  constexpr uint64_t kSeed = 99;
  const std::string good = kGood;
  int parsed = 0;
  for (uint64_t round = 0; round < 20'000; ++round) {
    std::string line = good;
    // One to four bytes changed, removed or doubled.
    const auto edits = 1 + static_cast<int>(4 * UniformAt(kSeed, round * 16));
    for (int edit = 0; edit < edits; ++edit) {
      const auto draw = [&](int part) { return UniformAt(kSeed, round * 16 + 1 + edit * 3 + part); };
      const auto at = static_cast<size_t>(draw(0) * static_cast<double>(line.size()));
      if (draw(1) < 0.6) {
        line[at] = static_cast<char>(draw(2) * 256);
      } else if (draw(1) < 0.8) {
        line.erase(at, 1);
      } else {
        line.insert(at, line.substr(at, 5));
      }
    }
    parsed += ParseTraceLine(line, 1).ok();
  }
  EXPECT_GT(parsed, 0) << "seed " << kSeed;
  EXPECT_LT(parsed, 20'000) << "seed " << kSeed;
}

class TraceFileTest : public ::testing::Test {
 protected:
  ~TraceFileTest() override { std::remove(path_.c_str()); }
  void Write(const std::string& text) { std::ofstream(path_) << text; }
  const std::string path_ = fmt::format("{}/trace-{}.jsonl", ::testing::TempDir(), getpid());
};

TEST_F(TraceFileTest, ReadsInTheOrderOfStampsAndCountsBlankLines) {
  const auto line = [](int stamp) {
    return fmt::format(R"({{"timestamp": {}, "input_length": 1, "output_length": 1, "hash_ids": [0]}})",
                       stamp);
  };
  Write(line(5) + "\n\n" + line(3) + "\r\n" + line(9));
  const std::vector<TraceEntry> entries = *ReadTrace(path_, 0);
  ASSERT_EQ(entries.size(), 3u);
  EXPECT_EQ(entries[0].timestamp_ms, 3);
  EXPECT_EQ(entries[2].timestamp_ms, 9);
  EXPECT_EQ(ReadTrace(path_, 2)->size(), 2u);
  Write(line(5) + "\n\nnonsense\n");
  EXPECT_THAT(std::string(ReadTrace(path_, 0).status().message()), HasSubstr(path_ + ", line 3: not JSON"));
  EXPECT_TRUE(ReadTrace(path_, 1).ok()) << "lines after the limit are not looked at";
}

TEST_F(TraceFileTest, AnEmptyOrMissingFileIsAnError) {
  EXPECT_EQ(ReadTrace(path_, 0).status().code(), absl::StatusCode::kNotFound);
  Write("\n \n");
  EXPECT_EQ(ReadTrace(path_, 0).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(TraceTest, TellsBucketedStampsFromFreeOnes) {
  const auto with = [](std::vector<double> stamps) {
    std::vector<TraceEntry> entries;
    for (const double stamp : stamps) entries.push_back({stamp, 1, 1, {0}});
    return entries;
  };
  EXPECT_TRUE(LooksBucketed(with({0, 0, 3000, 5999, 6000, 9001})));
  EXPECT_FALSE(LooksBucketed(with({0, 40, 277, 471, 3403, 5292})));
}

}  // namespace
}  // namespace baton::lab::bench
