#include <cstddef>
#include <cstdint>

#include "common/base/check.h"
#include "tests/fuzz/disk_store_operations.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto done = baton::kv::tier::RunDiskStoreOperations({data, size});
  BATON_CHECK(done.ok()) << done.status();
  return 0;
}
