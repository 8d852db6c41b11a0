#include "decode_service/request.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <span>
#include <utility>

#include "common/base/digest.h"
#include "common/base/status.h"
#include "protocol/client/token_ids.h"
#include "protocol/fleet/fingerprint_wire.h"
#include "protocol/fleet/lease_wire.h"
#include "protocol/fleet/reusable_wire.h"

namespace baton::decode_service {
namespace {

sampling::Params ToParams(const v1::SamplingParams& proto) {
  sampling::Params params;
  if (proto.has_temperature()) params.temperature = proto.temperature();
  if (proto.has_top_k()) params.top_k = proto.top_k();
  if (proto.has_top_p()) params.top_p = proto.top_p();
  if (proto.has_min_p()) params.min_p = proto.min_p();
  if (proto.has_seed()) params.seed = proto.seed();
  if (proto.has_repetition_penalty()) params.repetition_penalty = proto.repetition_penalty();
  if (proto.has_presence_penalty()) params.presence_penalty = proto.presence_penalty();
  if (proto.has_frequency_penalty()) params.frequency_penalty = proto.frequency_penalty();
  for (const auto& [id, bias] : proto.logit_bias()) params.logit_bias.emplace_back(TokenId(id), bias);
  return params;
}

RequestKind KindOf(const fleet::v1::DecodeRequest& request) {
  if (request.has_grammar()) return RequestKind::kConstrained;
  if (request.answer_format().tools_size() > 0) return RequestKind::kTools;
  return request.answer_format().thinking_begun() ? RequestKind::kThinking : RequestKind::kText;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Sequence>> ParseRequest(
    const fleet::v1::DecodeRequest& request, engine::Engine& engine,
    const std::shared_ptr<const text::Tokenizer>& tokenizer,
    const std::shared_ptr<const output::MarkerTables>& markers) {
  const model::ModelConfig& config = engine.config();
  if (const auto difference =
          protocol::FirstDifference(engine.fingerprint(), protocol::FromProto(request.fingerprint()));
      difference.has_value()) {
    return absl::FailedPreconditionError(
        fmt::format("fingerprints differ, worker against request: {}", *difference));
  }
  if (request.token_ids().empty()) return absl::InvalidArgumentError("token_ids: the prompt is empty");
  const int64_t size = request.token_ids_size();
  if (request.resumed_tokens() >= size) {
    return absl::InvalidArgumentError("resumed_tokens: no prompt is left before the resumed tokens");
  }
  auto sequence = std::make_unique<Sequence>();
  BATON_RETURN_IF_ERROR(protocol::CheckTokenIds(request.token_ids(), config.vocabulary, "token_ids"));
  sequence->tokens = protocol::TokensOf(request.token_ids());
  sequence->prompt_tokens = size - request.resumed_tokens();
  sequence->max_tokens = request.stop().max_tokens();
  if (!request.stop().has_max_tokens() || request.resumed_tokens() > sequence->max_tokens) {
    return absl::InvalidArgumentError("stop.max_tokens must be set and no less than the resumed tokens");
  }
  BATON_ASSIGN_OR_RETURN(sequence->leases,
                         protocol::LeasesFromProto(request.leases(), sequence->prompt_tokens));
  if (sequence->prompt_tokens + sequence->max_tokens > config.context) {
    return absl::InvalidArgumentError(
        fmt::format("prompt of {} tokens and max_tokens of {} exceed the context of {} tokens",
                    sequence->prompt_tokens, sequence->max_tokens, config.context));
  }
  sequence->sampling = ToParams(request.sampling());
  BATON_RETURN_IF_ERROR(sequence->sampling.Validate(config.vocabulary));
  for (const std::string& stop : request.stop().stop()) {
    if (stop.empty()) return absl::InvalidArgumentError("stop.stop: a stop string is empty");
  }
  sequence->request_id = request.request_id();
  sequence->salt = request.salt();
  sequence->targets.assign(request.prefill().begin(), request.prefill().end());
  sequence->peer = request.fetch();
  // The last token is computed here or handed off in any case.
  sequence->peer.set_blocks(
      std::min<uint32_t>(sequence->peer.blocks(), static_cast<uint32_t>((size - 1) / kBlockTokens)));
  sequence->priority = request.priority();
  sequence->choice = request.choice();
  sequence->kind = KindOf(request);
  sequence->speculation = request.speculation();
  sequence->even_frames = request.output().even_frames();
  sequence->tells_progress = request.output().progress();
  sequence->tells_prompt = request.output().prompt_logprobs();
  if (request.prompt_logprobs_sent() > sequence->prompt_tokens) {
    return absl::InvalidArgumentError(fmt::format("prompt_logprobs_sent is {}, and the prompt has {} tokens",
                                                  request.prompt_logprobs_sent(), sequence->prompt_tokens));
  }
  sequence->prompt_told = request.prompt_logprobs_sent();
  std::optional<AnswerParts::Options> parts;
  if (request.has_answer_format()) {
    const auto prompt = std::span(sequence->tokens).first(sequence->prompt_tokens);
    const uint64_t id_seed = uint64_t{Crc32c(std::as_bytes(prompt))} << 32 ^ request.sampling().seed();
    BATON_ASSIGN_OR_RETURN(parts, AnswerParts::ReadOptions(request.answer_format(), markers, id_seed));
  }
  std::unique_ptr<AnswerGrammar> grammar;
  if (request.has_grammar()) {
    AnswerGrammar::Options options{.tokenizer = tokenizer,
                                   .lark = request.grammar().lark(),
                                   .salt = request.salt(),
                                   .may_think = request.grammar().may_think(),
                                   .asleep = request.answer_format().thinking_begun()};
    options.ends = protocol::TokensOf(request.stop().stop_token_ids());
    if (!request.stop().ignore_eos()) {
      options.ends.insert(options.ends.end(), config.eos.begin(), config.eos.end());
    }
    if (parts.has_value()) options.markers = parts->markers;
    BATON_RETURN_IF_ERROR(AnswerGrammar::Check(options, options.may_think || options.asleep));
    grammar = std::make_unique<AnswerGrammar>(std::move(options));
  }
  sequence->outbox = std::make_unique<Outbox>(tokenizer, request.stop(), request.output(), request.choice(),
                                              config.eos, std::move(parts), std::move(grammar));
  const auto resumed = std::span(sequence->tokens).subspan(sequence->prompt_tokens);
  sequence->history.AddPrompt(std::span(sequence->tokens).first(sequence->prompt_tokens));
  for (TokenId token : resumed) sequence->history.AddOutput(token);
  BATON_ASSIGN_OR_RETURN(sequence->pending_end, sequence->outbox->Resume(resumed));
  sequence->resumed_tokens = request.resumed_tokens();
  BATON_ASSIGN_OR_RETURN(std::vector<kv::ReusableSpan> reusable,
                         protocol::ReusableFromProto(request.reusable(), sequence->prompt_tokens));
  sequence->chain = kv::PromptChain(engine.RootFor(kv::TenantSalt(request.salt())), std::move(reusable));
  sequence->lease.kv =
      std::make_unique<engine::SequenceKv>(engine.pool(), sequence->chain, SharingOf(*sequence));
  return sequence;
}

}  // namespace baton::decode_service
