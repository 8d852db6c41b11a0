#include <cstddef>
#include <cstdint>

#include "common/base/check.h"
#include "tests/fuzz/intake_operations.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto done = baton::transfer::RunIntakeOperations({data, size});
  BATON_CHECK(done.ok()) << done.status();
  return 0;
}
