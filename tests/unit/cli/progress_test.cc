#include "cli/show/progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

namespace baton::cli {
namespace {

using ::testing::HasSubstr;

class ProgressTest : public ::testing::Test {
 protected:
  ProgressTest() : file_(std::tmpfile()) {}
  ~ProgressTest() override { std::fclose(file_); }
  std::string Written() {
    std::string text(static_cast<size_t>(std::ftell(file_)), '\0');
    std::rewind(file_);
    text.resize(std::fread(text.data(), 1, text.size(), file_));
    std::fseek(file_, 0, SEEK_END);
    return text;
  }

  std::FILE* file_;
  FakeClock clock_;
};

TEST_F(ProgressTest, ATerminalSeesOneLineAtMostTenTimesASecond) {
  Terminal terminal;
  terminal.interactive = true;
  Progress progress("load", 100, file_, terminal, clock_);
  for (int i = 0; i < 100; ++i) {
    progress.Update(i);
    clock_.Advance(absl::Milliseconds(10));
  }
  progress.Finish();
  const std::string text = Written();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\r'), 11);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1);
  EXPECT_EQ(text.back(), '\n');
}

TEST_F(ProgressTest, ALogSeesFewLinesAndNoControlCharacters) {
  Progress progress("load", 100, file_, Terminal(), clock_);
  for (int i = 0; i < 100; ++i) {
    progress.Update(i, "note");
    clock_.Advance(absl::Milliseconds(250));
  }
  progress.Finish();
  progress.Finish();
  const std::string text = Written();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 3) << text;
  EXPECT_EQ(text.find_first_of("\r\x1b"), std::string::npos);
}

TEST_F(ProgressTest, SaysHowFarAndHowLong) {
  Progress progress("load", 200, file_, Terminal(), clock_);
  clock_.Advance(absl::Seconds(10));
  progress.Update(50, "3 failed");
  EXPECT_EQ(progress.Line(), "load ######.................. 50/200, 30.0 s left  3 failed");
  progress.Update(400);
  EXPECT_THAT(progress.Line(), HasSubstr("400/200")) << "more than expected is no reason to crash";
  Progress endless("read", 0, file_, Terminal(), clock_);
  endless.Update(5);
  EXPECT_THAT(endless.Line(), HasSubstr("read 5 in"));
}

TEST_F(ProgressTest, ALineNeverWraps) {
  Terminal terminal;
  terminal.interactive = true;
  terminal.utf8 = true;
  terminal.width = 30;
  Progress progress("a long label", 10, file_, terminal, clock_);
  progress.Update(5, "and a note that goes on and on");
  int columns = 0;
  // UTF-8 continuation bytes take no column.
  for (const char byte : progress.Line()) columns += (byte & 0xC0) != 0x80;
  EXPECT_LT(columns, 30);
}

}  // namespace
}  // namespace baton::cli
