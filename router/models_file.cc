#include "router/models_file.h"

#include <fmt/format.h>

#include <set>
#include <utility>

#include "common/base/status.h"
#include "router/tenancy/tenants_file.h"
#include "text/config/json_fields.h"

namespace baton::router {
namespace {

constexpr int64_t kMaxModelsFileBytes = 1 << 20;
constexpr int64_t kMaxAnswerTokens = 1 << 30;
constexpr int64_t kMaxRate = int64_t{1} << 50;

absl::Status CheckKnown(const model::Json& object, const std::string& where,
                        const std::set<std::string>& known) {
  if (!object.is_object()) return absl::InvalidArgumentError(fmt::format("{}: not an object", where));
  for (const auto& [name, value] : object.items()) {
    if (!known.contains(name))
      return absl::InvalidArgumentError(fmt::format("{}: unknown field \"{}\"", where, name));
  }
  return absl::OkStatus();
}

// `what` the list is of, for messages.
absl::StatusOr<std::vector<std::string>> Texts(const model::JsonFields& fields, std::string_view name,
                                               const std::string& where, std::string_view what) {
  std::vector<std::string> texts;
  const model::Json* const list = fields.Find(name);
  if (list == nullptr || list->is_null()) return texts;
  const absl::Status wrong =
      absl::InvalidArgumentError(fmt::format("{}: field \"{}\" is not a list of {}", where, name, what));
  if (!list->is_array()) return wrong;
  for (const model::Json& text : *list) {
    if (!text.is_string()) return wrong;
    texts.push_back(text.get<std::string>());
  }
  return texts;
}

// Parses limits on a model's users.
absl::Status ParseLimits(model::JsonFields& fields, const std::string& where, RouterOptions::Model* model) {
  BATON_ASSIGN_OR_RETURN(model->tenants, Texts(fields, "tenants", where, "tenants' names"));
  if (const model::Json* const list = fields.Find("tenants");
      list != nullptr && !list->is_null() && model->tenants.empty()) {
    return absl::InvalidArgumentError(fmt::format(
        "{}: field \"tenants\" is empty, so that nobody could use it: name some, or leave it out for all",
        where));
  }
  for (const std::string& tenant : model->tenants) {
    const absl::Status name = CheckTenantName(tenant);
    if (!name.ok()) {
      return absl::InvalidArgumentError(
          fmt::format("{}: field \"tenants\": {}", where, std::string(name.message())));
    }
  }
  model->max_tokens = fields.Integer("max_tokens", 0, kMaxAnswerTokens, 0);
  model->default_max_tokens = fields.Integer("default_max_tokens", 0, kMaxAnswerTokens, 0);
  model->requests_per_minute = fields.Integer("requests_per_minute", 0, kMaxRate, 0);
  model->prompt_tokens_per_minute = fields.Integer("prompt_tokens_per_minute", 0, kMaxRate, 0);
  model->output_tokens_per_minute = fields.Integer("output_tokens_per_minute", 0, kMaxRate, 0);
  BATON_RETURN_IF_ERROR(fields.status());
  if (model->max_tokens > 0 && model->default_max_tokens > model->max_tokens) {
    return absl::InvalidArgumentError(
        fmt::format("{}: field \"default_max_tokens\" is {}, more than \"max_tokens\", {}", where,
                    model->default_max_tokens, model->max_tokens));
  }
  const bool limited = !model->tenants.empty() || model->max_tokens > 0 || model->default_max_tokens > 0 ||
                       model->requests_per_minute > 0 || model->prompt_tokens_per_minute > 0 ||
                       model->output_tokens_per_minute > 0;
  if (limited && !model->classifier.empty()) {
    return absl::InvalidArgumentError(
        fmt::format("{}: a classifier judges for all tenants: it has neither \"tenants\" nor limits", where));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ModelsFile> ParseModels(std::string_view text, std::string_view file) {
  BATON_ASSIGN_OR_RETURN(const model::Json root, model::ParseJson(text, file));
  const std::string where(file);
  BATON_RETURN_IF_ERROR(CheckKnown(root, where, {"models", "moderation"}));
  const model::JsonFields top(root, where);
  const model::Json* const list = top.Find("models");
  if (list == nullptr || !list->is_array() || list->empty()) {
    return absl::InvalidArgumentError(
        fmt::format("{}: field \"models\" is missing, or not a list of at least one model", where));
  }
  ModelsFile read;
  if (const model::Json* const rules = top.Find("moderation"); rules != nullptr) {
    BATON_ASSIGN_OR_RETURN(read.moderation, moderation::ParseRules(*rules, where + ": moderation"));
  }
  for (size_t i = 0; i < list->size(); ++i) {
    const std::string place = fmt::format("{}: models[{}]", where, i);
    BATON_RETURN_IF_ERROR(
        CheckKnown((*list)[i], place,
                   {"folder", "name", "output_format", "classifier", "tenants", "max_tokens",
                    "default_max_tokens", "requests_per_minute", "prompt_tokens_per_minute",
                    "output_tokens_per_minute", "decode", "prefill", "fleet_file"}));
    model::JsonFields fields((*list)[i], place);
    RouterOptions::Model model;
    model.folder = fields.Text("folder");
    model.name = fields.Text("name", "");
    model.output_format = fields.Text("output_format", "");
    model.classifier = fields.Text("classifier", "");
    model.fleet_file = fields.Text("fleet_file", "");
    BATON_RETURN_IF_ERROR(fields.status());
    BATON_RETURN_IF_ERROR(ParseLimits(fields, place, &model));
    BATON_ASSIGN_OR_RETURN(model.decode, Texts(fields, "decode", place, "addresses"));
    BATON_ASSIGN_OR_RETURN(model.prefill, Texts(fields, "prefill", place, "addresses"));
    if (!model.prefill.empty() && model.decode.empty() && model.fleet_file.empty()) {
      return absl::InvalidArgumentError(
          fmt::format("{}: it has prefill workers of its own and no decode worker: give \"decode\" or "
                      "\"fleet_file\"",
                      place));
    }
    read.models.push_back(std::move(model));
  }
  return read;
}

absl::StatusOr<ModelsFile> ReadModels(const std::string& path) {
  BATON_ASSIGN_OR_RETURN(const std::string text, model::ReadTextFile(path, kMaxModelsFileBytes));
  return ParseModels(text, path);
}

}  // namespace baton::router
