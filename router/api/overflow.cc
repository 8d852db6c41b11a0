#include "router/api/overflow.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "common/base/status.h"
#include "router/api/conversation.h"
#include "router/api/validation.h"

namespace baton::router {

absl::Status CheckOverflow(const v1::Overflow& overflow, bool of_tokens) {
  if (!v1::Overflow::Mode_IsValid(overflow.mode())) {
    return NoValueOf(*v1::Overflow::Mode_descriptor(), "overflow.mode", overflow.mode());
  }
  const bool clears = overflow.mode() == v1::Overflow::MODE_CLEAR_TOOL_RESULTS ||
                      overflow.mode() == v1::Overflow::MODE_CLEAR_THINKING;
  if (of_tokens && clears) {
    return absl::InvalidArgumentError(
        fmt::format("overflow.mode: {} goes with a conversation; for a prompt use MODE_DROP_OLDEST or "
                    "MODE_DROP_MIDDLE",
                    v1::Overflow::Mode_Name(overflow.mode())));
  }
  const auto alone = [](std::string_view field) {
    return absl::InvalidArgumentError(
        fmt::format("overflow.{}: goes with a mode that drops or clears something", field));
  };
  if (!Shortens(overflow)) {
    if (overflow.has_keep()) return alone("keep");
    if (overflow.clamp_output()) return alone("clamp_output");
    if (overflow.has_window_tokens()) return alone("window_tokens");
  }
  if (overflow.has_keep() && !(overflow.keep() > 0 && overflow.keep() <= 1)) {
    return absl::InvalidArgumentError(
        fmt::format("overflow.keep: {} is not above 0 and at most 1", overflow.keep()));
  }
  if (overflow.has_window_tokens() && overflow.window_tokens() == 0) {
    return absl::InvalidArgumentError("overflow.window_tokens: 0 tokens are no prompt; ask for at least 1");
  }
  if (overflow.has_keep_tool_results() && overflow.mode() != v1::Overflow::MODE_CLEAR_TOOL_RESULTS) {
    return absl::InvalidArgumentError("overflow.keep_tool_results: goes with MODE_CLEAR_TOOL_RESULTS");
  }
  if (overflow.has_keep_first_tokens() && !(of_tokens && overflow.mode() == v1::Overflow::MODE_DROP_MIDDLE)) {
    return absl::InvalidArgumentError(
        "overflow.keep_first_tokens: goes with MODE_DROP_MIDDLE and a prompt that is no conversation");
  }
  return absl::OkStatus();
}

bool Shortens(const v1::Overflow& overflow) {
  switch (overflow.mode()) {
    case v1::Overflow::MODE_DROP_OLDEST:
    case v1::Overflow::MODE_DROP_MIDDLE:
    case v1::Overflow::MODE_CLEAR_TOOL_RESULTS:
    case v1::Overflow::MODE_CLEAR_THINKING:
      return true;
    default:
      return false;
  }
}

bool Clamps(const v1::Overflow& overflow) {
  return overflow.mode() == v1::Overflow::MODE_CLAMP_OUTPUT || overflow.clamp_output();
}

int PartsGone(std::span<const int64_t> messages, std::span<const RemovablePart> parts, int64_t fixed,
              int64_t window, double keep) {
  const auto target = static_cast<int64_t>(std::floor(keep * static_cast<double>(window)));
  int64_t total = fixed;
  int gone = 0;
  for (int i = 0; i < std::ssize(messages); ++i) {
    total += messages[i];
    if (total <= window) continue;
    while (gone < std::ssize(parts) && parts[gone].from <= i && total > target) total -= parts[gone++].tokens;
  }
  return gone;
}

absl::StatusOr<TokensGone> CutTokens(const v1::Overflow& overflow, int64_t tokens, int64_t head,
                                     int64_t window) {
  if (overflow.mode() == v1::Overflow::MODE_DROP_MIDDLE) {
    head = std::max<int64_t>(
        head, overflow.has_keep_first_tokens() ? overflow.keep_first_tokens() : window / Shortening::kFirst);
  }
  if (tokens <= window) return TokensGone{};
  if (head >= window) {
    return absl::OutOfRangeError(fmt::format("{} tokens stay of the first, and {} fit", head, window));
  }
  const double keep = overflow.has_keep() ? overflow.keep() : Shortening::kKeep;
  const auto left = static_cast<int64_t>(std::floor(keep * static_cast<double>(window)));
  const int64_t step = std::clamp<int64_t>(window - left, 1, window - head);
  const int64_t steps = (tokens - window + step - 1) / step;
  return TokensGone{.begin = head, .end = head + steps * step};
}

absl::StatusOr<Shortening> Shortening::Make(const v1::Conversation& conversation,
                                            const v1::Overflow& overflow, const CountTokens& count) {
  Shortening made(conversation, overflow);
  const int size = conversation.messages_size();
  while (made.frame_ < size && IsSystem(conversation.messages(made.frame_))) ++made.frame_;
  const int64_t kept_results = overflow.has_keep_tool_results() ? overflow.keep_tool_results() : kToolResults;
  BATON_ASSIGN_OR_RETURN(const int64_t cleared, count(kCleared));
  std::vector<int> results;   // messages that are a tool's result
  std::vector<int> thoughts;  // of the turn so far
  std::vector<int64_t> clearable(size, 0);
  for (int i = made.frame_; i < size; ++i) {
    const v1::Message& message = conversation.messages(i);
    BATON_ASSIGN_OR_RETURN(const int64_t content, count(ContentOf(message)));
    BATON_ASSIGN_OR_RETURN(const int64_t thinking, count(message.reasoning_content()));
    int64_t tokens = kMessageTokens + content + thinking;
    for (const v1::ToolCall& call : message.tool_calls()) {
      BATON_ASSIGN_OR_RETURN(const int64_t name, count(call.name()));
      BATON_ASSIGN_OR_RETURN(const int64_t arguments, count(call.arguments_json()));
      tokens += kMessageTokens + name + arguments;
    }
    made.messages_.push_back(tokens);
    const auto part = [&](int cleared_message, int64_t saved) {
      made.parts_.push_back({.tokens = saved, .from = i - made.frame_});
      made.ranges_.push_back({cleared_message, cleared_message + 1});
    };
    if (made.mode_ == v1::Overflow::MODE_CLEAR_TOOL_RESULTS && message.role() == "tool" &&
        !message.describes_tool()) {
      clearable[i] = content - cleared;
      results.push_back(i);
      // A result no longer than its replacement stays.
      if (std::ssize(results) > kept_results) {
        const int oldest = results[results.size() - 1 - kept_results];
        if (clearable[oldest] > 0) part(oldest, clearable[oldest]);
      }
    }
    if (made.mode_ == v1::Overflow::MODE_CLEAR_THINKING) {
      if (message.role() == "user") {
        for (const int thought : thoughts) part(thought, clearable[thought]);
        thoughts.clear();
      } else if (thinking > 0) {
        clearable[i] = thinking;
        thoughts.push_back(i);
      }
    }
  }
  if (made.mode_ == v1::Overflow::MODE_DROP_OLDEST || made.mode_ == v1::Overflow::MODE_DROP_MIDDLE) {
    made.FindTurns(made.messages_);
  }
  return made;
}

void Shortening::FindTurns(std::span<const int64_t> tokens) {
  bool first = mode_ == v1::Overflow::MODE_DROP_MIDDLE;
  int begin = frame_;
  for (int i = frame_ + 1; i < conversation_.messages_size(); ++i) {
    if (conversation_.messages(i).role() != "user") continue;
    // Instructions between an answer and a question belong to the question.
    int start = i;
    while (start - 1 > begin && IsSystem(conversation_.messages(start - 1))) --start;
    if (conversation_.messages(start - 1).role() != "assistant") start = i;
    // A turn may go once the next one has begun.
    if (!first) {
      int64_t sum = 0;
      for (int m = begin; m < start; ++m) sum += tokens[m - frame_];
      parts_.push_back({.tokens = sum, .from = i - frame_});
      ranges_.push_back({begin, start});
    }
    first = false;
    begin = start;
  }
}

v1::Conversation Shortening::Frame() const {
  v1::Conversation frame = conversation_;
  frame.clear_continue_last();
  frame.mutable_messages()->DeleteSubrange(frame_, frame.messages_size() - frame_);
  v1::Message* turn = frame.add_messages();
  turn->set_role("user");
  turn->set_content("?");
  return frame;
}

int Shortening::Gone(int64_t fixed, int64_t window) const {
  return PartsGone(messages_, parts_, fixed, window, keep_);
}

int Shortening::More(int gone, int64_t tokens) const {
  for (int64_t saved = 0; gone < std::ssize(parts_) && saved < tokens; ++gone) saved += parts_[gone].tokens;
  return gone;
}

Shortening::Shortened Shortening::Without(int gone) const {
  Shortened result;
  const bool drops = mode_ == v1::Overflow::MODE_DROP_OLDEST || mode_ == v1::Overflow::MODE_DROP_MIDDLE;
  int64_t tokens = 0;
  for (int i = 0; i < gone; ++i) tokens += parts_[i].tokens;
  result.report.set_removed_tokens(static_cast<uint32_t>(tokens));
  if (!drops || gone == 0) {
    result.conversation = conversation_;
    for (int i = 0; i < gone; ++i) {
      v1::Message* const message = result.conversation.mutable_messages(ranges_[i].first);
      if (mode_ == v1::Overflow::MODE_CLEAR_TOOL_RESULTS) {
        message->clear_parts();
        message->set_content(kCleared);
      } else {
        message->clear_reasoning_content();
      }
    }
    (mode_ == v1::Overflow::MODE_CLEAR_TOOL_RESULTS)
        ? result.report.set_cleared_tool_results(static_cast<uint32_t>(gone))
        : result.report.set_cleared_thinking(static_cast<uint32_t>(gone));
    return result;
  }
  // The parts that went are neighbours.
  const int first = ranges_.front().first, end = ranges_[gone - 1].end;
  result.conversation = conversation_;
  result.conversation.mutable_messages()->DeleteSubrange(first, end - first);
  result.report.set_dropped_messages(static_cast<uint32_t>(end - first));
  return result;
}

}  // namespace baton::router
