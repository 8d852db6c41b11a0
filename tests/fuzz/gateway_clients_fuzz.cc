// Clients of a gateway over sockets.
#include <cstddef>
#include <cstdint>

#include "common/base/check.h"
#include "tests/fuzz/gateway_clients_operations.h"
#include "tests/fuzz/log_nothing.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  baton::fuzz::LogNothing();
  const auto done = baton::gateway::RunGatewayClientsOperations({data, size});
  BATON_CHECK(done.ok()) << done.status();
  return 0;
}
