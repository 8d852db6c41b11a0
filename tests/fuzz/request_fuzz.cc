#include <cstddef>
#include <cstdint>

#include "common/base/check.h"
#include "tests/fuzz/log_nothing.h"
#include "tests/fuzz/request_bytes.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  baton::fuzz::LogNothing();  // refusals are logged
  const absl::Status status = baton::RunRequestBytes({data, size});
  BATON_CHECK(status.ok()) << status;
  return 0;
}
