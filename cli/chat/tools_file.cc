#include "cli/chat/tools_file.h"

#include <fmt/format.h>

#include <fstream>
#include <iterator>

#include "common/base/status.h"
#include "common/json/strict_json.h"
#include "nlohmann/json.hpp"

namespace baton::cli {
namespace {

// Keeps the order of keys: models read schemas in one order.
using Json = nlohmann::ordered_json;

// A text member; empty if there is none.
absl::StatusOr<std::string> Text(const Json& object, const char* name, size_t entry) {
  const auto found = object.find(name);
  if (found == object.end()) return "";
  if (!found->is_string()) {
    return absl::InvalidArgumentError(fmt::format("entry {}: \"{}\" is not a string", entry, name));
  }
  return found->get<std::string>();
}

}  // namespace

absl::StatusOr<std::vector<v1::Tool>> ParseTools(std::string_view json) {
  BATON_ASSIGN_OR_RETURN(const Json list, json::Parse<Json>(json));
  if (!list.is_array()) return absl::InvalidArgumentError("it is not a list of tools");
  std::vector<v1::Tool> tools;
  for (const Json& entry : list) {
    const size_t at = tools.size();
    const Json& tool = entry.is_object() && entry.contains("function") ? entry["function"] : entry;
    if (!tool.is_object()) return absl::InvalidArgumentError(fmt::format("entry {}: not an object", at));
    v1::Tool& made = tools.emplace_back();
    BATON_ASSIGN_OR_RETURN(*made.mutable_name(), Text(tool, "name", at));
    if (made.name().empty()) return absl::InvalidArgumentError(fmt::format("entry {}: no \"name\"", at));
    BATON_ASSIGN_OR_RETURN(*made.mutable_description(), Text(tool, "description", at));
    if (const auto parameters = tool.find("parameters"); parameters != tool.end()) {
      if (!parameters->is_object()) {
        return absl::InvalidArgumentError(fmt::format("entry {}: \"parameters\" is not a schema", at));
      }
      made.set_parameters_json(parameters->dump());
    }
  }
  return tools;
}

absl::StatusOr<std::vector<v1::Tool>> ReadTools(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return absl::NotFoundError(fmt::format("{}: can't be read", path));
  const std::string text(std::istreambuf_iterator<char>(file), {});
  auto tools = ParseTools(text);
  if (tools.ok()) return tools;
  return absl::Status(tools.status().code(),
                      fmt::format("{}: {}", path, std::string(tools.status().message())));
}

}  // namespace baton::cli
