#include <cstddef>
#include <cstdint>

#include "common/base/check.h"
#include "tests/fuzz/decode_scheduler_operations.h"
#include "tests/fuzz/log_nothing.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  baton::fuzz::LogNothing();  // refusals are logged
  const auto done = baton::fuzz::RunDecodeSchedulerOperations({data, size});
  BATON_CHECK(done.ok()) << done.status();
  return 0;
}
