#include "router/api/request_preparer.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <optional>

#include "absl/strings/ascii.h"
#include "common/base/quote.h"
#include "common/base/status.h"
#include "common/rpc/status.h"
#include "protocol/client/token_ids.h"
#include "router/api/answer_format.h"
#include "router/api/cache_marks.h"
#include "router/api/chat_grammar.h"
#include "router/api/conversation.h"
#include "router/api/overflow.h"
#include "router/api/prompt.h"
#include "router/api/reusable_parts.h"
#include "router/api/settings_hints.h"
#include "router/api/validation.h"

namespace baton::router {
namespace {

absl::Status TooLargeForOneMessage(int choices, uint32_t max_tokens, uint32_t max_answer_bytes,
                                   int64_t most) {
  return rpc::WithReason(
      absl::InvalidArgumentError(
          fmt::format("stop.max_tokens: {} choices of {} tokens make more than {} bytes in one message: "
                      "ask for at most {}, or take them as a stream, or raise max_answer_bytes",
                      choices, max_tokens, max_answer_bytes, most)),
      v1::REASON_ANSWER_TOO_LARGE);
}

bool Clamps(const v1::Overflow& overflow) {
  return overflow.mode() == v1::Overflow::MODE_CLAMP_OUTPUT || overflow.clamp_output();
}

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

// Contexts that a prompt may be long before it is cut.
int64_t MostContexts(const v1::Overflow& overflow) { return Shortens(overflow) ? kMaxContexts : 1; }

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

// Sets the client's spans, of the prompt in `decode`.
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
  return protocol::CheckTokenIds(request.token_ids().ids(), model->vocabulary, "token_ids.ids");
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
  prepared.hints =
      HintsOn(request.sampling(), decode.sampling().temperature(), /*free_text=*/!decode.has_grammar());
  v1::StopConditions& stop = *decode.mutable_stop();
  stop = request.stop();
  if (const uint32_t most = model.Lowered(stop.max_tokens()); most < stop.max_tokens()) {
    prepared.hints.push_back(LoweredMaxTokens(stop.max_tokens(), most));
    stop.set_max_tokens(most);
  }
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
    prompt.tokens = protocol::TokensOf(request.token_ids().ids());
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
  protocol::AddTokens(prompt.tokens, decode.mutable_token_ids());
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
  BATON_ASSIGN_OR_RETURN(Fitted fitted, FitOrRender(*model, request, tenant, /*counted=*/false, wanted));
  const Rendered& rendered = fitted.rendered;
  protocol::AddTokens(rendered.tokens, decode.mutable_token_ids());
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
  BATON_ASSIGN_OR_RETURN(Fitted fitted, FitOrRender(*model, request, tenant, /*counted=*/true, wanted));
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
  BATON_RETURN_IF_ERROR(protocol::CheckTokenIds(request.token_ids(), model->vocabulary, "token_ids"));
  const std::vector<TokenId> tokens = protocol::TokensOf(request.token_ids());
  v1::DetokenizeResponse response;
  BATON_ASSIGN_OR_RETURN(*response.mutable_text(),
                         model->tokenizer->Decode(tokens, request.special_tokens()));
  if (request.pieces()) {
    for (const TokenId token : tokens) response.add_pieces(std::string(model->tokenizer->TokenBytes(token)));
  }
  return response;
}

}  // namespace baton::router
