#include "decode_service/answer_parts.h"

#include <fmt/format.h>

#include <functional>
#include <map>
#include <utility>

namespace baton::decode_service {
namespace {

using output::PartKind;
using Event = output::PartEvent;

v1::PartStart::Kind ToProto(PartKind kind) {
  switch (kind) {
    case PartKind::kText:
      return v1::PartStart::KIND_TEXT;
    case PartKind::kThinking:
      return v1::PartStart::KIND_THINKING;
    case PartKind::kToolCall:
      return v1::PartStart::KIND_TOOL_CALL;
  }
  return v1::PartStart::KIND_UNSPECIFIED;
}

// The event that comes next in `delta`.
v1::PartEvent* AddEvent(uint32_t part, v1::Delta& delta) {
  v1::PartEvent* const event = delta.add_parts();
  event->set_part(part);
  return event;
}

}  // namespace

absl::StatusOr<AnswerParts::Options> AnswerParts::ReadOptions(
    const fleet::v1::AnswerFormat& format, std::shared_ptr<const output::MarkerTables> tables,
    uint64_t id_seed) {
  Options options;
  options.markers = tables == nullptr ? nullptr : tables->Find(format.name());
  if (options.markers == nullptr) {
    return absl::FailedPreconditionError(
        fmt::format("answer_format.name: this worker does not know \"{}\"", format.name()));
  }
  options.tables = std::move(tables);
  options.parser.tools = !format.tools().empty();
  options.parser.names.assign(format.tools().begin(), format.tools().end());
  options.parser.thinking = format.thinking_begun();
  options.parser.id_seed = id_seed;
  if (!format.parameters().empty()) {
    using Types = std::map<std::string, std::string, std::less<>>;
    auto types = std::make_shared<std::map<std::string, Types, std::less<>>>();
    for (const auto& [tool, parameters] : format.parameters()) {
      (*types)[tool] = Types(parameters.types().begin(), parameters.types().end());
    }
    options.parser.type = [types](std::string_view tool, std::string_view parameter) -> std::string {
      const auto of_tool = types->find(tool);
      if (of_tool == types->end()) return "";
      const auto type = of_tool->second.find(parameter);
      return type == of_tool->second.end() ? "" : type->second;
    };
  }
  options.one_call = format.one_call();
  options.hide_thinking = format.hide_thinking();
  if (format.has_thinking_budget()) options.thinking_budget = format.thinking_budget();
  return options;
}

AnswerParts::AnswerParts(Options options, const std::vector<std::string>& stops)
    : options_(std::move(options)),
      no_text_(stops),
      stops_(no_text_),
      parser_(*options_.markers, options_.parser) {}

void AnswerParts::Push(TokenId token, std::string_view text, bool whole, v1::Delta& delta) {
  const std::optional<TokenId> forced = Forced();
  whole_ = whole;
  parser_.Push(token, text, &events_);
  thinking_tokens_ += parser_.thinking() ? 1 : 0;
  cut_ = forced == token ? cut_ + 1 : 0;
  was_cut_ |= cut_ > 0 && cut_ == options_.markers->think_cut().size();
  Send(delta);
}

void AnswerParts::Finish(std::string_view text, v1::Delta& delta) {
  parser_.Finish(text, &events_);
  Send(delta);
  ended_ = true;
}

std::optional<TokenId> AnswerParts::Forced() const {
  if (!options_.thinking_budget.has_value() || was_cut_) return std::nullopt;
  const std::vector<TokenId>& cut = options_.markers->think_cut();
  const bool over = parser_.in_thinking() && whole_ && thinking_tokens_ >= *options_.thinking_budget;
  if (cut.empty() || (cut_ == 0 && !over)) return std::nullopt;
  return cut[cut_];
}

bool AnswerParts::MayForce() const {
  if (!options_.thinking_budget.has_value() || was_cut_) return false;
  return thinking_tokens_ + 1 >= *options_.thinking_budget && (cut_ > 0 || parser_.may_think());
}

void AnswerParts::Send(v1::Delta& delta) {
  for (Event& event : events_) {
    if (ended_) break;
    const bool is_text = event.kind == PartKind::kText;
    switch (event.type) {
      case Event::Type::kStart: {
        v1::PartStart* const start = AddEvent(event.part, delta)->mutable_start();
        start->set_kind(ToProto(event.kind));
        start->set_id(event.id);
        start->set_name(event.name);
        break;
      }
      case Event::Type::kText: {
        if (!is_text) {
          if (!options_.hide_thinking) AddEvent(event.part, delta)->set_text(std::move(event.text));
          break;
        }
        text::StopMatcher::Result shown = stops_.Push(event.text);
        SendText(event.part, shown.text, delta);
        if (!shown.match.has_value()) break;
        AddEvent(event.part, delta)->mutable_end()->set_complete(true);
        stop_match_ = std::move(shown.match);
        ended_ = true;
        break;
      }
      case Event::Type::kArguments:
        AddEvent(event.part, delta)->set_arguments_json(std::move(event.text));
        break;
      case Event::Type::kEnd:
        if (is_text) {
          SendText(event.part, stops_.Flush(), delta);
          stops_ = no_text_;
        }
        AddEvent(event.part, delta)->mutable_end()->set_complete(event.complete);
        if (options_.one_call && event.kind == PartKind::kToolCall && event.complete) {
          ended_by_call_ = ended_ = true;
        }
        break;
    }
  }
  events_.clear();
}

void AnswerParts::SendText(uint32_t part, std::string_view text, v1::Delta& delta) {
  if (text.empty()) return;
  delta.mutable_text()->append(text);
  AddEvent(part, delta)->set_text(std::string(text));
}

void AddPartsReport(const AnswerParts& parts, v1::Finished* finished) {
  finished->mutable_usage()->set_thinking_tokens(static_cast<uint32_t>(parts.thinking_tokens()));
  const auto warn = [&](output::Warning found, v1::Warning::Kind kind, const char* words) {
    const int count = parts.warnings(found);
    if (count == 0) return;
    v1::Warning* const warning = finished->add_warnings();
    warning->set_kind(kind);
    warning->set_count(static_cast<uint32_t>(count));
    warning->set_message(fmt::format("{} ({}, format {})", words, count, parts.format()));
  };
  warn(output::Warning::kMalformedCall, v1::Warning::KIND_MALFORMED_CALL,
       "what looked like a call of a tool could not be read");
  warn(output::Warning::kIncompleteCall, v1::Warning::KIND_INCOMPLETE_CALL,
       "the answer ended inside a call of a tool");
  warn(output::Warning::kUnknownTool, v1::Warning::KIND_UNKNOWN_TOOL,
       "a tool was called that the request does not offer; the call is text");
}

}  // namespace baton::decode_service
