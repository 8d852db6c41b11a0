#include <cstddef>
#include <cstdint>

#include "common/base/check.h"
#include "tests/fuzz/log_nothing.h"
#include "tests/fuzz/shared_store_operations.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  baton::fuzz::LogNothing();
  const auto done = baton::kv::tier::RunSharedStoreOperations({data, size});
  BATON_CHECK(done.ok()) << done.status();
  return 0;
}
