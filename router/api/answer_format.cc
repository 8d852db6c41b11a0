#include "router/api/answer_format.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "common/base/quote.h"
#include "common/base/status.h"
#include "nlohmann/json.hpp"
#include "router/api/validation.h"
#include "text/output/raw_arguments.h"

namespace baton::router {
namespace {

using Choice = v1::ToolChoice;

// True if answers to this request are parsed into parts.
bool HasParts(const ServedModel& model, const v1::ChatRequest& request) {
  return model.output.format->name != "none" && !request.output().raw_text();
}

// The error for a request that needs parts of a kind that its answer lacks: `field` opens the message.
absl::Status NoParts(const ServedModel& model, const v1::ChatRequest& request, const char* field,
                     const char* what) {
  if (request.output().raw_text()) {
    return absl::InvalidArgumentError(
        fmt::format("{}: goes with an answer in parts, and output.raw_text asks for none", field));
  }
  return absl::InvalidArgumentError(fmt::format(
      "{}: how model \"{}\" writes {} is not known, so it can't be obeyed; leave it out, or let the "
      "operator name the format with --output-format",
      field, model.name, what));
}

// OK if calls in the model's format can be constrained, as `field` asks.
absl::Status CheckStrict(const ServedModel& model, std::string_view field) {
  if (model.strict_tools) return absl::OkStatus();
  return absl::UnimplementedError(fmt::format(
      "{}: calls of model \"{}\", which writes them in format {}, can't be constrained; leave it out, "
      "and ask for the call in the prompt",
      field, model.name, model.output.format->name));
}

// The type that a schema gives to a parameter; empty: none, or several.
std::string TypeIn(const nlohmann::ordered_json& schema) {
  if (!schema.is_object()) return "";
  const auto type = schema.find("type");
  if (type == schema.end()) return "";
  if (type->is_string()) return type->get<std::string>();
  if (!type->is_array()) return "";
  std::string only;  // of a list, the one beside null
  for (const nlohmann::ordered_json& one : *type) {
    if (!one.is_string() || one == "null") continue;
    if (!only.empty()) return "";
    only = one.get<std::string>();
  }
  return only;
}

// A value of a call whose arguments obey their schema is JSON, unless the grammar wrote a text.
constexpr const char* kWrittenAsJson = "any";

void AddTypes(const v1::Tool& tool, bool enforced, baton::fleet::v1::AnswerFormat* format) {
  const auto schema =
      nlohmann::ordered_json::parse(tool.parameters_json(), nullptr, /*allow_exceptions=*/false);
  if (!schema.is_object() || !schema.contains("properties") || !schema["properties"].is_object()) return;
  auto& types = *(*format->mutable_parameters())[tool.name()].mutable_types();
  for (const auto& [name, property] : schema["properties"].items()) {
    std::string type = TypeIn(property);
    if (enforced && output::IsPlainText(schema, property)) {
      type = "string";
    } else if (enforced && (type.empty() || type == "string")) {
      type = kWrittenAsJson;
    }
    if (!type.empty()) types[name] = std::move(type);
  }
}

}  // namespace

absl::Status CheckToolChoice(const ServedModel& model, const v1::ChatRequest& request) {
  if (!request.has_tool_choice()) return absl::OkStatus();
  const Choice& choice = request.tool_choice();
  if (!Choice::Mode_IsValid(choice.mode())) {
    return NoValueOf(*Choice::Mode_descriptor(), "tool_choice.mode", choice.mode());
  }
  const bool required = choice.mode() == Choice::MODE_REQUIRED;
  if (required && request.conversation().tools().empty()) {
    return absl::InvalidArgumentError(
        "tool_choice.mode: MODE_REQUIRED, and conversation.tools has none that could be called");
  }
  const bool none = choice.mode() == Choice::MODE_NONE;
  if (none && !choice.names().empty()) {
    return absl::InvalidArgumentError(
        "tool_choice.names: MODE_NONE calls none of them; leave out one or the other");
  }
  absl::flat_hash_set<std::string> tools;
  for (const v1::Tool& tool : request.conversation().tools()) tools.insert(tool.name());
  for (int i = 0; i < choice.names_size(); ++i) {
    if (tools.contains(choice.names(i))) continue;
    return absl::InvalidArgumentError(
        fmt::format("tool_choice.names[{}]: {} is none of conversation.tools", i, Quoted(choice.names(i))));
  }
  const bool asks = required || !choice.names().empty() || (choice.has_parallel() && !choice.parallel());
  if (!asks || none) return absl::OkStatus();
  if (HasParts(model, request) && model.output.tools) {
    return required ? CheckStrict(model, "tool_choice.mode: MODE_REQUIRED") : absl::OkStatus();
  }
  return NoParts(model, request,
                 required                 ? "tool_choice.mode"
                 : choice.names().empty() ? "tool_choice.parallel"
                                          : "tool_choice.names",
                 "tool calls");
}

absl::Status CheckThinking(const ServedModel& model, const v1::ChatRequest& request) {
  if (!request.has_thinking()) return absl::OkStatus();
  const v1::Thinking& thinking = request.thinking();
  const v1::Conversation& conversation = request.conversation();
  if (thinking.effort().size() > kMaxEffortBytes) {
    return absl::InvalidArgumentError(fmt::format("thinking.effort: {} bytes, at most {} are allowed",
                                                  thinking.effort().size(), kMaxEffortBytes));
  }
  if (!thinking.effort().empty() && conversation.template_arguments().fields().contains("reasoning_effort")) {
    return absl::InvalidArgumentError(
        "thinking.effort: conversation.template_arguments has reasoning_effort, too; set one");
  }
  if (thinking.has_budget_tokens() && thinking.budget_tokens() == 0) {
    return absl::InvalidArgumentError(
        "thinking.budget_tokens: 0 is no budget; set enabled to false for an answer without thinking");
  }
  if (!v1::Thinking::Show_IsValid(thinking.show())) {
    return NoValueOf(*v1::Thinking::Show_descriptor(), "thinking.show", thinking.show());
  }
  const bool known = HasParts(model, request) && model.output.thinking;
  if (thinking.has_budget_tokens() && !known) {
    return NoParts(model, request, "thinking.budget_tokens", "thinking");
  }
  if (thinking.show() == v1::Thinking::SHOW_NONE && !known) {
    return NoParts(model, request, "thinking.show", "thinking");
  }
  return absl::OkStatus();
}

absl::Status CheckConstraint(const ServedModel& model, const v1::ChatRequest& request) {
  const auto& tools = request.conversation().tools();
  const bool none = request.tool_choice().mode() == Choice::MODE_NONE;
  for (int i = 0; i < tools.size() && !none; ++i) {
    if (!tools[i].strict()) continue;
    const std::string field = fmt::format("conversation.tools[{}].strict", i);
    if (!HasParts(model, request) || !model.output.tools) {
      return NoParts(model, request, field.c_str(), "tool calls");
    }
    BATON_RETURN_IF_ERROR(CheckStrict(model, field));
  }
  if (!request.has_constraint()) return absl::OkStatus();
  if (request.output().raw_text() && model.output.thinking) {
    return absl::InvalidArgumentError(
        "constraint: where thinking ends is known in an answer in parts only, and output.raw_text asks for "
        "none");
  }
  if (model.text_beside_tools) return absl::OkStatus();
  if (InChannels(model, request)) {
    return absl::UnimplementedError(
        fmt::format("constraint: the channels of format {} are no tokens of this model; use Generate",
                    model.output.format->name));
  }
  if (!CallsConstrained(model, request)) return absl::OkStatus();
  return absl::UnimplementedError(fmt::format(
      "constraint: with this model's format {}, not beside tools that may be called; set tool_choice.mode to "
      "MODE_NONE",
      model.output.format->name));
}

bool InChannels(const ServedModel& model, const v1::ChatRequest& request) {
  return HasParts(model, request) && model.output.format->channels;
}

bool CallsConstrained(const ServedModel& model, const v1::ChatRequest& request) {
  const auto& tools = request.conversation().tools();
  const Choice::Mode mode = request.tool_choice().mode();
  if (mode == Choice::MODE_NONE || tools.empty() || !HasParts(model, request) || !model.output.tools) {
    return false;
  }
  return mode == Choice::MODE_REQUIRED || request.has_constraint() ||
         std::ranges::any_of(tools, [](const v1::Tool& tool) { return tool.strict(); });
}

bool MayThink(const ServedModel& model, const v1::ChatRequest& request) {
  const bool off = request.thinking().has_enabled() && !request.thinking().enabled();
  return HasParts(model, request) && model.output.thinking && !model.output.format->channels && !off;
}

std::optional<baton::fleet::v1::AnswerFormat> AnswerFormatOf(const ServedModel& model,
                                                             const v1::ChatRequest& request,
                                                             std::string_view prompt) {
  if (!HasParts(model, request)) return std::nullopt;
  const output::OutputFormat& known = *model.output.format;
  const Choice& choice = request.tool_choice();
  baton::fleet::v1::AnswerFormat format;
  format.set_name(std::string(known.name));
  if (model.output.tools && choice.mode() != Choice::MODE_NONE) {
    const absl::flat_hash_set<std::string> allowed(choice.names().begin(), choice.names().end());
    const bool required = choice.mode() == Choice::MODE_REQUIRED;
    for (const v1::Tool& tool : request.conversation().tools()) {
      if (!allowed.empty() && !allowed.contains(tool.name())) continue;
      format.add_tools(tool.name());
      if (known.layout == output::Layout::kTagged) AddTypes(tool, required || tool.strict(), &format);
    }
    format.set_one_call(choice.has_parallel() && !choice.parallel());
  }
  // The template wrote the opener, so the answer begins behind it.
  format.set_thinking_begun(output::OpensThinking(known, prompt));
  format.set_hide_thinking(request.thinking().show() == v1::Thinking::SHOW_NONE);
  if (request.thinking().has_budget_tokens()) format.set_thinking_budget(request.thinking().budget_tokens());
  return format;
}

}  // namespace baton::router
