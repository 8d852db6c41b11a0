// Bodies of HTTP requests, and streams of a router.
#include <cstddef>
#include <cstdint>

#include "common/base/check.h"
#include "tests/fuzz/gateway_bytes.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::Status status = baton::gateway::FuzzGateway({data, size});
  BATON_CHECK(status.ok()) << status;
  return 0;
}
