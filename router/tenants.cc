#include "router/tenants.h"

#include <fmt/format.h>

#include <fstream>
#include <iterator>

namespace baton::router {

absl::StatusOr<Tenants> Tenants::Load(const std::string& file) {
  if (file.empty()) return Tenants(Tenant{.name = "default", .salt = kv::TenantSalt("baton/tenant/default")});
  std::ifstream in(file, std::ios::binary);
  std::string salt((std::istreambuf_iterator<char>(in)), {});
  if (!in.is_open() || in.bad())
    return absl::NotFoundError(fmt::format("{}: can't read the tenant salt", file));
  constexpr size_t kLeast = 16;
  if (salt.size() < kLeast) {
    return absl::InvalidArgumentError(
        fmt::format("{}: a salt of {} bytes; use at least {} random ones", file, salt.size(), kLeast));
  }
  return Tenants(Tenant{.name = "default", .salt = kv::TenantSalt(std::move(salt))});
}

}  // namespace baton::router
