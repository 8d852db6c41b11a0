#include "decode_service/service.h"

#include <utility>

#include "common/base/status.h"
#include "common/rpc/server_stream.h"
#include "common/transfer/fingerprint_wire.h"
#include "fmt/format.h"

namespace baton::decode_service {
namespace {

using Stream = rpc::ServerStream<v1::DecodeEvent>;

// A client that lets this much pile up is paused until it has read on.
constexpr size_t kMaxOutboxBytes = 256 << 10;

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

}  // namespace

DecodeService::DecodeService(engine::Engine& engine, engine::Loop& loop, Scheduler& scheduler,
                             worker::WatchHub& hub, std::shared_ptr<const text::Tokenizer> tokenizer,
                             Probe& probe)
    : engine_(engine),
      loop_(loop),
      scheduler_(scheduler),
      hub_(hub),
      tokenizer_(std::move(tokenizer)),
      probe_(probe) {}

absl::StatusOr<std::unique_ptr<Sequence>> DecodeService::Parse(const v1::DecodeRequest& request) const {
  const model::ModelConfig& config = engine_.config();
  if (const auto difference =
          model::FirstDifference(engine_.fingerprint(), transfer::FromProto(request.fingerprint()));
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
  sequence->tokens.reserve(size + 1);
  for (int64_t i = 0; i < size; ++i) {
    const int32_t id = request.token_ids(static_cast<int>(i));
    if (id < 0 || id >= config.vocabulary) {
      return absl::InvalidArgumentError(
          fmt::format("token_ids[{}] is {}, the vocabulary has {} tokens", i, id, config.vocabulary));
    }
    sequence->tokens.emplace_back(id);
  }
  sequence->prompt_tokens = size - request.resumed_tokens();
  sequence->max_tokens = request.stop().max_tokens();
  if (sequence->max_tokens < 1 || request.resumed_tokens() >= sequence->max_tokens) {
    return absl::InvalidArgumentError("stop.max_tokens must be more than the resumed tokens");
  }
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
  sequence->fingerprint = request.fingerprint();
  sequence->targets.assign(request.prefill().begin(), request.prefill().end());
  sequence->priority = request.priority();
  sequence->choice = request.choice();
  sequence->outbox =
      std::make_unique<Outbox>(tokenizer_, request.stop(), request.output(), request.choice(), config.eos);
  const auto resumed = std::span(sequence->tokens).subspan(sequence->prompt_tokens);
  sequence->history.AddPrompt(std::span(sequence->tokens).first(sequence->prompt_tokens));
  for (TokenId token : resumed) sequence->history.AddOutput(token);
  sequence->outbox->Resume(resumed);
  return sequence;
}

grpc::ServerWriteReactor<v1::DecodeEvent>* DecodeService::Generate(grpc::CallbackServerContext* context,
                                                                   const v1::DecodeRequest* request) {
  auto stream = Stream::Create();
  auto* reactor = stream->reactor();
  if (hub_.draining()) {
    stream->Finish(absl::UnavailableError("this decode worker is draining: use another"));
    return reactor;
  }
  auto parsed = Parse(*request);
  if (!parsed.ok()) {
    probe_.Refused();
    stream->Finish(parsed.status());
    return reactor;
  }
  std::unique_ptr<Sequence> sequence = *std::move(parsed);
  sequence->kv =
      std::make_unique<engine::SequenceKv>(engine_.pool(), engine_.RootFor(kv::TenantSalt(request->salt())));
  if (const auto deadline = context->deadline(); deadline != std::chrono::system_clock::time_point::max()) {
    sequence->deadline = absl::FromChrono(deadline);
  }
  // The router's booking lives as long as the sequence does.
  sequence->send = [stream, booked = hub_.Book(request->router_id(), request->token_ids_size())](
                       v1::DecodeEvent event) { stream->Send(std::move(event)); };
  sequence->finish = [stream](const absl::Status& status) { stream->Finish(status); };
  sequence->congested = [stream] { return stream->outbox_bytes() > kMaxOutboxBytes; };
  const SequenceId id(next_id_++);
  const bool posted = loop_.TryPost([this, id, stream, sequence = std::move(sequence)]() mutable {
    if (stream->cancelled()) return;
    if (absl::Status admitted = scheduler_.Submit(id, std::move(sequence)); !admitted.ok()) {
      probe_.Refused();
      stream->Finish(admitted);
      return;
    }
    stream->Listen({.cancelled = [this, id] { loop_.PostAlways([this, id] { scheduler_.Cancel(id); }); },
                    .drained = [this] { loop_.PostAlways([] {}); }});
  });
  if (!posted) {
    probe_.Refused();
    stream->Finish(absl::ResourceExhaustedError("this decode worker's mailbox is full: use another"));
  }
  return reactor;
}

}  // namespace baton::decode_service
