#include <cstddef>
#include <cstdint>
#include <string_view>

#include "common/base/check.h"
#include "router/api_key.h"
#include "router/tenants_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto tenants = baton::router::ParseTenants(text, "tenants.json");
  if (tenants.ok()) {
    for (const auto& tenant : *tenants) BATON_CHECK(!tenant.name.empty() && tenant.limits.weight > 0);
  }
  baton::router::ApiKeyId(text);
  return 0;
}
