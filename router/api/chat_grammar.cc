#include "router/api/chat_grammar.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/base/quote.h"
#include "common/base/status.h"
#include "router/api/answer_format.h"
#include "text/output/call_grammar.h"
#include "text/output/constraint.h"

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

absl::Status CheckName(const ServedModel& model, const Offered& one) {
  const absl::Status plain = output::CheckToolName(*model.output.format, one.tool->name());
  if (plain.ok()) return plain;
  return absl::Status(plain.code(),
                      fmt::format("conversation.tools[{}].name: {}", one.at, std::string(plain.message())));
}

// The grammar of an answer's text, as a part of a larger grammar.
absl::StatusOr<std::string> TextOf(const ServedModel& model, const v1::Constraint& constraint,
                                   GrammarCheck::Effort effort) {
  BATON_ASSIGN_OR_RETURN(baton::fleet::v1::AnswerGrammar text, model.grammars->GrammarOf(constraint, effort));
  if (!constraint.has_lark()) return std::move(*text.mutable_lark());
  std::string inner = output::InnerGrammar(text.lark());
  if (const absl::Status compiles = model.grammars->CompilesMade(inner, effort); !compiles.ok()) {
    if (GrammarCheck::IsNew(compiles)) return compiles;
    return absl::Status(compiles.code(),
                        fmt::format("constraint.lark: as the text of an answer that has other parts: {}",
                                    std::string(compiles.message())));
  }
  return inner;
}

// Why the grammar of all calls does not compile: one of the schemas, or all of them together.
absl::Status WhatIsWrong(const GrammarCheck& grammars, const std::vector<Offered>& offered,
                         const std::vector<output::CallableTool>& tools, GrammarCheck::Effort effort,
                         const absl::Status& wrong) {
  const absl::Time until = absl::Now() + kSearch;
  for (size_t i = 0; i < tools.size() && absl::Now() < until; ++i) {
    if (const absl::Status alone = grammars.CompilesMade(tools[i].arguments, effort); !alone.ok()) {
      return GrammarCheck::IsNew(alone) ? alone : InSchema(offered[i], alone);
    }
  }
  return absl::Status(wrong.code(), fmt::format("conversation.tools: the grammar of their calls: {}",
                                                std::string(wrong.message())));
}

}  // namespace

absl::StatusOr<std::optional<baton::fleet::v1::AnswerGrammar>> ChatGrammar(const ServedModel& model,
                                                                           const v1::ChatRequest& request,
                                                                           GrammarCheck::Effort effort) {
  const bool constrained = request.has_constraint();
  baton::fleet::v1::AnswerGrammar grammar;
  if (!CallsConstrained(model, request)) {
    if (!constrained) return std::nullopt;
    if (InChannels(model, request)) {
      BATON_ASSIGN_OR_RETURN(const std::string text, TextOf(model, request.constraint(), effort));
      grammar.set_lark(output::TextGrammar(*model.markers, text));
      BATON_RETURN_IF_ERROR(model.grammars->CompilesMade(grammar.lark(), effort));
    } else {
      BATON_ASSIGN_OR_RETURN(grammar, model.grammars->GrammarOf(request.constraint(), effort));
    }
    grammar.set_may_think(MayThink(model, request));
    return grammar;
  }
  output::CallShape shape;
  shape.required = request.tool_choice().mode() == v1::ToolChoice::MODE_REQUIRED;
  shape.one_call = request.tool_choice().has_parallel() && !request.tool_choice().parallel();
  if (constrained) {
    BATON_ASSIGN_OR_RETURN(shape.text, TextOf(model, request.constraint(), effort));
  }
  const std::vector<Offered> offered = OfferedTools(request);
  std::vector<output::CallableTool> tools;
  for (const Offered& one : offered) {
    BATON_RETURN_IF_ERROR(CheckName(model, one));
    const bool enforced = shape.required || one.tool->strict();
    auto arguments = output::ArgumentsGrammar(*model.markers, enforced ? one.tool->parameters_json() : "",
                                              static_cast<int>(tools.size()));
    if (!arguments.ok()) return InSchema(one, arguments.status());
    tools.push_back({.name = one.tool->name(), .arguments = *std::move(arguments)});
  }
  grammar.set_lark(output::CallGrammar(*model.markers, tools, shape));
  if (const absl::Status compiles = model.grammars->CompilesMade(grammar.lark(), effort); !compiles.ok()) {
    if (GrammarCheck::IsNew(compiles)) return compiles;
    return WhatIsWrong(*model.grammars, offered, tools, effort, compiles);
  }
  grammar.set_may_think(MayThink(model, request));
  return grammar;
}

}  // namespace baton::router
