#include "router/models_file.h"

#include <fmt/format.h>

#include <set>
#include <utility>

#include "common/base/status.h"
#include "common/model/config/json_fields.h"

namespace baton::router {
namespace {

constexpr int64_t kMaxModelsFileBytes = 1 << 20;

absl::Status CheckKnown(const model::Json& object, const std::string& where,
                        const std::set<std::string>& known) {
  if (!object.is_object()) return absl::InvalidArgumentError(fmt::format("{}: not an object", where));
  for (const auto& [name, value] : object.items()) {
    if (!known.contains(name))
      return absl::InvalidArgumentError(fmt::format("{}: unknown field \"{}\"", where, name));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> Addresses(const model::JsonFields& fields, std::string_view name,
                                                   const std::string& where) {
  std::vector<std::string> addresses;
  const model::Json* const list = fields.Find(name);
  if (list == nullptr || list->is_null()) return addresses;
  const absl::Status wrong =
      absl::InvalidArgumentError(fmt::format("{}: field \"{}\" is not a list of addresses", where, name));
  if (!list->is_array()) return wrong;
  for (const model::Json& address : *list) {
    if (!address.is_string()) return wrong;
    addresses.push_back(address.get<std::string>());
  }
  return addresses;
}

}  // namespace

absl::StatusOr<std::vector<RouterOptions::Model>> ParseModels(std::string_view text, std::string_view file) {
  BATON_ASSIGN_OR_RETURN(const model::Json root, model::ParseJson(text, file));
  const std::string where(file);
  BATON_RETURN_IF_ERROR(CheckKnown(root, where, {"models"}));
  const model::JsonFields top(root, where);
  const model::Json* const list = top.Find("models");
  if (list == nullptr || !list->is_array() || list->empty()) {
    return absl::InvalidArgumentError(
        fmt::format("{}: field \"models\" is missing, or not a list of at least one model", where));
  }
  std::vector<RouterOptions::Model> models;
  for (size_t i = 0; i < list->size(); ++i) {
    const std::string place = fmt::format("{}: models[{}]", where, i);
    BATON_RETURN_IF_ERROR(CheckKnown((*list)[i], place,
                                     {"folder", "name", "output_format", "decode", "prefill", "fleet_file"}));
    model::JsonFields fields((*list)[i], place);
    RouterOptions::Model model;
    model.folder = fields.Text("folder");
    model.name = fields.Text("name", "");
    model.output_format = fields.Text("output_format", "");
    model.fleet_file = fields.Text("fleet_file", "");
    BATON_RETURN_IF_ERROR(fields.status());
    BATON_ASSIGN_OR_RETURN(model.decode, Addresses(fields, "decode", place));
    BATON_ASSIGN_OR_RETURN(model.prefill, Addresses(fields, "prefill", place));
    if (!model.prefill.empty() && model.decode.empty() && model.fleet_file.empty()) {
      return absl::InvalidArgumentError(
          fmt::format("{}: it has prefill workers of its own and no decode worker: give \"decode\" or "
                      "\"fleet_file\"",
                      place));
    }
    models.push_back(std::move(model));
  }
  return models;
}

absl::StatusOr<std::vector<RouterOptions::Model>> ReadModels(const std::string& path) {
  BATON_ASSIGN_OR_RETURN(const std::string text, model::ReadTextFile(path, kMaxModelsFileBytes));
  return ParseModels(text, path);
}

}  // namespace baton::router
