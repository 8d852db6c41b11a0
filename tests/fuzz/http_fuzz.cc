// Bytes of a client of the server for HTTP.
#include <cstddef>
#include <cstdint>

#include "common/base/check.h"
#include "tests/fuzz/http_bytes.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::Status status = baton::gateway::http::FuzzHttp({data, size});
  BATON_CHECK(status.ok()) << status;
  return 0;
}
