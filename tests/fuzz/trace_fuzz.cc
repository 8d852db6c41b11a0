#include <cstddef>
#include <cstdint>

#include "common/base/check.h"
#include "tests/fuzz/trace_bytes.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto done = baton::lab::bench::FuzzTrace({data, size});
  BATON_CHECK(done.ok()) << done.status();
  return 0;
}
