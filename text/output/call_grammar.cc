#include "text/output/call_grammar.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "absl/strings/ascii.h"
#include "common/base/check.h"
#include "common/base/quote.h"
#include "common/base/status.h"
#include "common/json/strict_json.h"
#include "nlohmann/json.hpp"
#include "text/output/constraint.h"
#include "text/output/raw_arguments.h"

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

// The opener of an answer's first call; empty where calls are bare.
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

// The text before a named call's arguments and behind its kind, as a terminal.
std::string NamedHead(const OutputFormat& format, std::string_view name) {
  if (format.channels) return Quoted(fmt::format("commentary to=functions.{} ", name));
  if (format.header_is_id) return Quoted(fmt::format("functions.{}:", name)) + " /[0-9]{1,3}/";
  return Quoted(name);
}

// Terminals around the arguments of a call: before them behind the name's terminal, and behind them.
struct Around {
  std::string before, behind;
};
Around AroundArguments(const MarkerTable& markers) {
  const OutputFormat& format = markers.format();
  if (format.layout == Layout::kPython) return {.before = "", .behind = "\")\""};
  if (format.layout == Layout::kTagged) {
    return {.before = "", .behind = format.end.empty() ? "" : Quoted(format.end)};
  }
  if (format.layout != Layout::kNamed) return {.before = "", .behind = "TAIL"};
  if (format.channels) {
    return {.before = Piece(markers, "<|constrain|>") + "\"json\" " + Piece(markers, format.separator),
            .behind = ""};
  }
  Around around;
  if (!format.id_separator.empty()) {
    around.before =
        fmt::format("({}/[A-Za-z0-9]{{{}}}/)? ", Piece(markers, format.id_separator), format.id_letters);
  }
  around.before += Piece(markers, format.separator);
  // Behind a name that a line break ends, one stands around the fence, too.
  const bool fenced = !format.fence_open.empty();
  if (fenced) around.before += Quoted(std::string(format.fence_open) + "\n") + " ";
  if (fenced) around.behind = Quoted("\n" + std::string(format.fence_close));
  return around;
}

// The text before the arguments that the tool's name tells, as a terminal.
std::string Head(const OutputFormat& format, const std::string& name) {
  if (format.layout == Layout::kNamed) return NamedHead(format, name);
  if (format.layout == Layout::kTagged) return Quoted(name + std::string(format.name_close));
  if (format.layout == Layout::kPython) return Quoted(name + "(");
  return ObjectHead(format, name);
}

// The rules of one call without its opener and closer: call_0 and so on, and one that is any of them.
std::string CallRules(const MarkerTable& markers, std::span<const CallableTool> tools) {
  const OutputFormat& format = markers.format();
  const auto [before, behind] = AroundArguments(markers);
  std::string rules, any = "call:";
  if (behind == "TAIL") rules += "TAIL: " + ObjectTail(format) + "\n";
  for (size_t i = 0; i < tools.size(); ++i) {
    BATON_CHECK(tools[i].arguments.starts_with(kStart)) << " no grammar: " << tools[i].arguments;
    rules += fmt::format("HEAD_{}: {}\n", i, Head(format, tools[i].name));
    rules += fmt::format("call_{0}: HEAD_{0} {1}arguments_{0} {2}\n", i, before, behind);
    rules += fmt::format("arguments_{}: {}", i, tools[i].arguments.substr(kStart.size()));
    any += fmt::format("{} call_{}", i == 0 ? "" : " |", i);
  }
  return rules + any + "\n";
}

// Calls that stand together, without what opens the first of them. Where a call may begin with its name
// alone, "named" is one behind what opens the name.
std::string GroupRules(const MarkerTable& markers, bool one_call) {
  const OutputFormat& format = markers.format();
  if (format.channels) return "group: call\n";
  const auto repeated = [&](std::string_view rest) { return one_call ? "" : fmt::format(" ({})*", rest); };
  if (format.layout == Layout::kList) return R"(group: WS "[" call)" + repeated("\",\" call") + " \"]\"\n";
  if (format.layout == Layout::kPython) {
    return R"(group: "[" call)" + repeated("NEXT call") + " \"]\"\nNEXT: /,[ \\n]{0,2}/\n";
  }
  if (format.call_open.empty()) return "group: call" + repeated("SEMICOLON call") + "\n";
  if (format.layout == Layout::kTagged) {
    return fmt::format("group: GAP? {}named\nnamed: call GAP? {}\n", Piece(markers, format.name_open),
                       Piece(markers, format.call_close));
  }
  const std::string kind = Piece(markers, format.kind) + Piece(markers, format.kind_separator);
  const std::string one = kind + "call " + Piece(markers, format.call_close);
  if (!HasSection(format)) return "group: " + one + "\n";
  const std::string opened = Piece(markers, format.call_open) + one;
  return fmt::format("group: GAP? {}{} GAP? {}\n", opened, repeated("GAP? " + opened),
                     Piece(markers, format.section_close));
}

// A grammar as the rule "text" and those that it has beside its first.
std::string TextRule(const std::string& text) {
  BATON_CHECK(text.starts_with(kStart)) << " no grammar: " << text;
  return fmt::format("text: {}", text.substr(kStart.size()));
}

// Messages in channels before the one that ends the answer, and that one: words for the user, or (`calls`) a
// call.
std::string ChannelRules(const MarkerTable& markers, const CallShape& shape, bool calls) {
  const std::string channel = Piece(markers, "<|channel|>");
  const std::string message = Piece(markers, "<|message|>");
  const std::string next = Piece(markers, "<|end|>") + Piece(markers, "<|start|>") + "\"assistant\"";
  const std::string call = fmt::format("{}group {}?", channel, Piece(markers, "<|call|>"));
  const std::string final = fmt::format("{}\"final\" {}", channel, message);
  // Commentary beside an answer that obeys would be text, too.
  const bool alone = shape.required || !shape.text.empty();
  const std::string thought =
      fmt::format("thought: {}{} {}TEXT? {}\n", channel,
                  alone ? "\"analysis\"" : "(\"analysis\" | \"commentary\")", message, next);
  // A budget of thinking opens the channel of the answer, which then has nothing in it.
  if (shape.required) return fmt::format("start: thought* ({}{})? {}\n{}", final, next, call, thought);
  const std::string answer = shape.text.empty() ? "TEXT?" : "text";
  return fmt::format("start: thought* ({}{}{}{})\n{}{}", calls ? call : "", calls ? " | " : "", final, answer,
                     thought, shape.text.empty() ? "" : TextRule(shape.text));
}

// Calls and text where nothing opens a call: an answer that begins as a call does is calls, and so is what
// stands behind section_open.
std::string BareStart(const MarkerTable& markers, const std::string& calls, const std::string& again) {
  const OutputFormat& format = markers.format();
  const std::string tag = Piece(markers, format.section_open);
  const bool spelled = !tag.empty() && !markers.IdOf(format.section_open).has_value();
  const std::string words = fmt::format(R"(WORDS: /[ \t\r\n]*[^\{} \t\r\n](.|\n)*/)", format.bare) +
                            (spelled ? " & ~(/(.|\\n)*/ " + tag + "/(.|\\n)*/)" : "") + "\n";
  if (tag.empty()) return fmt::format("start: WORDS? | {}\n{}", calls, words);
  const std::string close = Piece(markers, format.section_close);
  return fmt::format("start: WORDS? ({}{} {}){} | {}\n{}", tag, calls,
                     close.empty() ? "" : "(" + close + ")?", again, calls, words);
}

// Calls and text where what opens a call is one token, or text that is looked for. A name that nothing opens
// (bare_name) begins a call as well.
std::string OpenedStart(const MarkerTable& markers, const CallShape& shape) {
  const OutputFormat& format = markers.format();
  const std::string opener = Piece(markers, Opener(format));
  const std::string again = shape.one_call ? "?" : "*";
  const bool by_id = markers.IdOf(Opener(format)).has_value();
  const bool bare = format.bare_name && !markers.IdOf(format.name_open).has_value();
  const std::string named =
      bare ? fmt::format("bare[lazy]: BARE\nBARE: /(.|\\n)*/ {}\n", Quoted(format.name_open)) : "";
  if (!by_id) {
    return fmt::format("start: (opened group{}){} TEXT?\nopened[lazy]: OPENED\nOPENED: /(.|\\n)*/ {}\n{}",
                       bare ? " | bare named" : "", again, opener, named);
  }
  if (!bare)
    return fmt::format("start: TEXT? ({}group{}){}\n", opener, shape.one_call ? "" : " TEXT?", again);
  const std::string said =
      fmt::format("SAID: /(.|\\n)+/ & ~(/(.|\\n)*/ {} /(.|\\n)*/)\n{}", Quoted(format.name_open), named);
  if (shape.one_call) return fmt::format("start: SAID? | SAID? {}group | bare named\n{}", opener, said);
  return fmt::format("start: (SAID? {}group | bare named)* SAID?\n{}", opener, said);
}

// The answer as groups of calls, and text where the shape has any.
std::string StartRules(const MarkerTable& markers, const CallShape& shape) {
  const OutputFormat& format = markers.format();
  if (format.channels) return ChannelRules(markers, shape, /*calls=*/true);
  const std::string_view marker = Opener(format);
  const std::string opener = Piece(markers, marker);
  const bool several = !HasSection(format) && format.layout != Layout::kList && !marker.empty();
  const std::string calls =
      opener + "group" + (several && !shape.one_call ? fmt::format(" (GAP? {}group)*", opener) : "");
  if (shape.required) return kStart.data() + calls + "\n";
  if (!shape.text.empty()) return fmt::format("start: {} | text\n{}", calls, TextRule(shape.text));
  if (marker.empty()) return BareStart(markers, calls, shape.one_call ? "?" : "*");
  return OpenedStart(markers, shape);
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
  if (format.layout == Layout::kNone) return false;
  if (HasSection(format) && !(is_id(format.section_open) && is_id(format.call_open))) return false;
  // A call's opener ends thinking, and the grammar does not see text inside thinking.
  const std::string_view opener = Opener(format);
  return !thinks || (is_id(format.think_close) && (opener.empty() || is_id(opener)));
}

bool TellsCallsFromText(const MarkerTable& markers) {
  const OutputFormat& format = markers.format();
  if (format.channels) return CanConstrainCalls(markers, /*thinks=*/true);
  if (format.bare_name && !markers.IdOf(format.name_open).has_value()) return false;
  const std::string_view opener = Opener(format);
  return !opener.empty() && markers.IdOf(opener).has_value();
}

absl::Status CheckToolName(const OutputFormat& format, std::string_view name) {
  // In most formats a name stands among markers, not in a string.
  const std::string_view marks = format.layout == Layout::kPython ? "_-." : "_-./:";
  const bool plain = std::ranges::all_of(name, [marks](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || marks.find(c) != std::string_view::npos;
  });
  if (plain) return absl::OkStatus();
  return absl::InvalidArgumentError(
      fmt::format("{}: calls of a tool can be constrained if its name has letters, digits, and \"{}\" only",
                  baton::Quoted(name), marks));
}

absl::StatusOr<std::string> ArgumentsGrammar(const MarkerTable& markers, std::string_view schema, int tool) {
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
  const Layout layout = markers.format().layout;
  if (layout == Layout::kTagged || layout == Layout::kPython) return RawArguments(markers, parsed, tool);
  return SchemaGrammar(parsed.dump());
}

std::string CallGrammar(const MarkerTable& markers, std::span<const CallableTool> tools,
                        const CallShape& shape) {
  return StartRules(markers, shape) + GroupRules(markers, shape.one_call) + CallRules(markers, tools) +
         kTerminals;
}

std::string TextGrammar(const MarkerTable& markers, const std::string& text) {
  if (!markers.format().channels) return text;
  return ChannelRules(markers, {.text = text}, /*calls=*/false) + kTerminals;
}

}  // namespace baton::output
