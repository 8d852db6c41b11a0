#include "router/api/request_preparer.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/time/clock.h"
#include "common/base/quote.h"
#include "common/base/status.h"
#include "common/rpc/status.h"
#include "nlohmann/json.hpp"
#include "router/api/answer_format.h"
#include "router/api/cache_marks.h"
#include "router/api/chat_grammar.h"
#include "router/api/conversation.h"
#include "router/api/instructions.h"
#include "router/api/overflow.h"
#include "router/api/reusable_parts.h"
#include "router/api/validation.h"

namespace baton::router {
namespace {

// A template's own complaint is shorter; a longer one repeats the conversation.
constexpr size_t kLongestComplaint = 200;
constexpr int64_t kMaxContexts = RequestPreparer::kMaxContexts;
constexpr int64_t kMaxBytesPerToken = RequestPreparer::kMaxBytesPerToken;

std::string Complaint(std::string_view words) {
  return words.size() <= kLongestComplaint ? std::string(words) : Shortened(words, kMaxQuotedBytes);
}

absl::Status CheckWanted(const RequestPreparer::Wanted& wanted) {
  if (wanted == nullptr || wanted()) return absl::OkStatus();
  return absl::CancelledError("the call was over before its prompt was prepared");
}

template <typename Message>
void SetTokens(const std::vector<TokenId>& tokens, Message* message) {
  message->mutable_token_ids()->Reserve(static_cast<int>(tokens.size()));
  for (TokenId token : tokens) message->add_token_ids(token.value());
}

absl::Status TooLargeForOneMessage(int choices, uint32_t max_tokens, uint32_t max_answer_bytes,
                                   int64_t most) {
  return rpc::WithReason(
      absl::InvalidArgumentError(
          fmt::format("stop.max_tokens: {} choices of {} tokens make more than {} bytes in one message: "
                      "ask for at most {}, or take them as a stream, or raise max_answer_bytes",
                      choices, max_tokens, max_answer_bytes, most)),
      v1::REASON_ANSWER_TOO_LARGE);
}

// The checks that Generate and Chat share.
template <typename Request>
absl::Status CheckCommon(const ServedModel& model, const Request& request, uint32_t max_answer_bytes) {
  BATON_RETURN_IF_ERROR(CheckSampling(request.sampling(), model.vocabulary));
  BATON_RETURN_IF_ERROR(CheckStop(request.stop(), model.vocabulary));
  BATON_RETURN_IF_ERROR(CheckOutput(request.output()));
  BATON_RETURN_IF_ERROR(CheckOptions(request.options()));
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
        request.stop().max_tokens() > most) {
      return TooLargeForOneMessage(choices, request.stop().max_tokens(), max_answer_bytes, most);
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
  if (model.max_tokens > 0 && request.stop().max_tokens() > model.max_tokens) {
    return absl::InvalidArgumentError(
        fmt::format("stop.max_tokens: {}, and answers of model \"{}\" have at most {} here: ask for no more",
                    request.stop().max_tokens(), model.name, model.max_tokens));
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

// An answer that goes on with the last message has no form of its own from its first token on. Prompts that
// are counted have no answer.
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

// By bytes alone, whether `text` can be tokens of so many contexts. `field` opens the message.
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

struct Rendered {
  std::string text;
  std::vector<TokenId> tokens;
  int64_t neutralised = 0;  // Prepared
};

// `text` without the marks in it (text::LiteralText) and its tokens.
absl::StatusOr<Rendered> Encode(const ServedModel& model, const char* field, std::string text,
                                const text::LiteralText::Marked& marked, bool add_special_tokens,
                                int64_t contexts, const RequestPreparer::Wanted& wanted) {
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

absl::StatusOr<Rendered> EncodePrompt(const ServedModel& model, const std::string& text, bool literal,
                                      int64_t contexts, const RequestPreparer::Wanted& wanted) {
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

absl::StatusOr<Rendered> Render(const ServedModel& model, const v1::Conversation& conversation,
                                const v1::Thinking& thinking, const Tenant& tenant, int64_t contexts,
                                const RequestPreparer::Wanted& wanted) {
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
    answer = overflow.clamp_output() ? std::min<int64_t>(fitting, stop.max_tokens()) : stop.max_tokens();
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

bool Clamps(const v1::Overflow& overflow) {
  return overflow.mode() == v1::Overflow::MODE_CLAMP_OUTPUT || overflow.clamp_output();
}

// Contexts that a prompt may be long before it is cut.
int64_t MostContexts(const v1::Overflow& overflow) { return Shortens(overflow) ? kMaxContexts : 1; }

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

void SetLeases(std::vector<baton::fleet::v1::CacheLease> leases, baton::fleet::v1::DecodeRequest* decode) {
  for (baton::fleet::v1::CacheLease& lease : leases) *decode->add_leases() = std::move(lease);
}

void SetReusable(std::span<const kv::ReusableSpan> spans, baton::fleet::v1::DecodeRequest* decode) {
  for (const kv::ReusableSpan& span : spans) {
    v1::ReusableSpan& one = *decode->add_reusable();
    one.set_begin(static_cast<uint32_t>(span.begin));
    one.set_end(static_cast<uint32_t>(span.end));
  }
}

// Those that the client gives, of the prompt in `decode`.
absl::Status SetReusable(const v1::GenerateRequest& request, baton::fleet::v1::DecodeRequest* decode) {
  if (request.reusable_size() > kv::kMaxReusableSpans) {
    return absl::InvalidArgumentError(fmt::format("reusable: {} spans, at most {} are allowed",
                                                  request.reusable_size(), kv::kMaxReusableSpans));
  }
  *decode->mutable_reusable() = request.reusable();
  return kv::CheckReusable(ReusableSpansOf(*decode), decode->token_ids_size(), "reusable");
}

// The token that begins a call is never drawn. Where text begins one, an answer may have that text.
void ForbidCalls(const output::MarkerTable& markers, v1::SamplingParams* sampling) {
  // The most that a bias may be. A temperature divides it: up to 5, less than one draw in a million.
  constexpr float kNever = -100;
  const output::OutputFormat& format = markers.format();
  for (const std::string_view opener : {format.section_open, format.call_open}) {
    const auto id = markers.IdOf(opener);
    if (id.has_value()) (*sampling->mutable_logit_bias())[id->value()] = kNever;
  }
}

absl::Status CheckPromptLogprobs(const baton::fleet::v1::DecodeRequest& decode) {
  if (decode.reusable().empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "output.prompt_logprobs: of a prompt with reusable parts there are none that are exact; mark none");
}

// Bytes of an answer in one message that are left for its tokens, behind those that are told of the prompt.
absl::StatusOr<uint32_t> BytesForAnswer(const v1::OutputOptions& output, int64_t prompt_tokens,
                                        uint32_t max_answer_bytes) {
  if (max_answer_bytes == 0 || !output.prompt_logprobs()) return max_answer_bytes;
  const int64_t left = max_answer_bytes - prompt_tokens * LogprobBytes(output);
  if (left > 0) return static_cast<uint32_t>(left);
  return rpc::WithReason(
      absl::InvalidArgumentError(fmt::format(
          "output.prompt_logprobs: those of {} tokens make more than {} bytes in one message: take "
          "them as a stream, or raise max_answer_bytes",
          prompt_tokens, max_answer_bytes)),
      v1::REASON_ANSWER_TOO_LARGE);
}

struct Fitted {
  Rendered rendered;
  v1::ContextReport report;
  // What was rendered if it is not the request's.
  std::optional<v1::Conversation> conversation;
};

// Renders a conversation that may be shortened, so that it has at most `room` tokens. counted: nobody
// computes it, and what can't be shortened to fit is no error.
absl::StatusOr<Fitted> RenderToFit(const ServedModel& model, const v1::ChatRequest& request,
                                   const Tenant& tenant, int64_t room, bool counted,
                                   const RequestPreparer::Wanted& wanted) {
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
    // What the template writes around messages is only estimated. An eighth at least: few renderings.
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

// The prompt of a conversation: made to fit if the request says so, otherwise at most so many contexts long.
absl::StatusOr<Fitted> FitOrRender(const ServedModel& model, const v1::ChatRequest& request,
                                   const Tenant& tenant, int64_t contexts,
                                   const RequestPreparer::Wanted& wanted) {
  const int64_t room = RoomForPrompt(model, request);
  if (Shortens(request.overflow()) && room > 0)
    return RenderToFit(model, request, tenant, room, contexts > 1, wanted);
  Fitted fitted;
  BATON_ASSIGN_OR_RETURN(fitted.rendered,
                         Render(model, request.conversation(), request.thinking(), tenant, contexts, wanted));
  return fitted;
}

}  // namespace

absl::Status RequestPreparer::CheckWithin(const v1::GenerateRequest& request, uint32_t max_answer_bytes,
                                          int64_t contexts) const {
  BATON_ASSIGN_OR_RETURN(const ServedModel* const model, models_.Find(request.model()));
  BATON_RETURN_IF_ERROR(CheckCommon(*model, request, max_answer_bytes));
  BATON_RETURN_IF_ERROR(CheckCacheMarks(request.options()));
  BATON_RETURN_IF_ERROR(CheckOverflow(request.overflow(), /*of_tokens=*/true));
  if (Shortens(request.overflow()) && request.reusable_size() > 0) {
    return absl::InvalidArgumentError(
        "reusable: its places are those of a prompt that nothing is left out of; leave out the overflow");
  }
  if (request.has_text()) return CheckLength(*model, "text", request.text(), contexts);
  if (request.literal())
    return absl::InvalidArgumentError("literal: goes with text, and the prompt has none");
  if (!request.has_token_ids()) return absl::InvalidArgumentError("prompt: missing; set text or token_ids");
  if (request.token_ids().ids().empty())
    return absl::InvalidArgumentError("token_ids.ids: empty; a prompt needs at least one token");
  return CheckTokenIds(request.token_ids().ids(), model->vocabulary, "token_ids.ids");
}

absl::Status RequestPreparer::Check(const v1::GenerateRequest& request, uint32_t max_answer_bytes) const {
  return CheckWithin(request, max_answer_bytes, MostContexts(request.overflow()));
}

absl::Status RequestPreparer::Check(const v1::ChatRequest& request, uint32_t max_answer_bytes) const {
  BATON_ASSIGN_OR_RETURN(const ServedModel* const model, models_.Find(request.model()));
  BATON_RETURN_IF_ERROR(CheckCommon(*model, request, max_answer_bytes));
  BATON_RETURN_IF_ERROR(CheckConversationFor(*model, request.conversation()));
  BATON_RETURN_IF_ERROR(CheckToolChoice(*model, request));
  BATON_RETURN_IF_ERROR(CheckConstraint(*model, request));
  BATON_RETURN_IF_ERROR(CheckOverflow(request.overflow(), /*of_tokens=*/false));
  BATON_RETURN_IF_ERROR(CheckCacheMarks(request.conversation(), request.options()));
  BATON_RETURN_IF_ERROR(CheckReusableParts(request.conversation()));
  return CheckThinking(*model, request);
}

template <typename Request>
absl::StatusOr<Prepared> RequestPreparer::Complete(const ServedModel& model, const Request& request,
                                                   const Tenant& tenant,
                                                   baton::fleet::v1::DecodeRequest decode,
                                                   uint32_t max_answer_bytes, bool clamp) const {
  Prepared prepared;
  prepared.tenant = tenant.id;
  prepared.choices = request.options().has_n() ? static_cast<int>(request.options().n()) : 1;
  prepared.seed = request.sampling().has_seed() ? request.sampling().seed() : draw_seed_();
  *decode.mutable_sampling() = ResolveSampling(request.sampling(), model.defaults, prepared.seed);
  v1::StopConditions& stop = *decode.mutable_stop();
  stop = request.stop();
  if (request.options().prefill_only()) stop.set_max_tokens(0);
  const int64_t prompt_tokens = decode.token_ids_size();
  BATON_ASSIGN_OR_RETURN(uint32_t max_tokens,
                         ResolveMaxTokens(stop, model.defaults, prompt_tokens, model.context, clamp));
  prepared.open_ended = !stop.has_max_tokens();
  if (clamp) {
    const int64_t room = model.context - prompt_tokens;
    const bool asked = stop.has_max_tokens();
    prepared.fills_context =
        asked ? stop.max_tokens() > room : model.defaults.max_new_tokens.value_or(room + 1) > room;
    if (asked && prepared.fills_context) prepared.context.set_clamped_max_tokens(max_tokens);
  }
  BATON_ASSIGN_OR_RETURN(const uint32_t answer_bytes,
                         BytesForAnswer(request.output(), prompt_tokens, max_answer_bytes));
  if (answer_bytes > 0) {
    const int64_t most = TokensOfMessage(request.output(), answer_bytes, prepared.choices);
    if (prepared.open_ended) {
      max_tokens = static_cast<uint32_t>(std::min<int64_t>(max_tokens, most));
    } else if (max_tokens > most) {
      return TooLargeForOneMessage(prepared.choices, max_tokens, max_answer_bytes, most);
    }
  }
  stop.set_max_tokens(max_tokens);
  if (request.output().prompt_logprobs()) {
    BATON_RETURN_IF_ERROR(CheckPromptLogprobs(decode));
    decode.clear_leases();  // nothing of it is kept
  }
  *decode.mutable_output() = request.output();
  decode.set_salt(tenant.salt.bytes());
  decode.set_priority(request.options().priority());
  decode.set_speculation(request.options().speculation());
  prepared.request = std::move(decode);
  prepared.model = &model;
  if (!request.options().session_id().empty()) {
    prepared.session = std::hash<std::string>()(request.options().session_id()) | 1;
    prepared.session_key = SessionKey(request.options().session_id(), tenant.salt);
    prepared.sections = SectionsOf(model.name, nullptr, tenant.salt);
  }
  prepared.debug = request.options().debug();
  prepared.token_ids = request.output().token_ids();
  return prepared;
}

RequestPreparer::Grammar RequestPreparer::GrammarOf(const v1::GenerateRequest& request,
                                                    GrammarCheck::Effort effort) const {
  if (!request.has_constraint()) return std::nullopt;
  BATON_ASSIGN_OR_RETURN(const ServedModel* const model, models_.Find(request.model()));
  BATON_ASSIGN_OR_RETURN(baton::fleet::v1::AnswerGrammar grammar,
                         model->grammars->GrammarOf(request.constraint(), effort));
  return std::optional(std::move(grammar));
}

RequestPreparer::Grammar RequestPreparer::GrammarOf(const v1::ChatRequest& request,
                                                    GrammarCheck::Effort effort) const {
  BATON_ASSIGN_OR_RETURN(const ServedModel* const model, models_.Find(request.model()));
  return ChatGrammar(*model, request, effort);
}

absl::StatusOr<RequestPreparer::Prompt> RequestPreparer::FittingPrompt(const ServedModel& model,
                                                                       const v1::GenerateRequest& request,
                                                                       int64_t contexts,
                                                                       const Wanted& wanted) const {
  Prompt prompt;
  if (request.has_text()) {
    BATON_ASSIGN_OR_RETURN(Rendered rendered,
                           EncodePrompt(model, request.text(), request.literal(), contexts, wanted));
    prompt = {.tokens = std::move(rendered.tokens),
              .text = std::move(rendered.text),
              .neutralised = rendered.neutralised};
  } else {
    for (const int32_t id : request.token_ids().ids()) prompt.tokens.emplace_back(id);
  }
  BATON_ASSIGN_OR_RETURN(v1::ContextReport report, CutToFit(model, request, &prompt.tokens));
  if (report.removed_tokens() > 0) prompt.context = std::move(report);
  return prompt;
}

absl::StatusOr<Prepared> RequestPreparer::Prepare(const v1::GenerateRequest& request, const Tenant& tenant,
                                                  std::optional<baton::fleet::v1::AnswerGrammar> grammar,
                                                  const Wanted& wanted, uint32_t max_answer_bytes) const {
  BATON_ASSIGN_OR_RETURN(const ServedModel* const model, models_.Find(request.model()));
  baton::fleet::v1::DecodeRequest decode;
  BATON_ASSIGN_OR_RETURN(const Prompt prompt,
                         FittingPrompt(*model, request, MostContexts(request.overflow()), wanted));
  SetTokens(prompt.tokens, &decode);
  if (grammar.has_value()) *decode.mutable_grammar() = *std::move(grammar);
  BATON_RETURN_IF_ERROR(SetReusable(request, &decode));
  SetLeases(LeasesOf(decode.token_ids_size(), request.options()), &decode);
  BATON_ASSIGN_OR_RETURN(Prepared prepared, Complete(*model, request, tenant, std::move(decode),
                                                     max_answer_bytes, Clamps(request.overflow())));
  prepared.neutralised = prompt.neutralised;
  if (prompt.context.has_value()) prepared.context.MergeFrom(*prompt.context);
  return prepared;
}

absl::StatusOr<Prepared> RequestPreparer::Prepare(const v1::ChatRequest& request, const Tenant& tenant,
                                                  std::optional<baton::fleet::v1::AnswerGrammar> grammar,
                                                  const Wanted& wanted, uint32_t max_answer_bytes) const {
  BATON_ASSIGN_OR_RETURN(const ServedModel* const model, models_.Find(request.model()));
  BATON_RETURN_IF_ERROR(CheckContinued(*model, request));
  baton::fleet::v1::DecodeRequest decode;
  BATON_ASSIGN_OR_RETURN(Fitted fitted, FitOrRender(*model, request, tenant, 1, wanted));
  const Rendered& rendered = fitted.rendered;
  SetTokens(rendered.tokens, &decode);
  const v1::Conversation& conversation =
      fitted.conversation.has_value() ? *fitted.conversation : request.conversation();
  const auto render_tokens = [&](const v1::Conversation& probe) -> absl::StatusOr<std::vector<TokenId>> {
    BATON_ASSIGN_OR_RETURN(Rendered made,
                           Render(*model, probe, request.thinking(), tenant, kMaxContexts, wanted));
    return std::move(made.tokens);
  };
  BATON_ASSIGN_OR_RETURN(std::vector<baton::fleet::v1::CacheLease> leases,
                         LeasesOf(rendered.tokens, conversation, request.options(), render_tokens));
  SetLeases(std::move(leases), &decode);
  BATON_ASSIGN_OR_RETURN(const std::vector<kv::ReusableSpan> reusable,
                         ReusablePartsOf(rendered.tokens, conversation, render_tokens));
  SetReusable(reusable, &decode);
  if (auto format = AnswerFormatOf(*model, request, rendered.text); format.has_value()) {
    *decode.mutable_answer_format() = *std::move(format);
  }
  if (grammar.has_value()) *decode.mutable_grammar() = *std::move(grammar);
  BATON_ASSIGN_OR_RETURN(Prepared prepared, Complete(*model, request, tenant, std::move(decode),
                                                     max_answer_bytes, Clamps(request.overflow())));
  if (request.tool_choice().mode() == v1::ToolChoice::MODE_NONE) {
    ForbidCalls(*model->markers, prepared.request.mutable_sampling());
  }
  prepared.context.MergeFrom(fitted.report);
  if (prepared.session_key.has_value()) {
    prepared.sections = SectionsOf(model->name, &conversation, tenant.salt);
  }
  prepared.neutralised = rendered.neutralised;
  return prepared;
}

absl::StatusOr<RequestPreparer::Prompt> RequestPreparer::PromptOf(const v1::GenerateRequest& request,
                                                                  const Tenant&, const Wanted& wanted) const {
  BATON_RETURN_IF_ERROR(CheckWithin(request, 0, kMaxContexts));
  BATON_ASSIGN_OR_RETURN(const ServedModel* const model, models_.Find(request.model()));
  BATON_ASSIGN_OR_RETURN(Prompt prompt, FittingPrompt(*model, request, kMaxContexts, wanted));
  if (prompt.context.has_value()) {
    BATON_ASSIGN_OR_RETURN(prompt.text, model->tokenizer->Decode(prompt.tokens, /*keep_special=*/true));
  }
  return prompt;
}

absl::StatusOr<RequestPreparer::Prompt> RequestPreparer::PromptOf(const v1::ChatRequest& request,
                                                                  const Tenant& tenant,
                                                                  const Wanted& wanted) const {
  BATON_RETURN_IF_ERROR(Check(request));
  BATON_ASSIGN_OR_RETURN(const ServedModel* const model, models_.Find(request.model()));
  BATON_ASSIGN_OR_RETURN(Fitted fitted, FitOrRender(*model, request, tenant, kMaxContexts, wanted));
  Prompt prompt;
  prompt.tokens = std::move(fitted.rendered.tokens);
  prompt.text = std::move(fitted.rendered.text);
  if (fitted.conversation.has_value()) prompt.context = std::move(fitted.report);
  return prompt;
}

absl::StatusOr<v1::DetokenizeResponse> RequestPreparer::Detokenize(
    const v1::DetokenizeRequest& request) const {
  BATON_ASSIGN_OR_RETURN(const ServedModel* const model, models_.Find(request.model()));
  if (request.token_ids_size() > kMaxContexts * model->context) {
    return ExceedsContext(fmt::format("token_ids: {} ids, at most {} are taken, {} contexts",
                                      request.token_ids_size(), kMaxContexts * model->context, kMaxContexts));
  }
  BATON_RETURN_IF_ERROR(CheckTokenIds(request.token_ids(), model->vocabulary, "token_ids"));
  std::vector<TokenId> tokens;
  tokens.reserve(request.token_ids_size());
  for (int32_t id : request.token_ids()) tokens.emplace_back(id);
  v1::DetokenizeResponse response;
  BATON_ASSIGN_OR_RETURN(*response.mutable_text(),
                         model->tokenizer->Decode(tokens, request.special_tokens()));
  return response;
}

}  // namespace baton::router
