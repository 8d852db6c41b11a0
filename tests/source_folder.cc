// Every test binary enters the source folder before main(), wherever it is started, so that paths in tests
// are relative to it.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

namespace {

[[gnu::constructor]] void EnterSourceFolder() {
  if (chdir(BATON_SOURCE_FOLDER) == 0) return;
  std::perror("tests: cannot enter " BATON_SOURCE_FOLDER);
  std::exit(1);
}

}  // namespace
