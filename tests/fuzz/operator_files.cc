#include "tests/fuzz/operator_files.h"

#include <fmt/format.h>

#include <string>
#include <string_view>

#include "router/billing/decimal.h"
#include "router/billing/price.h"
#include "router/discovery/entry.h"
#include "router/tenancy/api_key.h"
#include "router/tenancy/tenants_file.h"

namespace baton::router {
namespace {

absl::Status Unsound(const std::string& what) { return absl::InternalError(what); }

}  // namespace

absl::Status RunOperatorFiles(std::span<const uint8_t> bytes) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const auto tenants = ParseTenants(text, "tenants.json");
  if (!tenants.ok() && tenants.status().message().empty()) return Unsound("refused without a message");
  if (tenants.ok()) {
    for (const TenantEntry& tenant : *tenants) {
      if (tenant.name.empty() || !(tenant.limits.weight > 0))
        return Unsound("a tenant without name or weight");
    }
  }
  const auto lists = discovery::ParseFleetFile(text, "fleet.json");
  if (!lists.ok() && lists.status().message().empty()) return Unsound("refused without a message");
  if (lists.ok()) {
    for (const auto* list : {&lists->decode, &lists->prefill}) {
      for (const discovery::Entry& entry : *list) {
        const auto again = discovery::Entry::Parse(entry.text());
        if (!again.ok() || again->host != entry.host || again->port != entry.port) {
          return Unsound(fmt::format("{} does not read as it is written", entry.text()));
        }
      }
    }
  }
  const auto prices = billing::PriceTable::Parse(text, "prices.json");
  if (!prices.ok() && prices.status().message().empty()) return Unsound("refused without a message");
  if (prices.ok()) {
    for (const auto& [model, price] : prices->models()) {
      for (int64_t one : {price.prompt, price.cached, price.written_5m, price.written_1h, price.completion}) {
        const auto again = billing::ParseMillionths(billing::FormatMillionths(one));
        if (one < 0 || !again.ok() || *again != one)
          return Unsound("a price that does not read as it is written");
      }
    }
  }
  if (const auto decimal = billing::ParseMillionths(text); decimal.ok()) {
    const std::string written = billing::FormatMillionths(*decimal);
    if (text.substr(0, written.size()) != written) return Unsound("a decimal that is another one");
  }
  if (const auto id = ApiKeyId(text); id.has_value() && id->size() != kKeyIdDigits)
    return Unsound("a key id");
  return absl::OkStatus();
}

}  // namespace baton::router
