#include <cstddef>
#include <cstdint>

#include "common/base/check.h"
#include "spdlog/spdlog.h"
#include "tests/fuzz/fleet_operations.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  spdlog::set_level(spdlog::level::off);  // refusals are logged
  const auto done = baton::router::fleet::RunFleetOperations({data, size});
  BATON_CHECK(done.ok()) << done.status();
  return 0;
}
