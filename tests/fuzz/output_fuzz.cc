// Answers of a model, in every format.
#include <cstddef>
#include <cstdint>

#include "common/base/check.h"
#include "tests/fuzz/output_bytes.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::Status status = baton::output::FuzzOutput({data, size});
  BATON_CHECK(status.ok()) << status;
  return 0;
}
