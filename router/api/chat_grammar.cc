#include "router/api/chat_grammar.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/base/quote.h"
#include "common/base/status.h"
#include "common/output/call_grammar.h"
#include "router/api/answer_format.h"

namespace baton::router {
namespace {

// How long to look for the tool whose schema keeps the grammar of all from compiling.
constexpr absl::Duration kSearch = absl::Milliseconds(300);

// A tool that may be called, and where it stands in the request.
struct Offered {
  int at;
  const v1::Tool* tool;
};

std::vector<Offered> OfferedTools(const v1::ChatRequest& request) {
  std::vector<Offered> offered;
  const auto& names = request.tool_choice().names();
  for (int i = 0; i < request.conversation().tools_size(); ++i) {
    const v1::Tool& tool = request.conversation().tools(i);
    const bool allowed = names.empty() || std::ranges::find(names, tool.name()) != names.end();
    if (allowed) offered.push_back({.at = i, .tool = &tool});
  }
  return offered;
}

absl::Status InSchema(const Offered& one, const absl::Status& wrong) {
  return absl::Status(wrong.code(),
                      fmt::format("conversation.tools[{}].parameters_json: of tool {}: {}", one.at,
                                  Quoted(one.tool->name()), std::string(wrong.message())));
}

// In most formats a name stands among markers, not in a string.
absl::Status CheckName(const Offered& one) {
  const bool plain = std::ranges::all_of(one.tool->name(), [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
           std::string_view("_-./:").find(c) != std::string_view::npos;
  });
  if (plain) return absl::OkStatus();
  return absl::InvalidArgumentError(fmt::format(
      "conversation.tools[{}].name: {}: calls of a tool can be constrained if its name has letters, "
      "digits, and \"_-./:\" only",
      one.at, Quoted(one.tool->name())));
}

// Why the grammar of all calls does not compile: one of the schemas, or all of them together.
absl::Status WhatIsWrong(const GrammarCheck& grammars, const std::vector<Offered>& offered,
                         const std::vector<output::CallableTool>& tools, const absl::Status& wrong) {
  const absl::Time until = absl::Now() + kSearch;
  for (size_t i = 0; i < tools.size() && absl::Now() < until; ++i) {
    if (const absl::Status alone = grammars.CompilesMade(tools[i].arguments); !alone.ok()) {
      return InSchema(offered[i], alone);
    }
  }
  return absl::Status(wrong.code(), fmt::format("conversation.tools: the grammar of their calls: {}",
                                                std::string(wrong.message())));
}

}  // namespace

absl::StatusOr<std::optional<v1::AnswerGrammar>> ChatGrammar(const ServedModel& model,
                                                             const v1::ChatRequest& request) {
  const bool constrained = request.has_constraint();
  v1::AnswerGrammar grammar;
  if (!CallsConstrained(model, request)) {
    if (!constrained) return std::nullopt;
    BATON_ASSIGN_OR_RETURN(grammar, model.grammars->GrammarOf(request.constraint()));
    grammar.set_may_think(MayThink(model, request));
    return grammar;
  }
  output::CallShape shape;
  shape.required = request.tool_choice().mode() == v1::ToolChoice::MODE_REQUIRED;
  shape.one_call = request.tool_choice().has_parallel() && !request.tool_choice().parallel();
  if (constrained) {
    BATON_ASSIGN_OR_RETURN(v1::AnswerGrammar text, model.grammars->GrammarOf(request.constraint()));
    shape.text = std::move(*text.mutable_lark());
  }
  const std::vector<Offered> offered = OfferedTools(request);
  std::vector<output::CallableTool> tools;
  for (const Offered& one : offered) {
    BATON_RETURN_IF_ERROR(CheckName(one));
    const bool enforced = shape.required || one.tool->strict();
    auto arguments = output::ArgumentsGrammar(enforced ? one.tool->parameters_json() : "");
    if (!arguments.ok()) return InSchema(one, arguments.status());
    tools.push_back({.name = one.tool->name(), .arguments = *std::move(arguments)});
  }
  grammar.set_lark(output::CallGrammar(*model.markers, tools, shape));
  if (const absl::Status compiles = model.grammars->CompilesMade(grammar.lark()); !compiles.ok()) {
    return WhatIsWrong(*model.grammars, offered, tools, compiles);
  }
  grammar.set_may_think(MayThink(model, request));
  return grammar;
}

}  // namespace baton::router
