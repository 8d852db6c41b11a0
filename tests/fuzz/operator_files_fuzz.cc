#include <cstddef>
#include <cstdint>

#include "common/base/check.h"
#include "tests/fuzz/operator_files.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::Status status = baton::router::RunOperatorFiles({data, size});
  BATON_CHECK(status.ok()) << status;
  return 0;
}
