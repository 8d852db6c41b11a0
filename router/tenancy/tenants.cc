#include "router/tenancy/tenants.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <tuple>

#include "absl/time/clock.h"
#include "common/base/secret.h"
#include "common/base/status.h"
#include "router/tenancy/api_key.h"
#include "text/config/json_fields.h"

namespace baton::router {
namespace {

constexpr char kDefault[] = "default";

}  // namespace

std::string_view DenialName(Denial denial) {
  switch (denial) {
    case Denial::kNoKey:
      return "no_key";
    case Denial::kUnknownKey:
      return "unknown_key";
    case Denial::kExpiredKey:
      return "expired_key";
    case Denial::kUnknownCertificate:
      return "unknown_certificate";
    case Denial::kDisabled:
      return "disabled";
    case Denial::kPriority:
      return "priority";
  }
  return "";
}

absl::StatusOr<std::unique_ptr<Tenants>> Tenants::Open(const Options& options, OnTenant on_tenant) {
  std::string secret;
  if (!options.salt_file.empty()) {
    BATON_ASSIGN_OR_RETURN(secret, model::ReadTextFile(options.salt_file, 4096));
    if (secret.size() < kMinSaltBytes) {
      return absl::InvalidArgumentError(fmt::format("{}: a salt of {} bytes; use at least {} random ones",
                                                    options.salt_file, secret.size(), kMinSaltBytes));
    }
  }
  std::unique_ptr<Tenants> tenants(new Tenants(options, std::move(on_tenant), std::move(secret)));
  if (!options.file.empty()) {
    BATON_RETURN_IF_ERROR(tenants->Reload());
    return tenants;
  }
  auto table = std::make_shared<Table>();
  table->anonymous = std::make_shared<Tenant>(
      Tenant{.id = {},
             .name = kDefault,
             .label = kDefault,
             .salt = kv::TenantSalt(tenants->secret_.empty() ? "baton/tenant/default" : tenants->secret_),
             .limits = {}});
  table->all.push_back(table->anonymous);
  tenants->Install(std::move(table));
  return tenants;
}

std::shared_ptr<const Tenants::Table> Tenants::table() const {
  absl::MutexLock lock(&mutex_);
  return table_;
}

void Tenants::Install(std::shared_ptr<const Table> table) {
  for (const auto& tenant : table->all) on_tenant_(*tenant);
  absl::MutexLock lock(&mutex_);
  table_ = std::move(table);
}

kv::TenantSalt Tenants::SaltOf(const TenantEntry& entry) const {
  if (entry.salt.has_value()) return kv::TenantSalt(*entry.salt);
  // The length between them: no name and secret make another's salt.
  Sha256 hash;
  hash.Update(fmt::format("baton/tenant/1/{}/{}/", entry.name.size(), entry.name));
  hash.Update(secret_);
  const Sha256Digest digest = hash.Finish();
  return kv::TenantSalt(std::string(digest.begin(), digest.end()));
}

absl::Status Tenants::Reload() {
  absl::MutexLock lock(&reload_mutex_);
  BATON_ASSIGN_OR_RETURN(const std::string text, model::ReadTextFile(options_.file, kMaxTenantsFileBytes));
  BATON_ASSIGN_OR_RETURN(const std::vector<TenantEntry> entries, ParseTenants(text, options_.file));
  auto table = std::make_shared<Table>();
  for (const TenantEntry& entry : entries) {
    // The id 0 is the open tenant's.
    const auto id = ids_.try_emplace(entry.name, static_cast<uint32_t>(ids_.size() + 1)).first->second;
    const bool labelled = id.value() <= static_cast<uint32_t>(options_.labels);
    const auto tenant =
        std::make_shared<Tenant>(Tenant{.id = id,
                                        .name = entry.name,
                                        .label = labelled ? entry.name : "other",
                                        .salt = SaltOf(entry),
                                        .limits = entry.limits,
                                        .best_priority = entry.best_priority,
                                        .disabled = entry.disabled,
                                        .control_tokens_in_text = entry.control_tokens_in_text,
                                        .moderation = entry.moderation});
    for (const TenantEntry::Key& key : entry.keys)
      table->keys.emplace(key.id, Key{key.digest, key.not_after, tenant});
    for (const std::string& name : entry.certificates) table->certificates.emplace(name, tenant);
    if (entry.anonymous) table->anonymous = tenant;
    table->all.push_back(tenant);
  }
  spdlog::info("{}: {} tenants, {} keys, {} certificate names", options_.file, table->all.size(),
               table->keys.size(), table->certificates.size());
  Install(std::move(table));
  return absl::OkStatus();
}

Caller Tenants::Identify(const Credentials& credentials, Denied* denied) const {
  const std::shared_ptr<const Table> known = table();
  const auto deny = [&](Denial why, absl::Status status) {
    *denied = {why, std::move(status)};
    return Caller();
  };
  std::shared_ptr<const Tenant> tenant;
  std::string key;
  if (!credentials.key.empty() && !options_.file.empty()) {
    const auto id = ApiKeyId(credentials.key);
    const auto found = id.has_value() ? known->keys.find(std::string(*id)) : known->keys.end();
    // An unknown id costs the comparison too.
    static const Sha256Digest kNoDigest = {};
    const bool same = SameDigest(ApiKeyDigest(credentials.key),
                                 found == known->keys.end() ? kNoDigest : found->second.digest);
    if (found == known->keys.end() || !same) {
      return deny(
          Denial::kUnknownKey,
          absl::UnauthenticatedError("the API key is not known here: is it whole, and was it revoked?"));
    }
    if (found->second.not_after <= absl::Now()) {
      return deny(Denial::kExpiredKey, absl::UnauthenticatedError(fmt::format(
                                           "the API key {} has expired: ask for a new one", *id)));
    }
    tenant = found->second.tenant;
    key = *id;
  }
  for (size_t i = 0; tenant == nullptr && i < credentials.certificate_names.size(); ++i) {
    const auto found = known->certificates.find(credentials.certificate_names[i]);
    if (found == known->certificates.end()) continue;
    tenant = found->second;
    key = found->first;
  }
  if (tenant == nullptr) tenant = known->anonymous;
  if (tenant == nullptr && !credentials.certificate_names.empty()) {
    return deny(Denial::kUnknownCertificate,
                absl::UnauthenticatedError(
                    fmt::format("no tenant has a certificate named \"{}\", and there is no API key",
                                credentials.certificate_names.front())));
  }
  if (tenant == nullptr) {
    return deny(Denial::kNoKey,
                absl::UnauthenticatedError(
                    "an API key is needed: metadata \"authorization: Bearer KEY\" (baton commands: "
                    "--api-key-file FILE)"));
  }
  if (tenant->disabled) {
    return deny(Denial::kDisabled,
                absl::PermissionDeniedError(fmt::format("the tenant \"{}\" is disabled", tenant->name)));
  }
  return {.tenant = std::move(tenant), .key = std::move(key)};
}

void Tenants::Watch(absl::Duration interval) {
  if (options_.file.empty()) return;
  file_.Watch(interval, [this] {
    if (absl::Status status = Reload(); !status.ok()) {
      spdlog::error("the tenants stay as they were: {}", std::string(status.message()));
    }
  });
}

}  // namespace baton::router
