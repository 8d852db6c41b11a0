// Requests of KServe's and vLLM's protocols.
#include <cstddef>
#include <cstdint>

#include "common/base/check.h"
#include "tests/fuzz/kserve_bytes.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::Status status = baton::router::FuzzForeignRequest({data, size});
  BATON_CHECK(status.ok()) << status;
  return 0;
}
