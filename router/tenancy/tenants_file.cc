#include "router/tenancy/tenants_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "common/base/status.h"
#include "router/tenancy/api_key.h"
#include "text/config/json_fields.h"

namespace baton::router {
namespace {

using model::Json;
using model::JsonFields;

constexpr int64_t kMaxLimit = int64_t{1} << 50;
constexpr size_t kLongestName = 64;

absl::Status CheckNames(const Json& object, const std::string& where, const std::set<std::string>& known) {
  for (const auto& [name, value] : object.items()) {
    if (!known.contains(name))
      return absl::InvalidArgumentError(fmt::format("{}: unknown field \"{}\"", where, name));
  }
  return absl::OkStatus();
}

bool IsName(std::string_view name) {
  return !name.empty() && name.size() <= kLongestName && name != "other" &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
                  c == '_' || c == '-';
         });
}

absl::StatusOr<const Json*> List(const JsonFields& fields, std::string_view name, const std::string& where) {
  static const Json& kNone = *new Json(Json::array());
  const Json* list = fields.Find(name);
  if (list == nullptr || list->is_null()) return &kNone;
  if (!list->is_array()) {
    return absl::InvalidArgumentError(fmt::format("{}: field \"{}\" is not a list", where, name));
  }
  return list;
}

absl::StatusOr<TenantEntry::Key> ParseKey(const Json& json, const std::string& where) {
  if (!json.is_object()) return absl::InvalidArgumentError(fmt::format("{}: not an object", where));
  BATON_RETURN_IF_ERROR(CheckNames(json, where, {"id", "sha256", "not_after"}));
  JsonFields fields(json, where);
  TenantEntry::Key key;
  key.id = fields.Text("id");
  const std::string digest = fields.Text("sha256");
  const std::string not_after = fields.Text("not_after", "");
  BATON_RETURN_IF_ERROR(fields.status());
  if (key.id.size() != kKeyIdDigits) {
    return absl::InvalidArgumentError(
        fmt::format("{}: field \"id\" is not a key's id; `baton key new` prints one", where));
  }
  const auto parsed = ParseDigest(digest);
  if (!parsed.has_value()) {
    return absl::InvalidArgumentError(fmt::format(
        "{}: field \"sha256\" is not 64 lower-case hexadecimal digits; never put the key itself here",
        where));
  }
  key.digest = *parsed;
  std::string error;
  if (!not_after.empty() && !absl::ParseTime(absl::RFC3339_full, not_after, &key.not_after, &error)) {
    return absl::InvalidArgumentError(
        fmt::format("{}: field \"not_after\" is not a time like 2027-01-31T00:00:00Z", where));
  }
  return key;
}

absl::StatusOr<admission::QueueLimits> ParseQueue(const Json& json, const std::string& where) {
  if (!json.is_object()) return absl::InvalidArgumentError(fmt::format("{}: not an object", where));
  BATON_RETURN_IF_ERROR(CheckNames(json, where, {"requests", "tokens", "bytes"}));
  JsonFields fields(json, where);
  admission::QueueLimits limits;
  limits.entries = fields.Integer("requests", 0, kMaxLimit, 0);
  limits.tokens = fields.Integer("tokens", 0, kMaxLimit, 0);
  limits.bytes = fields.Integer("bytes", 0, kMaxLimit, 0);
  BATON_RETURN_IF_ERROR(fields.status());
  return limits;
}

absl::StatusOr<TenantEntry> ParseTenant(const Json& json, const std::string& where) {
  if (!json.is_object()) return absl::InvalidArgumentError(fmt::format("{}: not an object", where));
  BATON_RETURN_IF_ERROR(
      CheckNames(json, where,
                 {"name", "keys", "certificates", "anonymous", "disabled", "control_tokens_in_text",
                  "moderation", "salt", "weight", "concurrency", "best_priority", "requests_per_minute",
                  "prompt_tokens_per_minute", "output_tokens_per_minute", "tokens_per_day", "queue"}));
  JsonFields fields(json, where);
  TenantEntry tenant;
  tenant.name = fields.Text("name");
  tenant.anonymous = fields.Flag("anonymous", false);
  tenant.disabled = fields.Flag("disabled", false);
  tenant.control_tokens_in_text = fields.Flag("control_tokens_in_text", false);
  tenant.limits.weight = fields.Number("weight", {.low = 0.001, .high = 1000}, 1);
  tenant.limits.concurrency = fields.Integer("concurrency", 0, kMaxLimit, 0);
  tenant.best_priority = static_cast<int>(fields.Integer(
      "best_priority", admission::kBestPriority, admission::kWorstPriority, admission::kBestPriority));
  tenant.limits.requests_per_minute = fields.Integer("requests_per_minute", 0, kMaxLimit, 0);
  tenant.limits.prompt_tokens_per_minute = fields.Integer("prompt_tokens_per_minute", 0, kMaxLimit, 0);
  tenant.limits.output_tokens_per_minute = fields.Integer("output_tokens_per_minute", 0, kMaxLimit, 0);
  tenant.limits.tokens_per_day = fields.Integer("tokens_per_day", 0, kMaxLimit, 0);
  BATON_RETURN_IF_ERROR(fields.status());
  if (const absl::Status named = CheckTenantName(tenant.name); !named.ok()) {
    return absl::InvalidArgumentError(
        fmt::format("{}: field \"name\" {}", where, std::string(named.message())));
  }
  if (const Json* rules = fields.Find("moderation"); rules != nullptr) {
    BATON_ASSIGN_OR_RETURN(tenant.moderation, moderation::ParseRules(*rules, where + ".moderation"));
  }
  if (const Json* salt = fields.Find("salt"); salt != nullptr) {
    if (!salt->is_string() || salt->get_ref<const std::string&>().size() < kMinSaltBytes) {
      return absl::InvalidArgumentError(
          fmt::format("{}: field \"salt\" is not text of at least {} bytes", where, kMinSaltBytes));
    }
    tenant.salt = salt->get<std::string>();
  }
  BATON_ASSIGN_OR_RETURN(const Json* keys, List(fields, "keys", where));
  for (size_t i = 0; i < keys->size(); ++i) {
    BATON_ASSIGN_OR_RETURN(TenantEntry::Key key, ParseKey((*keys)[i], fmt::format("{}.keys[{}]", where, i)));
    tenant.keys.push_back(std::move(key));
  }
  BATON_ASSIGN_OR_RETURN(const Json* certificates, List(fields, "certificates", where));
  for (const Json& name : *certificates) {
    if (!name.is_string() || name.get_ref<const std::string&>().empty()) {
      return absl::InvalidArgumentError(
          fmt::format("{}: field \"certificates\" is not a list of names", where));
    }
    tenant.certificates.push_back(name.get<std::string>());
  }
  if (const Json* queue = fields.Find("queue"); queue != nullptr) {
    BATON_ASSIGN_OR_RETURN(tenant.limits.queue, ParseQueue(*queue, where + ".queue"));
  }
  return tenant;
}

}  // namespace

absl::Status CheckTenantName(std::string_view name) {
  if (IsName(name)) return absl::OkStatus();
  return absl::InvalidArgumentError(fmt::format(
      "is not 1 to {} letters, digits, dots, hyphens and underscores (nor \"other\")", kLongestName));
}

absl::StatusOr<std::vector<TenantEntry>> ParseTenants(std::string_view text, std::string_view file) {
  BATON_ASSIGN_OR_RETURN(const Json root, model::ParseJson(text, file));
  const std::string where(file);
  if (!root.is_object()) return absl::InvalidArgumentError(fmt::format("{}: not an object", where));
  BATON_RETURN_IF_ERROR(CheckNames(root, where, {"tenants"}));
  const JsonFields fields(root, where);
  if (!fields.Has("tenants"))
    return absl::InvalidArgumentError(fmt::format("{}: field \"tenants\" is missing", where));
  BATON_ASSIGN_OR_RETURN(const Json* list, List(fields, "tenants", where));
  std::vector<TenantEntry> tenants;
  std::set<std::string> names, ids, certificates, salts;
  const TenantEntry* anonymous = nullptr;
  tenants.reserve(list->size());
  for (size_t i = 0; i < list->size(); ++i) {
    const std::string place = fmt::format("{}: tenants[{}]", where, i);
    BATON_ASSIGN_OR_RETURN(TenantEntry tenant, ParseTenant((*list)[i], place));
    const auto twice = [&](std::string_view what) {
      return absl::InvalidArgumentError(
          fmt::format("{}: {} is another tenant's too, or stands twice", place, what));
    };
    if (!names.insert(tenant.name).second) return twice(fmt::format("the name \"{}\"", tenant.name));
    if (tenant.salt.has_value() && !salts.insert(*tenant.salt).second) return twice("the salt");
    for (const TenantEntry::Key& key : tenant.keys) {
      if (!ids.insert(key.id).second) return twice(fmt::format("the key \"{}\"", key.id));
    }
    for (const std::string& name : tenant.certificates) {
      if (!certificates.insert(name).second) return twice(fmt::format("the certificate \"{}\"", name));
    }
    if (tenant.anonymous && anonymous != nullptr) {
      return absl::InvalidArgumentError(
          fmt::format("{}: \"{}\" is anonymous already; only one tenant can be", place, anonymous->name));
    }
    tenants.push_back(std::move(tenant));
    if (tenants.back().anonymous) anonymous = &tenants.back();
  }
  return tenants;
}

}  // namespace baton::router
