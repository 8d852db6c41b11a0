#include "common/output/call_grammar.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "common/base/check.h"
#include "common/base/status.h"
#include "common/json/strict_json.h"
#include "common/output/constraint.h"
#include "nlohmann/json.hpp"

namespace baton::output {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kStart = "start: ";
// White space that a model may write around a call and its members; TEXT is any text without control tokens.
constexpr const char* kTerminals =
    "WS: /[ \\t\\r\\n]{0,4}/\n"
    "GAP: /[ \\t\\r\\n]{1,4}/\n"
    "SEMICOLON: WS \";\"\n"
    "TEXT: /(.|\\n)+/\n";

// As a string of Lark, which is one of JSON.
std::string Quoted(std::string_view text) { return Json(std::string(text)).dump(); }
// The same for a text that is a string of JSON in the answer.
std::string QuotedJson(std::string_view text) { return Quoted(Quoted(text)); }

// A marker where it stands in a rule.
std::string Piece(const MarkerTable& markers, std::string_view marker) {
  if (marker.empty()) return "";
  const auto id = markers.IdOf(marker);
  return (id.has_value() ? fmt::format("<[{}]>", id->value()) : Quoted(marker)) + " ";
}

bool HasSection(const OutputFormat& format) {
  return !format.section_open.empty() && !format.call_open.empty();
}

// What begins the first call of an answer; empty where calls are bare.
std::string_view Opener(const OutputFormat& format) {
  return HasSection(format) ? format.section_open : format.call_open;
}

// {"name": NAME, "arguments": ARGUMENTS}: the terminals around the arguments.
std::string ObjectHead(const OutputFormat& format, std::string_view name) {
  return fmt::format(R"(WS "{{" WS "\"name\"" WS ":" WS {} WS "," WS {} WS ":" WS)", QuotedJson(name),
                     QuotedJson(format.arguments_key));
}
std::string ObjectTail(const OutputFormat& format) {
  // Behind a bare call, white space would be text.
  if (format.call_open.empty()) return R"(WS "}")";
  if (format.id_letters == 0) return R"(WS "}" WS)";
  return fmt::format(R"(WS ("," WS "\"id\"" WS ":" WS /"[A-Za-z0-9]{{{}}}"/ WS)? "}}" WS)",
                     format.id_letters);
}

// What stands before the arguments of a named call and behind its kind, as a terminal.
std::string NamedHead(const OutputFormat& format, std::string_view name) {
  if (format.channels) return Quoted(fmt::format("commentary to=functions.{} ", name));
  if (format.header_is_id) return Quoted(fmt::format("functions.{}:", name)) + " /[0-9]{1,3}/";
  return Quoted(name);
}

// The rules of one call without its opener and closer: call_0 and so on, and one that is any of them.
std::string CallRules(const MarkerTable& markers, std::span<const CallableTool> tools) {
  const OutputFormat& format = markers.format();
  const bool named = format.layout == Layout::kNamed;
  std::string before, behind, rules, any = "call:";
  if (!named) {
    behind = "TAIL";
    rules += "TAIL: " + ObjectTail(format) + "\n";
  } else if (format.channels) {
    before = Piece(markers, "<|constrain|>") + "\"json\" " + Piece(markers, format.separator);
  } else {
    // Behind a name that a line break ends, one stands around the fence, too.
    const bool fenced = !format.fence_open.empty();
    if (!format.id_separator.empty()) {
      before =
          fmt::format("({}/[A-Za-z0-9]{{{}}}/)? ", Piece(markers, format.id_separator), format.id_letters);
    }
    before += Piece(markers, format.separator);
    if (fenced) before += Quoted(std::string(format.fence_open) + "\n") + " ";
    if (fenced) behind = Quoted("\n" + std::string(format.fence_close));
  }
  for (size_t i = 0; i < tools.size(); ++i) {
    const std::string head = named ? NamedHead(format, tools[i].name) : ObjectHead(format, tools[i].name);
    BATON_CHECK(tools[i].arguments.starts_with(kStart)) << " no grammar: " << tools[i].arguments;
    rules += fmt::format("HEAD_{}: {}\n", i, head);
    rules += fmt::format("arguments_{}: {}", i, tools[i].arguments.substr(kStart.size()));
    rules += fmt::format("call_{0}: HEAD_{0} {1}arguments_{0} {2}\n", i, before, behind);
    any += fmt::format("{} call_{}", i == 0 ? "" : " |", i);
  }
  return rules + any + "\n";
}

// Calls that stand together, without what opens the first of them.
std::string GroupRule(const MarkerTable& markers, bool one_call) {
  const OutputFormat& format = markers.format();
  if (format.channels) return "group: call";
  const auto repeated = [&](std::string_view rest) { return one_call ? "" : fmt::format(" ({})*", rest); };
  if (format.layout == Layout::kList) return R"(group: WS "[" call)" + repeated("\",\" call") + R"( "]")";
  if (format.call_open.empty()) return "group: call" + repeated("SEMICOLON call");
  const std::string kind = Piece(markers, format.kind) + Piece(markers, format.kind_separator);
  const std::string one = kind + "call " + Piece(markers, format.call_close);
  if (!HasSection(format)) return "group: " + one;
  const std::string opened = Piece(markers, format.call_open) + one;
  return fmt::format("group: GAP? {}{} GAP? {}", opened, repeated("GAP? " + opened),
                     Piece(markers, format.section_close));
}

// Messages in channels before the one that ends the answer, and that one: words for the user, or a call.
std::string ChannelRules(const MarkerTable& markers, const CallShape& shape) {
  const std::string channel = Piece(markers, "<|channel|>");
  const std::string message = Piece(markers, "<|message|>");
  const std::string next = Piece(markers, "<|end|>") + Piece(markers, "<|start|>") + "\"assistant\"";
  const std::string calls = fmt::format("{}group {}?", channel, Piece(markers, "<|call|>"));
  const std::string thought =
      fmt::format("thought: {}{} {}TEXT? {}\n", channel,
                  shape.required ? "\"analysis\"" : "(\"analysis\" | \"commentary\")", message, next);
  if (shape.required) return fmt::format("start: thought* {}\n{}", calls, thought);
  return fmt::format("start: thought* ({} | {}\"final\" {}TEXT?)\n{}", calls, channel, message, thought);
}

// The answer as groups of calls, and text where the shape has any.
std::string StartRules(const MarkerTable& markers, const CallShape& shape) {
  const OutputFormat& format = markers.format();
  if (format.channels) return ChannelRules(markers, shape);
  const std::string_view marker = Opener(format);
  const std::string opener = Piece(markers, marker);
  const bool several = !HasSection(format) && format.layout != Layout::kList && !marker.empty();
  const std::string calls =
      opener + "group" + (several && !shape.one_call ? fmt::format(" (GAP? {}group)*", opener) : "");
  if (shape.required) return kStart.data() + calls + "\n";
  if (!shape.text.empty()) {
    BATON_CHECK(shape.text.starts_with(kStart)) << " no grammar: " << shape.text;
    return fmt::format("start: {} | text\ntext: {}", calls, shape.text.substr(kStart.size()));
  }
  const std::string again = shape.one_call ? "?" : "*";
  if (marker.empty()) {
    // An answer that begins as a call does is calls, and so is what stands behind section_open.
    const std::string tag = Piece(markers, format.section_open);
    const bool spelled = !tag.empty() && !markers.IdOf(format.section_open).has_value();
    const std::string words = fmt::format(R"(WORDS: /[ \t\r\n]*[^\{} \t\r\n](.|\n)*/)", format.bare) +
                              (spelled ? " & ~(/(.|\\n)*/ " + tag + "/(.|\\n)*/)" : "") + "\n";
    if (tag.empty()) return fmt::format("start: WORDS? | {}\n{}", calls, words);
    return fmt::format("start: WORDS? ({}{}){} | {}\n{}", tag, calls, again, calls, words);
  }
  if (markers.IdOf(marker).has_value()) {
    return fmt::format("start: TEXT? ({}group{}){}\n", opener, shape.one_call ? "" : " TEXT?", again);
  }
  return fmt::format("start: (opened group){} TEXT?\nopened[lazy]: OPENED\nOPENED: /(.|\\n)*/ {}\n", again,
                     opener);
}

}  // namespace

bool CanConstrainCalls(const MarkerTable& markers, bool thinks) {
  const OutputFormat& format = markers.format();
  const auto is_id = [&](std::string_view marker) { return markers.IdOf(marker).has_value(); };
  if (format.channels) {
    return std::ranges::all_of(
        std::initializer_list<std::string_view>{"<|start|>", "<|channel|>", "<|constrain|>", "<|message|>",
                                                "<|call|>", "<|end|>"},
        is_id);
  }
  if (format.layout != Layout::kObject && format.layout != Layout::kList && format.layout != Layout::kNamed) {
    return false;
  }
  if (HasSection(format) && !(is_id(format.section_open) && is_id(format.call_open))) return false;
  // What opens a call ends thinking, and the grammar does not see text inside it.
  const std::string_view opener = Opener(format);
  return !thinks || (is_id(format.think_close) && (opener.empty() || is_id(opener)));
}

bool TellsCallsFromText(const MarkerTable& markers) {
  const std::string_view opener = Opener(markers.format());
  return !markers.format().channels && !opener.empty() && markers.IdOf(opener).has_value();
}

absl::StatusOr<std::string> ArgumentsGrammar(std::string_view schema) {
  BATON_ASSIGN_OR_RETURN(Json parsed, json::Parse<Json>(schema.empty() ? "{}" : schema));
  if (!parsed.is_object()) return absl::InvalidArgumentError("a schema of arguments is a JSON object");
  const auto type = parsed.find("type");
  if (type == parsed.end()) {
    json::Append(&parsed, "type", "object");
  } else if (type->is_array() && std::ranges::find(*type, "object") != type->end()) {
    *type = "object";
  } else if (*type != "object") {
    return absl::InvalidArgumentError(fmt::format("arguments are an object, and type is {}", type->dump()));
  }
  return SchemaGrammar(parsed.dump());
}

std::string CallGrammar(const MarkerTable& markers, std::span<const CallableTool> tools,
                        const CallShape& shape) {
  return StartRules(markers, shape) + GroupRule(markers, shape.one_call) + "\n" + CallRules(markers, tools) +
         kTerminals;
}

}  // namespace baton::output
