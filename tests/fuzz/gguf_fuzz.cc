#include <cstddef>
#include <cstdint>

#include "common/base/check.h"
#include "tests/fuzz/gguf_bytes.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto accepted = baton::gguf::FuzzGguf({data, size});
  BATON_CHECK(accepted.ok()) << accepted.status();
  return 0;
}
