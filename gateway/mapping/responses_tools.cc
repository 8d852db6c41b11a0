#include "gateway/mapping/responses_tools.h"

#include <fmt/format.h>

#include <utility>

#include "common/base/status.h"
#include "gateway/mapping/shared_fields.h"

namespace baton::gateway {
namespace {

absl::Status RefuseType(const JsonObject& tool, const std::string& type) {
  if (type == "custom") {
    return tool.Wrong(
        "type",
        "\"custom\" takes a text that is no JSON, which no model here writes: send a tool of the "
        "type \"function\" with one parameter");
  }
  return tool.Wrong("type", fmt::format("\"{}\" does not run here: leave it out; tools of the type "
                                        "\"function\" are served, alone or in one of the type \"namespace\"",
                                        type));
}

class Tools {
 public:
  Tools(v1::Conversation& conversation, ToolNames& names) : conversation_(conversation), names_(names) {}

  absl::Status Read(const JsonObject& outer, const Json& list, const std::string& where,
                    const std::string& space, std::string about) {
    for (size_t i = 0; i < list.size(); ++i) {
      BATON_ASSIGN_OR_RETURN(JsonObject tool, outer.Inside(list[i], fmt::format("{}[{}]", where, i)));
      BATON_ASSIGN_OR_RETURN(const auto type, tool.Text("type"));
      if (type == "namespace" && space.empty()) {
        BATON_RETURN_IF_ERROR(ReadSpace(tool));
      } else if (type == "function") {
        BATON_RETURN_IF_ERROR(ReadFunction(tool, space, std::exchange(about, "")));
      } else {
        return RefuseType(tool, type.value_or(""));
      }
    }
    return absl::OkStatus();
  }

 private:
  // The space's description stands before that of its first function: templates know functions alone.
  absl::Status ReadSpace(JsonObject& tool) {
    BATON_ASSIGN_OR_RETURN(const auto space, tool.Text("name"));
    if (space.value_or("").empty()) return tool.Wrong("name", "absent");
    BATON_ASSIGN_OR_RETURN(const auto about, tool.Text("description"));
    BATON_ASSIGN_OR_RETURN(const Json* const inside, tool.List("tools"));
    if (inside == nullptr) return tool.Wrong("tools", "absent");
    return Read(tool, *inside, tool.Path("tools"), *space, about.value_or(""));
  }

  absl::Status ReadFunction(JsonObject& tool, const std::string& space, std::string about) {
    BATON_ASSIGN_OR_RETURN(const auto name, tool.Text("name"));
    BATON_ASSIGN_OR_RETURN(const auto description, tool.Text("description"));
    BATON_ASSIGN_OR_RETURN(const auto strict, tool.Flag("strict"));
    if (!names_.Add({.space = space, .name = name.value_or("")}))
      return tool.Wrong("name", "another tool is called so");
    if (!about.empty() && description.has_value()) about += "\n";
    v1::Tool& made = *conversation_.add_tools();
    made.set_name(NameInModel(space, name.value_or("")));
    made.set_description(about + description.value_or(""));
    made.set_strict(strict.value_or(false));
    if (const Json* const parameters = tool.Find("parameters"); parameters != nullptr) {  // null: absent
      made.set_parameters_json(parameters->dump());
    }
    return absl::OkStatus();
  }

  v1::Conversation& conversation_;
  ToolNames& names_;
};

absl::Status AddName(JsonObject& choice, v1::ToolChoice* made) {
  BATON_ASSIGN_OR_RETURN(const auto name, choice.Text("name"));
  BATON_ASSIGN_OR_RETURN(const auto space, choice.Text("namespace"));
  if (!name.has_value()) return choice.Wrong("name", "absent");
  made->add_names(NameInModel(space.value_or(""), *name));
  return absl::OkStatus();
}

absl::Status ReadChoice(JsonObject& body, v1::ChatRequest* request) {
  BATON_ASSIGN_OR_RETURN(const auto parallel, body.Flag("parallel_tool_calls"));
  const Json* const choice = body.Find("tool_choice");  // null: absent
  // Without tools there is nothing to choose, and clients send these all the same.
  if (request->conversation().tools().empty()) {
    if (choice != nullptr && *choice != "auto" && *choice != "none")
      return body.Wrong("tool_choice", "there are no tools");
    return absl::OkStatus();
  }
  v1::ToolChoice& made = *request->mutable_tool_choice();
  if (parallel.has_value()) made.set_parallel(*parallel);
  if (choice == nullptr) return absl::OkStatus();
  if (choice->is_string()) {
    BATON_ASSIGN_OR_RETURN(const auto mode, ToolModeOf(body, choice->get<std::string>()));
    made.set_mode(mode);
    return absl::OkStatus();
  }
  BATON_ASSIGN_OR_RETURN(JsonObject object, body.Inside(*choice, "tool_choice"));
  BATON_ASSIGN_OR_RETURN(const auto type, object.Text("type"));
  if (type == "function") {
    made.set_mode(v1::ToolChoice::MODE_REQUIRED);
    return AddName(object, &made);
  }
  if (type != "allowed_tools") return object.Wrong("type", "neither \"function\" nor \"allowed_tools\"");
  BATON_ASSIGN_OR_RETURN(const auto word, object.Text("mode"));
  BATON_ASSIGN_OR_RETURN(const auto mode, ToolModeOf(body, word.value_or("auto")));
  made.set_mode(mode);
  BATON_ASSIGN_OR_RETURN(const Json* const tools, object.List("tools"));
  for (size_t i = 0; tools != nullptr && i < tools->size(); ++i) {
    BATON_ASSIGN_OR_RETURN(JsonObject tool,
                           object.Inside((*tools)[i], fmt::format("tool_choice.tools[{}]", i)));
    tool.Skip({"type"});
    BATON_RETURN_IF_ERROR(AddName(tool, &made));
  }
  return absl::OkStatus();
}

}  // namespace

std::string NameInModel(const std::string& space, const std::string& name) {
  return space.empty() ? name : fmt::format("{}__{}", space, name);
}

bool ToolNames::Add(const Name& name) {
  const auto [known, is_new] = known_.emplace(NameInModel(name.space, name.name), name);
  return is_new || known->second == name;
}

ToolNames::Name ToolNames::Of(const std::string& in_model) const {
  const auto found = known_.find(in_model);
  return found == known_.end() ? Name{.space = "", .name = in_model} : found->second;
}

absl::Status ReadResponsesTools(JsonObject& body, v1::ChatRequest* request, ToolNames* names) {
  BATON_ASSIGN_OR_RETURN(const Json* const tools, body.List("tools"));
  if (tools != nullptr) {
    BATON_RETURN_IF_ERROR(
        Tools(*request->mutable_conversation(), *names).Read(body, *tools, "tools", "", ""));
  }
  return ReadChoice(body, request);
}

}  // namespace baton::gateway
