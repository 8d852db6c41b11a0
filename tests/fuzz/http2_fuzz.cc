// Bytes and frames of a client that speaks HTTP/2.
#include <cstddef>
#include <cstdint>

#include "common/base/check.h"
#include "tests/fuzz/http2_bytes.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::Status status = baton::gateway::http::FuzzHttp2({data, size});
  BATON_CHECK(status.ok()) << status;
  return 0;
}
