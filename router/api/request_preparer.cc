#include "router/api/request_preparer.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <string_view>
#include <type_traits>
#include <utility>

#include "common/base/status.h"
#include "common/rpc/status.h"
#include "protocol/client/token_ids.h"
#include "router/api/answer_format.h"
#include "router/api/cache_marks.h"
#include "router/api/chat_grammar.h"
#include "router/api/overflow.h"
#include "router/api/prompt.h"
#include "router/api/request_checks.h"
#include "router/api/reusable_parts.h"
#include "router/api/settings_hints.h"
#include "router/api/validation.h"

namespace baton::router {
namespace {

using baton::fleet::v1::DecodeRequest;

// The conversation that was rendered; null: the prompt is none's.
const v1::Conversation* ConversationOf(const v1::GenerateRequest&, const Fitted&) { return nullptr; }
const v1::Conversation* ConversationOf(const v1::ChatRequest& request, const Fitted& fitted) {
  return fitted.conversation.has_value() ? &*fitted.conversation : &request.conversation();
}

void SetLeases(std::vector<baton::fleet::v1::CacheLease> leases, DecodeRequest* decode) {
  for (baton::fleet::v1::CacheLease& lease : leases) *decode->add_leases() = std::move(lease);
}

// The leases and reusable spans of the prompt in `decode`.
absl::Status SetCaching(const ServedModel&, const v1::GenerateRequest& request, const Tenant&, const Fitted&,
                        const Wanted&, DecodeRequest* decode) {
  if (request.reusable_size() > kv::kMaxReusableSpans) {
    return absl::InvalidArgumentError(fmt::format("reusable: {} spans, at most {} are allowed",
                                                  request.reusable_size(), kv::kMaxReusableSpans));
  }
  *decode->mutable_reusable() = request.reusable();
  BATON_RETURN_IF_ERROR(kv::CheckReusable(ReusableSpansOf(*decode), decode->token_ids_size(), "reusable"));
  SetLeases(LeasesOf(decode->token_ids_size(), request.options()), decode);
  return absl::OkStatus();
}

absl::Status SetCaching(const ServedModel& model, const v1::ChatRequest& request, const Tenant& tenant,
                        const Fitted& fitted, const Wanted& wanted, DecodeRequest* decode) {
  const v1::Conversation& conversation = *ConversationOf(request, fitted);
  const auto render_tokens = [&](const v1::Conversation& probe) -> absl::StatusOr<std::vector<TokenId>> {
    BATON_ASSIGN_OR_RETURN(Rendered made,
                           Render(model, probe, request.thinking(), tenant, kMaxContexts, wanted));
    return std::move(made.tokens);
  };
  BATON_ASSIGN_OR_RETURN(std::vector<baton::fleet::v1::CacheLease> leases,
                         LeasesOf(fitted.rendered.tokens, conversation, request.options(), render_tokens));
  SetLeases(std::move(leases), decode);
  BATON_ASSIGN_OR_RETURN(const std::vector<kv::ReusableSpan> spans,
                         ReusablePartsOf(fitted.rendered.tokens, conversation, render_tokens));
  for (const kv::ReusableSpan& span : spans) {
    v1::ReusableSpan& one = *decode->add_reusable();
    one.set_begin(static_cast<uint32_t>(span.begin));
    one.set_end(static_cast<uint32_t>(span.end));
  }
  return absl::OkStatus();
}

absl::Status CheckPromptLogprobs(const DecodeRequest& decode) {
  if (decode.reusable().empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "output.prompt_logprobs: of a prompt with reusable parts there are none that are exact; mark none");
}

// The format of an answer's parts. One of Generate has none.
void SetFormat(const ServedModel&, const v1::GenerateRequest&, std::string_view, DecodeRequest*) {}
void SetFormat(const ServedModel& model, const v1::ChatRequest& request, std::string_view prompt,
               DecodeRequest* decode) {
  if (auto format = AnswerFormatOf(model, request, prompt); format.has_value()) {
    *decode->mutable_answer_format() = *std::move(format);
  }
}

bool CallsForbidden(const v1::GenerateRequest&) { return false; }
bool CallsForbidden(const v1::ChatRequest& request) {
  return request.tool_choice().mode() == v1::ToolChoice::MODE_NONE;
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

// Every parameter of the draws. Seed and grammar are set.
template <typename Request>
void SetSampling(const ServedModel& model, const Request& request, Prepared* prepared) {
  v1::SamplingParams& sampling = *prepared->request.mutable_sampling();
  sampling = ResolveSampling(request.sampling(), model.defaults, prepared->seed);
  prepared->hints =
      HintsOn(request.sampling(), sampling.temperature(), /*free_text=*/!prepared->request.has_grammar());
  if (CallsForbidden(request)) ForbidCalls(*model.markers, &sampling);
}

// The conditions that end the answer: max_tokens within the operator's cap, the context and, of an answer in
// one message, its bytes.
template <typename Request>
absl::Status SetStop(const ServedModel& model, const Request& request, uint32_t max_answer_bytes,
                     Prepared* prepared) {
  const bool clamp = Clamps(request.overflow());
  const int64_t prompt_tokens = prepared->request.token_ids_size();
  v1::StopConditions& stop = *prepared->request.mutable_stop();
  stop = request.stop();
  if (const uint32_t most = model.Lowered(stop.max_tokens()); most < stop.max_tokens()) {
    prepared->hints.push_back(LoweredMaxTokens(stop.max_tokens(), most));
    stop.set_max_tokens(most);
  }
  if (request.options().prefill_only()) stop.set_max_tokens(0);
  BATON_ASSIGN_OR_RETURN(uint32_t max_tokens,
                         ResolveMaxTokens(stop, model.defaults, prompt_tokens, model.context, clamp));
  prepared->open_ended = !stop.has_max_tokens();
  if (clamp) {
    const int64_t room = model.context - prompt_tokens;
    const bool asked = stop.has_max_tokens();
    prepared->fills_context =
        asked ? stop.max_tokens() > room : model.defaults.max_new_tokens.value_or(room + 1) > room;
    if (asked && prepared->fills_context) prepared->context.set_clamped_max_tokens(max_tokens);
  }
  BATON_ASSIGN_OR_RETURN(const uint32_t answer_bytes,
                         BytesForAnswer(request.output(), prompt_tokens, max_answer_bytes));
  if (answer_bytes > 0) {
    const int64_t most = TokensOfMessage(request.output(), answer_bytes, prepared->choices);
    if (prepared->open_ended) {
      max_tokens = static_cast<uint32_t>(std::min<int64_t>(max_tokens, most));
    } else if (max_tokens > most) {
      return TooLargeForOneMessage(prepared->choices, max_tokens, max_answer_bytes, most);
    }
  }
  stop.set_max_tokens(max_tokens);
  return absl::OkStatus();
}

}  // namespace

template <typename Request>
absl::Status RequestPreparer::Check(const Request& request, uint32_t max_answer_bytes) const {
  BATON_ASSIGN_OR_RETURN(const ServedModel* const model, models_.Find(request.model()));
  return CheckRequest(*model, request, max_answer_bytes, /*counted=*/false);
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

template <typename Request>
absl::StatusOr<Prepared> RequestPreparer::Prepare(const Request& request, const Tenant& tenant,
                                                  std::optional<baton::fleet::v1::AnswerGrammar> grammar,
                                                  const Wanted& wanted, uint32_t max_answer_bytes) const {
  // 1. The model.
  BATON_ASSIGN_OR_RETURN(const ServedModel* const model, models_.Find(request.model()));
  Prepared prepared;
  prepared.model = model;
  DecodeRequest& decode = prepared.request;

  // 2. The prompt: rendered, tokenized, shortened to fit.
  if constexpr (std::is_same_v<Request, v1::ChatRequest>) {
    BATON_RETURN_IF_ERROR(CheckContinued(*model, request));
  }
  BATON_ASSIGN_OR_RETURN(const Fitted fitted, FitPrompt(*model, request, tenant, /*counted=*/false, wanted));
  protocol::AddTokens(fitted.rendered.tokens, decode.mutable_token_ids());
  prepared.context = fitted.report;
  prepared.neutralised = fitted.rendered.neutralised;

  // 3. Its places in caches.
  BATON_RETURN_IF_ERROR(SetCaching(*model, request, tenant, fitted, wanted, &decode));
  if (request.output().prompt_logprobs()) {
    BATON_RETURN_IF_ERROR(CheckPromptLogprobs(decode));
    decode.clear_leases();  // nothing of it is kept
  }

  // 4. The answer's form.
  SetFormat(*model, request, fitted.rendered.text, &decode);
  if (grammar.has_value()) *decode.mutable_grammar() = *std::move(grammar);
  *decode.mutable_output() = request.output();
  prepared.token_ids = request.output().token_ids();

  // 5. How its tokens are drawn, and where it ends.
  prepared.choices = request.options().has_n() ? static_cast<int>(request.options().n()) : 1;
  prepared.seed = request.sampling().has_seed() ? request.sampling().seed() : draw_seed_();
  SetSampling(*model, request, &prepared);
  BATON_RETURN_IF_ERROR(SetStop(*model, request, max_answer_bytes, &prepared));

  // 6. Whose it is.
  prepared.tenant = tenant.id;
  prepared.debug = request.options().debug();
  decode.set_salt(tenant.salt.bytes());
  decode.set_priority(request.options().priority());
  decode.set_speculation(request.options().speculation());
  if (const std::string& session = request.options().session_id(); !session.empty()) {
    prepared.session = std::hash<std::string>()(session) | 1;
    prepared.session_key = SessionKey(session, tenant.salt);
    prepared.sections = SectionsOf(model->name, ConversationOf(request, fitted), tenant.salt);
  }
  return prepared;
}

template <typename Request>
absl::StatusOr<RequestPreparer::Prompt> RequestPreparer::PromptOf(const Request& request,
                                                                  const Tenant& tenant,
                                                                  const Wanted& wanted) const {
  BATON_ASSIGN_OR_RETURN(const ServedModel* const model, models_.Find(request.model()));
  BATON_RETURN_IF_ERROR(CheckRequest(*model, request, /*max_answer_bytes=*/0, /*counted=*/true));
  BATON_ASSIGN_OR_RETURN(Fitted fitted, FitPrompt(*model, request, tenant, /*counted=*/true, wanted));
  Prompt prompt = {.tokens = std::move(fitted.rendered.tokens), .text = std::move(fitted.rendered.text)};
  if (fitted.shortened()) {
    if (!fitted.conversation.has_value()) {
      BATON_ASSIGN_OR_RETURN(prompt.text, model->tokenizer->Decode(prompt.tokens, /*keep_special=*/true));
    }
    prompt.context = std::move(fitted.report);
  }
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

template absl::Status RequestPreparer::Check(const v1::GenerateRequest&, uint32_t) const;
template absl::Status RequestPreparer::Check(const v1::ChatRequest&, uint32_t) const;
template absl::StatusOr<Prepared> RequestPreparer::Prepare(const v1::GenerateRequest&, const Tenant&,
                                                           std::optional<baton::fleet::v1::AnswerGrammar>,
                                                           const Wanted&, uint32_t) const;
template absl::StatusOr<Prepared> RequestPreparer::Prepare(const v1::ChatRequest&, const Tenant&,
                                                           std::optional<baton::fleet::v1::AnswerGrammar>,
                                                           const Wanted&, uint32_t) const;
template absl::StatusOr<RequestPreparer::Prompt> RequestPreparer::PromptOf(const v1::GenerateRequest&,
                                                                           const Tenant&,
                                                                           const Wanted&) const;
template absl::StatusOr<RequestPreparer::Prompt> RequestPreparer::PromptOf(const v1::ChatRequest&,
                                                                           const Tenant&,
                                                                           const Wanted&) const;

}  // namespace baton::router
