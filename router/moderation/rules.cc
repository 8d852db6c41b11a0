#include "router/moderation/rules.h"

#include <fmt/format.h>

#include "common/base/quote.h"
#include "common/base/status.h"

namespace baton::router::moderation {

absl::StatusOr<Rules> ParseRules(const model::Json& json, const std::string& where) {
  if (!json.is_object()) return absl::InvalidArgumentError(fmt::format("{}: not an object", where));
  for (const auto& [name, value] : json.items()) {
    if (name == "policy" || name == "input" || name == "fail_open" || name == "timeout_seconds") continue;
    return absl::InvalidArgumentError(fmt::format("{}: unknown field \"{}\"", where, name));
  }
  model::JsonFields fields(json, where);
  Rules rules;
  const std::string policy = fields.Text("policy");
  rules.input = fields.Flag("input", false);
  rules.fail_open = fields.Flag("fail_open", false);
  rules.timeout = absl::Seconds(
      fields.Number("timeout_seconds", {.low = 0.1, .high = 600}, absl::ToDoubleSeconds(rules.timeout)));
  BATON_RETURN_IF_ERROR(fields.status());
  if (policy == "block") {
    rules.policy = Policy::kBlock;
  } else if (policy == "score") {
    rules.policy = Policy::kScore;
  } else if (policy != "off") {
    return absl::InvalidArgumentError(fmt::format(
        "{}: field \"policy\" is {}; use \"block\", \"score\" or \"off\"", where, Quoted(policy)));
  }
  return rules;
}

}  // namespace baton::router::moderation
