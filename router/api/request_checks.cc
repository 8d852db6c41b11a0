#include "router/api/request_checks.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>

#include "absl/strings/ascii.h"
#include "common/base/status.h"
#include "common/rpc/status.h"
#include "protocol/client/token_ids.h"
#include "router/api/answer_format.h"
#include "router/api/cache_marks.h"
#include "router/api/conversation.h"
#include "router/api/overflow.h"
#include "router/api/prompt.h"
#include "router/api/reusable_parts.h"
#include "router/api/validation.h"

namespace baton::router {
namespace {

// The checks that Generate and Chat share.
template <typename Request>
absl::Status CheckCommon(const ServedModel& model, const Request& request, uint32_t max_answer_bytes) {
  BATON_RETURN_IF_ERROR(CheckSampling(request.sampling(), model.vocabulary));
  BATON_RETURN_IF_ERROR(CheckStop(request.stop(), model.vocabulary));
  BATON_RETURN_IF_ERROR(CheckOutput(request.output()));
  BATON_RETURN_IF_ERROR(CheckOptions(request.options()));
  const uint32_t asked = request.stop().max_tokens();
  const uint32_t max_tokens = Clamps(request.overflow()) ? model.Lowered(asked) : asked;
  if (request.options().prefill_only()) {
    if (request.stop().has_max_tokens()) {
      return absl::InvalidArgumentError(
          "stop.max_tokens: with options.prefill_only nothing is generated: leave out one or the other");
    }
    if (request.options().n() > 1) {
      return absl::InvalidArgumentError(fmt::format(
          "options.n: {} choices of no tokens; with options.prefill_only it is 1", request.options().n()));
    }
  }
  if (max_answer_bytes > 0 && request.output().progress()) {
    return absl::InvalidArgumentError(
        "output.progress: an answer in one message has no place for it; take it as a stream, or leave this "
        "out");
  }
  if (max_answer_bytes > 0 && request.stop().has_max_tokens()) {
    const int choices = request.options().has_n() ? static_cast<int>(request.options().n()) : 1;
    if (const int64_t most = TokensOfMessage(request.output(), max_answer_bytes, choices);
        max_tokens > most) {
      return TooLargeForOneMessage(choices, max_tokens, max_answer_bytes, most);
    }
  }
  if (request.output().prompt_logprobs() && request.options().n() > 1) {
    return absl::InvalidArgumentError(fmt::format(
        "options.n: {} choices have one prompt; with output.prompt_logprobs it is 1", request.options().n()));
  }
  if (request.output().prompt_logprobs() && !request.options().idempotency_key().empty()) {
    return absl::InvalidArgumentError(
        "output.prompt_logprobs: not with options.idempotency_key: what is told of a prompt is not kept; "
        "leave out one or the other");
  }
  if (model.Lowered(max_tokens) < max_tokens) {
    return absl::InvalidArgumentError(
        fmt::format("stop.max_tokens: {}, and answers of model \"{}\" have at most {} here: ask for no more",
                    max_tokens, model.name, model.max_tokens));
  }
  return absl::OkStatus();
}

// Also refuses a model without a chat template.
absl::Status CheckConversationFor(const ServedModel& model, const v1::Conversation& conversation) {
  if (model.chat_template == nullptr) {
    return absl::InvalidArgumentError(
        fmt::format("conversation: model \"{}\" has no chat template; use Generate", model.name));
  }
  return CheckConversation(conversation);
}

}  // namespace

absl::Status TooLargeForOneMessage(int choices, uint32_t max_tokens, uint32_t max_answer_bytes,
                                   int64_t most) {
  return rpc::WithReason(
      absl::InvalidArgumentError(
          fmt::format("stop.max_tokens: {} choices of {} tokens make more than {} bytes in one message: "
                      "ask for at most {}, or take them as a stream, or raise max_answer_bytes",
                      choices, max_tokens, max_answer_bytes, most)),
      v1::REASON_ANSWER_TOO_LARGE);
}

absl::Status CheckContinued(const ServedModel& model, const v1::ChatRequest& request) {
  const v1::Conversation& conversation = request.conversation();
  if (!conversation.continue_last()) return absl::OkStatus();
  const auto refused = [](std::string_view why) {
    return absl::InvalidArgumentError(fmt::format("conversation.continue_last: {}", why));
  };
  const output::OutputFormat& format = *model.output.format;
  if (format.channels) return refused("this model's answers are in channels, which nobody else can begin");
  const bool strict = request.tool_choice().mode() != v1::ToolChoice::MODE_NONE &&
                      std::ranges::any_of(conversation.tools(), &v1::Tool::strict);
  if (strict || request.has_constraint() || request.tool_choice().mode() == v1::ToolChoice::MODE_REQUIRED) {
    return refused(
        "a constraint, a tool that must be called and strict tools are for whole answers: leave "
        "these out, or the beginning of the answer");
  }
  const std::string content = ContentOf(conversation.messages(conversation.messages_size() - 1));
  const auto first = std::ranges::find_if_not(content, absl::ascii_isspace);
  const std::string_view begun(first, content.end());
  if (!format.think_open.empty() && begun.starts_with(format.think_open) &&
      begun.find(format.think_close) == std::string_view::npos) {
    return refused("the thinking that it begins with has no end: leave it out");
  }
  return absl::OkStatus();
}

absl::Status CheckRequest(const ServedModel& model, const v1::GenerateRequest& request,
                          uint32_t max_answer_bytes, bool counted) {
  BATON_RETURN_IF_ERROR(CheckCommon(model, request, max_answer_bytes));
  BATON_RETURN_IF_ERROR(CheckCacheMarks(request.options()));
  BATON_RETURN_IF_ERROR(CheckOverflow(request.overflow(), /*of_tokens=*/true));
  if (Shortens(request.overflow()) && request.reusable_size() > 0) {
    return absl::InvalidArgumentError(
        "reusable: its places are those of a prompt that nothing is left out of; leave out the overflow");
  }
  if (request.has_text()) {
    return CheckLength(model, "text", request.text(), MostContexts(request.overflow(), counted));
  }
  if (request.literal())
    return absl::InvalidArgumentError("literal: goes with text, and the prompt has none");
  if (!request.has_token_ids()) return absl::InvalidArgumentError("prompt: missing; set text or token_ids");
  if (request.token_ids().ids().empty())
    return absl::InvalidArgumentError("token_ids.ids: empty; a prompt needs at least one token");
  return protocol::CheckTokenIds(request.token_ids().ids(), model.vocabulary, "token_ids.ids");
}

absl::Status CheckRequest(const ServedModel& model, const v1::ChatRequest& request, uint32_t max_answer_bytes,
                          bool) {
  BATON_RETURN_IF_ERROR(CheckCommon(model, request, max_answer_bytes));
  BATON_RETURN_IF_ERROR(CheckConversationFor(model, request.conversation()));
  BATON_RETURN_IF_ERROR(CheckToolChoice(model, request));
  BATON_RETURN_IF_ERROR(CheckConstraint(model, request));
  BATON_RETURN_IF_ERROR(CheckOverflow(request.overflow(), /*of_tokens=*/false));
  BATON_RETURN_IF_ERROR(CheckCacheMarks(request.conversation(), request.options()));
  BATON_RETURN_IF_ERROR(CheckReusableParts(request.conversation()));
  return CheckThinking(model, request);
}

}  // namespace baton::router
