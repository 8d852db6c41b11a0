// Every test process has a folder of its own for temporary files (testing::TempDir()), which goes with it:
// ctest runs the tests of one binary as several processes at a time, and their files have the same names.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <system_error>

namespace {

char folder[4096];
pid_t owner = 0;  // not its children

[[gnu::constructor]] void MakeTempFolder() {
  const char* const outer = std::getenv("TEST_TMPDIR");
  std::snprintf(folder, sizeof(folder), "%s/baton-test.XXXXXX", outer == nullptr ? "/tmp" : outer);
  if (mkdtemp(folder) != nullptr && setenv("TEST_TMPDIR", folder, 1) == 0) {
    owner = getpid();
    return;
  }
  std::perror("tests: cannot make a folder for temporary files");
  std::exit(1);
}

[[gnu::destructor]] void RemoveTempFolder() {
  if (getpid() != owner) return;
  std::error_code ignored;
  std::filesystem::remove_all(folder, ignored);
}

}  // namespace
