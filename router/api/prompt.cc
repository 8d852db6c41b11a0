#include "router/api/prompt.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string_view>
#include <utility>

#include "absl/time/clock.h"
#include "common/base/quote.h"
#include "common/base/status.h"
#include "nlohmann/json.hpp"
#include "protocol/client/token_ids.h"
#include "router/api/conversation.h"
#include "router/api/instructions.h"
#include "router/api/overflow.h"
#include "router/api/validation.h"

namespace baton::router {
namespace {

// A template's own complaint is shorter; a longer one repeats the conversation.
constexpr size_t kLongestComplaint = 200;

std::string Complaint(std::string_view words) {
  return words.size() <= kLongestComplaint ? std::string(words) : Shortened(words, kMaxQuotedBytes);
}

absl::Status CheckWanted(const Wanted& wanted) {
  if (wanted == nullptr || wanted()) return absl::OkStatus();
  return absl::CancelledError("the call was over before its prompt was prepared");
}

// `text` without the marks in it (text::LiteralText) and its tokens.
absl::StatusOr<Rendered> Encode(const ServedModel& model, const char* field, std::string text,
                                const text::LiteralText::Marked& marked, bool add_special_tokens,
                                int64_t contexts, const Wanted& wanted) {
  std::string plain;
  if (marked.mark != 0) plain = text::LiteralText::Unmark(text, marked.mark);
  BATON_RETURN_IF_ERROR(CheckLength(model, field, marked.mark == 0 ? text : plain, contexts));
  const int64_t most = kMaxContexts * model.context;
  auto tokens = model.tokenizer->EncodeMarked(text, add_special_tokens, marked.mark,
                                              {.max_tokens = most, .wanted = wanted});
  if (absl::IsOutOfRange(tokens.status())) {
    return ExceedsContext(
        fmt::format("{}: more than {} tokens, {} times the model's context", field, most, kMaxContexts));
  }
  if (tokens.ok() && tokens->empty()) {
    return absl::InvalidArgumentError(fmt::format("{}: no tokens in it", field));
  }
  BATON_RETURN_IF_ERROR(tokens.status());
  return Rendered{.text = marked.mark == 0 ? std::move(text) : std::move(plain),
                  .tokens = *std::move(tokens),
                  .neutralised = marked.tokens};
}

// A text that `texts` do not have, to find the end of one of them by in what a template makes of all: more
// dots than stand together anywhere.
std::string EndMark(std::string_view texts) {
  size_t most = 0, run = 0;
  for (const char c : texts) {
    run = c == '.' ? run + 1 : 0;
    most = std::max(most, run);
  }
  return "[" + std::string(most + 1, '.') + "]";
}

// Tokens that the prompt may have beside the answer that the request asks for, or beside a fitting one.
template <typename Request>
int64_t MostForPrompt(const ServedModel& model, const Request& request) {
  const v1::StopConditions& stop = request.stop();
  const v1::Overflow& overflow = request.overflow();
  const int64_t fitting = std::max<int64_t>(1, model.context / 4);
  int64_t answer = 0;
  if (request.options().prefill_only()) {
    answer = 0;
  } else if (!stop.has_max_tokens()) {
    answer = std::min<int64_t>(fitting, model.defaults.max_new_tokens.value_or(fitting));
  } else {
    answer = overflow.clamp_output() ? std::min<int64_t>(fitting, model.Lowered(stop.max_tokens()))
                                     : stop.max_tokens();
  }
  return model.context - answer;
}

// Tokens to which a longer prompt is cut, if there is enough that may go.
template <typename Request>
int64_t RoomForPrompt(const ServedModel& model, const Request& request) {
  const v1::Overflow& overflow = request.overflow();
  const int64_t most = MostForPrompt(model, request);
  return overflow.has_window_tokens() ? std::min<int64_t>(most, overflow.window_tokens()) : most;
}

// Renders a conversation that may be shortened, so that it has at most `room` tokens. counted: nobody
// computes it, and what can't be shortened to fit is no error.
absl::StatusOr<Fitted> RenderToFit(const ServedModel& model, const v1::ChatRequest& request,
                                   const Tenant& tenant, int64_t room, bool counted, const Wanted& wanted) {
  const auto render = [&](const v1::Conversation& conversation) {
    return Render(model, conversation, request.thinking(), tenant, kMaxContexts, wanted);
  };
  const auto fits = [&](const absl::StatusOr<Rendered>& rendered) {
    return rendered.ok() && std::ssize(rendered->tokens) <= room;
  };
  absl::StatusOr<Rendered> rendered = render(request.conversation());
  if (fits(rendered)) return Fitted{.rendered = *std::move(rendered), .report = {}, .conversation = {}};
  if (absl::IsCancelled(rendered.status())) return rendered.status();

  const int64_t most_bytes = kMaxContexts * model.context * kMaxBytesPerToken;
  const int64_t bytes = request.conversation().ByteSizeLong();
  if (bytes > most_bytes) {
    return ExceedsContext(
        fmt::format("conversation: {} bytes; overflow shortens what has at most {}, {} for each token of {} "
                    "contexts: send fewer turns",
                    bytes, most_bytes, kMaxBytesPerToken, kMaxContexts));
  }
  const auto count = [&](const std::string& text) -> absl::StatusOr<int64_t> {
    if (text.empty()) return 0;
    const int64_t most = kMaxContexts * model.context;
    const auto tokens = model.tokenizer->EncodeMarked(text, false, 0, {.max_tokens = most, .wanted = wanted});
    if (absl::IsOutOfRange(tokens.status()))
      return most;  // too long for any window, as it would be with more
    BATON_RETURN_IF_ERROR(tokens.status());
    return std::ssize(*tokens);
  };
  BATON_ASSIGN_OR_RETURN(const Shortening shortening,
                         Shortening::Make(request.conversation(), request.overflow(), count));
  BATON_ASSIGN_OR_RETURN(const Rendered frame, render(shortening.Frame()));
  Shortening::Shortened shortened;
  for (int gone = shortening.Gone(std::ssize(frame.tokens), room);;) {
    shortened = shortening.Without(gone);
    rendered = render(shortened.conversation);
    if (fits(rendered)) break;
    if (absl::IsCancelled(rendered.status())) return rendered.status();
    // The tokens that the template writes around messages are only estimated. An eighth at least: few
    // renderings.
    const int64_t over = rendered.ok() ? std::ssize(rendered->tokens) - room : 0;
    const int more = shortening.More(gone, std::max<int64_t>({over, room / 8, 1}));
    if (more == gone) break;
    gone = more;
  }
  BATON_RETURN_IF_ERROR(rendered.status());
  if (const int64_t most = MostForPrompt(model, request); !counted && std::ssize(rendered->tokens) > most) {
    return ExceedsContext(fmt::format(
        "conversation: of its prompt, {} tokens are left once overflow has taken away what it may, and {} "
        "fit beside the answer in the context of {}",
        rendered->tokens.size(), most, model.context));
  }
  return Fitted{.rendered = *std::move(rendered),
                .report = std::move(shortened.report),
                .conversation = std::move(shortened.conversation)};
}

// Leaves tokens out of a prompt so that it fits, as the request's overflow says.
absl::StatusOr<v1::ContextReport> CutToFit(const ServedModel& model, const v1::GenerateRequest& request,
                                           std::vector<TokenId>* tokens) {
  v1::ContextReport report;
  const int64_t room = RoomForPrompt(model, request);
  if (!Shortens(request.overflow()) || room <= 0) return report;
  // A prompt that has lost the tokens with which the tokenizer begins every text is one that the model was
  // never trained on.
  BATON_ASSIGN_OR_RETURN(const std::vector<TokenId> added, model.tokenizer->Encode("", true));
  const auto [head, _] = std::ranges::mismatch(*tokens, added);
  const auto gone =
      CutTokens(request.overflow(), std::ssize(*tokens), std::distance(tokens->begin(), head), room);
  if (!gone.ok()) return ExceedsContext(fmt::format("overflow: {}", std::string(gone.status().message())));
  tokens->erase(tokens->begin() + gone->begin, tokens->begin() + gone->end);
  report.set_removed_tokens(static_cast<uint32_t>(gone->end - gone->begin));
  return report;
}

}  // namespace

absl::Status CheckLength(const ServedModel& model, const char* field, std::string_view text,
                         int64_t contexts) {
  if (text.empty()) {
    return absl::InvalidArgumentError(fmt::format("{}: empty; a prompt needs at least one token", field));
  }
  const int64_t room = contexts * model.context;
  const std::string limit = contexts == 1
                                ? fmt::format("the model's context of {} tokens", model.context)
                                : fmt::format(
                                      "{} times the model's context of {} tokens, which is the most "
                                      "that is counted",
                                      contexts, model.context);
  if (std::ssize(text) > room * kMaxBytesPerToken) {
    return ExceedsContext(fmt::format("{}: {} bytes are more than {} for each token of {}", field,
                                      text.size(), kMaxBytesPerToken, limit));
  }
  if (const int64_t least = model.tokenizer->LeastTokens(text); least > room) {
    return ExceedsContext(
        fmt::format("{}: {} bytes are at least {} tokens, more than {}", field, text.size(), least, limit));
  }
  return absl::OkStatus();
}

absl::StatusOr<Rendered> EncodePrompt(const ServedModel& model, const std::string& text, bool literal,
                                      int64_t contexts, const Wanted& wanted) {
  std::string prompt = text;
  text::LiteralText::Marked marked;
  if (literal) {
    auto found = model.literal->Mark(&prompt);
    if (!found.ok()) {
      return absl::Status(found.status().code(),
                          fmt::format("text: {}", std::string(found.status().message())));
    }
    marked = *found;
  }
  return Encode(model, "text", std::move(prompt), marked, true, contexts, wanted);
}

absl::StatusOr<Rendered> Render(const ServedModel& model, const v1::Conversation& conversation,
                                const v1::Thinking& thinking, const Tenant& tenant, int64_t contexts,
                                const Wanted& wanted) {
  BATON_RETURN_IF_ERROR(CheckWanted(wanted));
  const int64_t max_parts = contexts * model.context;
  std::optional<v1::Conversation> placed;
  // More messages than that are refused below.
  if (conversation.messages_size() <= max_parts) placed = PlaceInstructions(conversation, model.history);
  BATON_ASSIGN_OR_RETURN(auto variables,
                         TemplateVariables(placed.has_value() ? *placed : conversation, max_parts,
                                           model.output.calls, model.history.raw_arguments));
  AddThinking(thinking, &variables);
  std::string end;  // of what is continued; empty: nothing is
  if (conversation.continue_last()) {
    end = EndMark(variables.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
    variables["messages"].back()["content"].get_ref<std::string&>() += end;
  }
  BATON_RETURN_IF_ERROR(CheckWanted(wanted));
  text::LiteralText::Marked marked;
  if (!tenant.control_tokens_in_text) {
    auto found = model.literal->Mark(&variables);
    if (!found.ok()) {
      return absl::Status(found.status().code(),
                          fmt::format("conversation: {}", std::string(found.status().message())));
    }
    marked = *found;
    BATON_RETURN_IF_ERROR(CheckWanted(wanted));
  }
  const int64_t max_bytes = contexts * model.context * kMaxBytesPerToken;
  // A mark takes up to six bytes, as an escape in JSON; what is too long without them is found below.
  auto text = model.chat_template->Render(variables, absl::Now(),
                                          static_cast<size_t>(max_bytes + 6 * marked.marks) + end.size());
  if (absl::IsOutOfRange(text.status())) {
    return ExceedsContext(fmt::format(
        "conversation: more than {} bytes as the model's template writes it, {} for each token of {}",
        max_bytes, kMaxBytesPerToken, contexts == 1 ? "its context" : fmt::format("{} contexts", contexts)));
  }
  if (!text.ok()) {
    const std::string words = text::LiteralText::Unmark(std::string(text.status().message()), marked.mark);
    return absl::Status(text.status().code(), fmt::format("conversation: {}", Complaint(words)));
  }
  if (!end.empty()) {
    const size_t at = text->rfind(end);
    if (at == std::string::npos) {
      return absl::InvalidArgumentError(
          "conversation.continue_last: the chat template does not write the last message as it is: leave it "
          "out");
    }
    text->resize(at);
  }
  if (text->empty()) {
    return absl::InvalidArgumentError("conversation: the chat template made nothing of it");
  }
  BATON_RETURN_IF_ERROR(CheckWanted(wanted));
  // The template writes the special tokens itself.
  return Encode(model, "conversation", *std::move(text), marked, false, contexts, wanted);
}

int64_t MostContexts(const v1::Overflow& overflow, bool counted) {
  return counted || Shortens(overflow) ? kMaxContexts : 1;
}

absl::StatusOr<Fitted> FitPrompt(const ServedModel& model, const v1::GenerateRequest& request, const Tenant&,
                                 bool counted, const Wanted& wanted) {
  Fitted fitted;
  if (request.has_text()) {
    BATON_ASSIGN_OR_RETURN(fitted.rendered, EncodePrompt(model, request.text(), request.literal(),
                                                         MostContexts(request.overflow(), counted), wanted));
  } else {
    fitted.rendered.tokens = protocol::TokensOf(request.token_ids().ids());
  }
  BATON_ASSIGN_OR_RETURN(fitted.report, CutToFit(model, request, &fitted.rendered.tokens));
  return fitted;
}

absl::StatusOr<Fitted> FitPrompt(const ServedModel& model, const v1::ChatRequest& request,
                                 const Tenant& tenant, bool counted, const Wanted& wanted) {
  const int64_t room = RoomForPrompt(model, request);
  if (Shortens(request.overflow()) && room > 0)
    return RenderToFit(model, request, tenant, room, counted, wanted);
  Fitted fitted;
  BATON_ASSIGN_OR_RETURN(fitted.rendered, Render(model, request.conversation(), request.thinking(), tenant,
                                                 counted ? kMaxContexts : 1, wanted));
  return fitted;
}

}  // namespace baton::router
