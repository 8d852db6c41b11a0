#include "cli/show/print.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <string>

namespace baton::cli {
namespace {

// Standard error leads elsewhere while the object lives.
class StandardErrorTo {
 public:
  explicit StandardErrorTo(int fd) : before_(dup(STDERR_FILENO)) { dup2(fd, STDERR_FILENO); }
  ~StandardErrorTo() {
    dup2(before_, STDERR_FILENO);
    close(before_);
  }

 private:
  const int before_;
};

std::string Contents(std::FILE* file) {
  std::string text(4096, '\0');
  text.resize(std::max<ssize_t>(0, pread(fileno(file), text.data(), text.size(), 0)));
  return text;
}

TEST(PrintTest, LinesThatStandardErrorDoesNotTakeAreCountedAndSaidLater) {
  std::FILE* const file = std::tmpfile();
  const int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
  {
    const StandardErrorTo redirected(full);
    EXPECT_FALSE(Tell("one\n"));
    EXPECT_FALSE(Tell("two {}\nthree\n", 2));
    EXPECT_FALSE(Tell("no line break"));
    EXPECT_EQ(LostLines(), 4);
  }
  {
    const StandardErrorTo redirected(fileno(file));
    EXPECT_TRUE(Tell("{}\n", "five"));
    EXPECT_TRUE(Tell("six\n"));
  }
  EXPECT_EQ(LostLines(), 0);
  EXPECT_EQ(Contents(file), "baton: 4 line(s) could not be written here\nfive\nsix\n");
  close(full);
  std::fclose(file);
}

TEST(PrintTest, AFileThatTakesNothingSaysSo) {
  std::FILE* const full = std::fopen("/dev/full", "we");
  ASSERT_NE(full, nullptr);
  Print(full, "{}\n", std::string(100'000, 'x'));
  EXPECT_NE(std::ferror(full), 0);
  std::fclose(full);
}

}  // namespace
}  // namespace baton::cli
