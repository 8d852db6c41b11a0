#include "gateway/mapping/anthropic_tools.h"

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <utility>

#include "common/base/status.h"
#include "gateway/mapping/cache_mark.h"

namespace baton::gateway {
namespace {

// A tool of a type with a date behind this beginning, whose members are the same in all its versions but for
// commands that a later one has left out.
struct KnownTool {
  std::string_view type;
  const char* description;
  const char* schema;
};

constexpr KnownTool kKnownTools[] = {
    {"bash_", "Runs a command in a bash session that lasts from call to call, and returns its output.",
     R"({"type":"object","properties":{"command":{"type":"string","description":"The command to run."},)"
     R"("restart":{"type":"boolean","description":"True restarts the session; no command is run."}}})"},
    {"text_editor_",
     "Shows and edits files: view shows a file with line numbers or a folder's entries, create writes a "
     "file, "
     "str_replace replaces a text that the file has once, insert puts a text behind a line, undo_edit takes "
     "the last edit back.",
     R"({"type":"object","properties":{"command":{"type":"string","enum":["view","create","str_replace","insert","undo_edit"]},)"
     R"("path":{"type":"string","description":"The file or folder."},)"
     R"("view_range":{"type":"array","items":{"type":"integer"},"description":"For view: the first and the last line; -1 is the file's end."},)"
     R"("file_text":{"type":"string","description":"For create: the content."},)"
     R"("old_str":{"type":"string","description":"For str_replace: the text to replace."},)"
     R"("new_str":{"type":"string","description":"For str_replace and insert: the new text."},)"
     R"("insert_text":{"type":"string","description":"For insert: the new text."},)"
     R"("insert_line":{"type":"integer","description":"For insert: the line behind which it stands; 0 is the beginning."}},)"
     R"("required":["command","path"]})"},
    {"memory_",
     "Reads and writes files in the folder /memories, which lasts beyond this conversation: view, create, "
     "str_replace, insert, delete, rename.",
     R"({"type":"object","properties":{"command":{"type":"string","enum":["view","create","str_replace","insert","delete","rename"]},)"
     R"("path":{"type":"string"},"view_range":{"type":"array","items":{"type":"integer"}},"file_text":{"type":"string"},)"
     R"("old_str":{"type":"string"},"new_str":{"type":"string"},"insert_line":{"type":"integer"},"insert_text":{"type":"string"},)"
     R"("old_path":{"type":"string"},"new_path":{"type":"string"}},"required":["command"]})"},
};

// Null: no tool that its client runs is of this type.
const KnownTool* FindKnown(std::string_view type) {
  for (const KnownTool& known : kKnownTools) {
    if (type.starts_with(known.type) && type.size() > known.type.size() &&
        type.find_first_not_of("0123456789", known.type.size()) == std::string_view::npos) {
      return &known;
    }
  }
  return nullptr;
}

}  // namespace

ToolReferences::ToolReferences(const v1::Conversation& conversation) {
  for (const v1::Tool& tool : conversation.tools()) tools_.emplace(tool.name(), &tool);
}

std::optional<std::string> ToolReferences::Text(const std::string& tool) {
  const auto found = tools_.find(tool);
  if (found == tools_.end()) return std::nullopt;
  if (!described_.insert(tool).second) return fmt::format("[{}: described above]", tool);
  const v1::Tool& one = *found->second;
  Json function = {{"name", one.name()}, {"description", one.description()}};
  const Json schema = Json::parse(one.parameters_json(), nullptr, /*allow_exceptions=*/false);
  if (!schema.is_discarded()) function["parameters"] = schema;
  return Json::object({{"type", "function"}, {"function", function}}).dump();
}

absl::Status ReadAnthropicTools(JsonObject& body, v1::Conversation* conversation) {
  BATON_ASSIGN_OR_RETURN(const Json* const tools, body.List("tools"));
  for (size_t i = 0; tools != nullptr && i < tools->size(); ++i) {
    BATON_ASSIGN_OR_RETURN(JsonObject tool, body.Inside((*tools)[i], fmt::format("tools[{}]", i)));
    BATON_ASSIGN_OR_RETURN(const auto type, tool.Text("type"));
    const KnownTool* const known = FindKnown(type.value_or(""));  // null: none
    if (known == nullptr && type.value_or("custom") != "custom") {
      return tool.Wrong(
          "type",
          fmt::format("\"{}\" does not run here: leave it out, or send a tool with an input_schema", *type));
    }
    v1::Tool& made = *conversation->add_tools();
    BATON_ASSIGN_OR_RETURN(const auto name, tool.Text("name"));
    BATON_ASSIGN_OR_RETURN(const auto description, tool.Text("description"));
    BATON_ASSIGN_OR_RETURN(const auto strict, tool.Flag("strict"));
    BATON_ASSIGN_OR_RETURN(const auto mark, ReadMark(tool));
    made.set_name(name.value_or(""));
    made.set_description(description.value_or(known == nullptr ? "" : known->description));
    made.set_strict(strict.value_or(false));
    BATON_ASSIGN_OR_RETURN(const auto deferred, tool.Flag("defer_loading"));
    made.set_deferred(deferred.value_or(false));
    if (const Json* const schema = tool.Find("input_schema"); schema != nullptr) {  // null: absent
      made.set_parameters_json(schema->dump());
    } else if (known != nullptr) {
      made.set_parameters_json(known->schema);
      // A bound that its client keeps by itself.
      tool.Skip({"max_characters"});
    }
    // The template writes tools as one piece: a mark at any of them is one at their end.
    if (mark.has_value()) *conversation->mutable_tools_cache() = *mark;
  }
  return absl::OkStatus();
}

absl::Status ReadAnthropicToolChoice(JsonObject& body, v1::ChatRequest* request) {
  const Json* const json = body.Find("tool_choice");  // null: absent
  if (json == nullptr || request->conversation().tools().empty()) return absl::OkStatus();
  BATON_ASSIGN_OR_RETURN(JsonObject choice, body.Inside(*json, "tool_choice"));
  BATON_ASSIGN_OR_RETURN(const auto type, choice.Text("type"));
  BATON_ASSIGN_OR_RETURN(const auto single, choice.Flag("disable_parallel_tool_use"));
  v1::ToolChoice& made = *request->mutable_tool_choice();
  if (single.value_or(false)) made.set_parallel(false);
  if (type == "auto") {
    made.set_mode(v1::ToolChoice::MODE_AUTO);
  } else if (type == "none") {
    made.set_mode(v1::ToolChoice::MODE_NONE);
  } else if (type == "any") {
    made.set_mode(v1::ToolChoice::MODE_REQUIRED);
  } else if (type == "tool") {
    BATON_ASSIGN_OR_RETURN(const auto name, choice.Text("name"));
    made.set_mode(v1::ToolChoice::MODE_REQUIRED);
    made.add_names(name.value_or(""));
  } else {
    return choice.Wrong("type", "not one of auto, any, tool and none");
  }
  return absl::OkStatus();
}

}  // namespace baton::gateway
