#include "gateway/mapping/overflow.h"

#include <fmt/format.h>

#include <string>
#include <string_view>

#include "absl/strings/ascii.h"
#include "common/base/status.h"
#include "gateway/mapping/shared_fields.h"

namespace baton::gateway {
namespace {

constexpr std::string_view kClearToolUses = "clear_tool_uses_20250919";
constexpr std::string_view kClearThinking = "clear_thinking_20251015";
// The edit's defaults, by the API reference.
constexpr int64_t kTriggerTokens = 100'000;

absl::StatusOr<v1::Overflow::Mode> ModeOf(const JsonObject& of, const std::string& word) {
  v1::Overflow::Mode mode = v1::Overflow::MODE_UNSPECIFIED;
  const bool known = word == absl::AsciiStrToLower(word) &&
                     v1::Overflow::Mode_Parse("MODE_" + absl::AsciiStrToUpper(word), &mode);
  if (known && mode != v1::Overflow::MODE_UNSPECIFIED) return mode;
  return of.Wrong("overflow",
                  "not one of refuse, clamp_output, drop_oldest, drop_middle, clear_tool_results and "
                  "clear_thinking");
}

bool Cuts(v1::Overflow::Mode mode) {
  return mode != v1::Overflow::MODE_REFUSE && mode != v1::Overflow::MODE_CLAMP_OUTPUT;
}

// {"type": unit, "value": N}; absent: nothing.
absl::StatusOr<std::optional<int64_t>> Amount(JsonObject& edit, std::string_view name,
                                              std::string_view unit) {
  const Json* const value = edit.Find(name);  // null: absent
  if (value == nullptr) return std::nullopt;
  BATON_ASSIGN_OR_RETURN(JsonObject fields, edit.Inside(*value, edit.Path(name)));
  BATON_ASSIGN_OR_RETURN(const auto type, fields.Text("type"));
  if (type != unit) return fields.Wrong("type", fmt::format("not \"{}\"", unit));
  BATON_ASSIGN_OR_RETURN(const auto amount, fields.Whole("value", 0, kMaxTokens));
  if (!amount.has_value()) return fields.Wrong("value", "absent");
  return amount;
}

// The edit is known, and clears nothing that it says has to stay.
bool Applies(const Json& edit) {
  const auto type = edit.find("type");
  if (type == edit.end() || (*type != kClearToolUses && *type != kClearThinking)) return false;
  const auto excluded = edit.find("exclude_tools"), trigger = edit.find("trigger");
  if (excluded != edit.end() && !excluded->is_null() && !excluded->empty()) return false;
  return trigger == edit.end() || !trigger->is_object() || trigger->value("type", Json()) != "tool_uses";
}

absl::Status ClearToolUses(const Json& json, JsonObject& edit, v1::Overflow* overflow) {
  BATON_ASSIGN_OR_RETURN(const auto trigger, Amount(edit, "trigger", "input_tokens"));
  BATON_ASSIGN_OR_RETURN(const auto kept, Amount(edit, "keep", "tool_uses"));
  if (trigger == 0) return edit.Wrong("trigger", "0 tokens are no prompt");
  // At least a quarter of the window goes, and whole results do.
  edit.Skip({"clear_at_least", "exclude_tools"});
  if (json.value("clear_tool_inputs", Json()) == false) edit.Skip({"clear_tool_inputs"});
  overflow->set_mode(v1::Overflow::MODE_CLEAR_TOOL_RESULTS);
  overflow->set_window_tokens(static_cast<uint32_t>(trigger.value_or(kTriggerTokens)));
  if (kept.has_value()) overflow->set_keep_tool_results(static_cast<uint32_t>(*kept));
  return absl::OkStatus();
}

// "all", or of so many of the assistant's last turns: the API's default is one.
absl::Status ClearThinking(JsonObject& edit, v1::Conversation* conversation) {
  const Json* const keep = edit.Find("keep");  // null: absent
  if (keep != nullptr && *keep == "all") return absl::OkStatus();
  int64_t left = 1;
  if (keep != nullptr) {
    BATON_ASSIGN_OR_RETURN(const auto turns, Amount(edit, "keep", "thinking_turns"));
    left = *turns;
  }
  for (int i = conversation->messages_size(); i-- > 0;) {
    v1::Message& message = *conversation->mutable_messages(i);
    if (message.reasoning_content().empty()) continue;
    if (left > 0) {
      --left;
    } else {
      message.clear_reasoning_content();
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ReadOverflow(JsonObject& body, v1::Overflow::Mode otherwise, v1::Overflow* overflow) {
  const Json* const given = body.Find("overflow");  // null: absent
  if (given == nullptr) {
    if (overflow->mode() == v1::Overflow::MODE_UNSPECIFIED) overflow->set_mode(otherwise);
  } else if (overflow->mode() != v1::Overflow::MODE_UNSPECIFIED) {
    return body.Wrong("overflow", "another member of the request says what is cleared: send one of both");
  } else if (given->is_string()) {
    BATON_ASSIGN_OR_RETURN(const auto mode, ModeOf(body, given->get<std::string>()));
    overflow->set_mode(mode);
  } else {
    BATON_ASSIGN_OR_RETURN(JsonObject fields, body.Inside(*given, "overflow"));
    BATON_ASSIGN_OR_RETURN(const auto word, fields.Text("mode"));
    BATON_ASSIGN_OR_RETURN(const auto mode, ModeOf(body, word.value_or("")));
    overflow->set_mode(mode);
    BATON_RETURN_IF_ERROR(Copy<double>(fields.Number("keep"),
                                       [&](double share) { overflow->set_keep(static_cast<float>(share)); }));
    BATON_RETURN_IF_ERROR(Copy<int64_t>(fields.Whole("keep_tool_results", 0, kMaxTokens), [&](int64_t count) {
      overflow->set_keep_tool_results(static_cast<uint32_t>(count));
    }));
    BATON_RETURN_IF_ERROR(Copy<int64_t>(fields.Whole("keep_first_tokens", 0, kMaxTokens), [&](int64_t count) {
      overflow->set_keep_first_tokens(static_cast<uint32_t>(count));
    }));
    BATON_RETURN_IF_ERROR(Copy<int64_t>(fields.Whole("window_tokens", 1, kMaxTokens), [&](int64_t count) {
      overflow->set_window_tokens(static_cast<uint32_t>(count));
    }));
  }
  if (Cuts(overflow->mode())) overflow->set_clamp_output(true);
  return absl::OkStatus();
}

absl::Status ReadContextEdits(JsonObject& body, v1::ChatRequest* request) {
  const Json* const management = body.Find("context_management");  // null: absent
  if (management == nullptr) return absl::OkStatus();
  BATON_ASSIGN_OR_RETURN(JsonObject fields, body.Inside(*management, "context_management"));
  BATON_ASSIGN_OR_RETURN(const Json* const edits, fields.List("edits"));
  for (size_t i = 0; edits != nullptr && i < edits->size(); ++i) {
    const Json& json = (*edits)[i];
    BATON_ASSIGN_OR_RETURN(JsonObject edit,
                           fields.Inside(json, fmt::format("context_management.edits[{}]", i)));
    // One that is not applied is ignored, and named so: the conversation is longer without it, and no other.
    if (!Applies(json)) continue;
    if (edit.Find("type")->get<std::string>() == kClearToolUses) {
      BATON_RETURN_IF_ERROR(ClearToolUses(json, edit, request->mutable_overflow()));
    } else {
      BATON_RETURN_IF_ERROR(ClearThinking(edit, request->mutable_conversation()));
    }
  }
  return absl::OkStatus();
}

}  // namespace baton::gateway
