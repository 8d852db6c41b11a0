#include "tests/fuzz/request_bytes.h"

#include <fmt/format.h>

#include <memory>
#include <optional>
#include <utility>

#include "common/base/check.h"
#include "common/telemetry/metrics.h"
#include "decode_service/request.h"
#include "decode_service/scheduler.h"
#include "engine/engine.h"
#include "prefill_service/request.h"
#include "prefill_service/scheduler.h"
#include "protocol/fleet/fingerprint_wire.h"
#include "protocol/fleet/prompt_checksum.h"
#include "router/api/request_preparer.h"
#include "router/api/wire.h"
#include "tests/fuzz/source_folder.h"
#include "text/tokenizer.h"
#include "transfer/fetch/blocks_service.h"
#include "transfer/fetch/peer_server.h"
#include "transfer/host_link.h"

namespace baton {
namespace {

constexpr char kModel[] = "models/baton-tiny";
constexpr int kSteps = 4;

// No worker is there.
class NoPrefillClient final : public decode_service::PrefillClient {
 public:
  std::unique_ptr<decode_service::PrefillCall> Call(const std::string&, fleet::v1::PrefillRequest, absl::Time,
                                                    const telemetry::TraceContext&, Callbacks) override {
    class Silent final : public decode_service::PrefillCall {
      void Next() override {}
    };
    return std::make_unique<Silent>();
  }
};

struct Workers {
  std::unique_ptr<engine::Engine> engine =
      engine::Engine::Load({.model_folder = fuzz::InSource(kModel), .threads = 1, .kv_bytes = 16 << 20})
          .value();
  std::shared_ptr<const text::Tokenizer> tokenizer = text::Tokenizer::Load(fuzz::InSource(kModel)).value();
  std::shared_ptr<const output::MarkerTables> markers = std::make_shared<output::MarkerTables>(*tokenizer);
  MonotonicClock clock;
  telemetry::Metrics metrics;
  transfer::HostLinkReceiver receiver;
  transfer::HostLinkSender sender;
  NoPrefillClient client;
  decode_service::Probe decode_probe{metrics, "host"};
  prefill_service::Probe prefill_probe{metrics, "host"};
  decode_service::Scheduler decode{
      {.worker_id = "d", .incarnation = Incarnation(1)}, *engine, receiver, client, clock, decode_probe};
  prefill_service::Scheduler prefill{{}, *engine, sender, clock, prefill_probe};
  fetch::Probe fetch_probe{metrics, "host"};
  fetch::PeerServer server{{}, *engine, sender, fetch_probe};
};

Workers& TheWorkers() {
  static auto* workers = new Workers;  // as long as the process
  return *workers;
}

absl::Status Whole(Workers& workers) {
  workers.engine->pool().CheckConservation();
  if (const int64_t held = workers.engine->pool().counts().held; held != 0) {
    return absl::InternalError(std::to_string(held) + " blocks are still held");
  }
  return absl::OkStatus();
}

bool Canonical(const absl::Status& status) {
  return absl::IsInvalidArgument(status) || absl::IsFailedPrecondition(status) ||
         absl::IsResourceExhausted(status);
}

absl::Status Decode(Workers& workers, const fleet::v1::DecodeRequest& request) {
  auto sequence = decode_service::ParseRequest(request, *workers.engine, workers.tokenizer, workers.markers);
  if (!sequence.ok()) {
    return Canonical(sequence.status()) ? absl::OkStatus() : sequence.status();
  }
  int ends = 0;
  (*sequence)->send = [](const fleet::v1::DecodeEvent&) {};
  (*sequence)->finish = [&ends](const absl::Status&) { ++ends; };
  (*sequence)->congested = [] { return false; };
  const absl::Status admitted = workers.decode.Submit(SequenceId(1), *std::move(sequence));
  if (admitted.ok()) {
    for (int step = 0; step < kSteps; ++step) workers.decode.Step();
    workers.decode.Cancel(SequenceId(1));
    workers.decode.Step();
  } else if (!Canonical(admitted)) {
    return admitted;
  }
  return ends <= 1 ? Whole(workers) : absl::InternalError("ended twice");
}

absl::Status Prefill(Workers& workers, const fleet::v1::PrefillRequest& request) {
  auto job = prefill_service::ParseRequest(request, *workers.engine);
  if (!job.ok()) {
    return Canonical(job.status()) || absl::IsDataLoss(job.status()) ? absl::OkStatus() : job.status();
  }
  int ends = 0;
  job->send = [](const fleet::v1::PrefillEvent&) {};
  job->finish = [&ends](const absl::Status&) { ++ends; };
  job->congested = [] { return false; };
  const absl::Status queued = workers.prefill.Submit(1, *std::move(job));
  if (queued.ok()) {
    for (int step = 0; step < kSteps; ++step) workers.prefill.Step();
    workers.prefill.Cancel(1);
  } else if (!Canonical(queued)) {
    return queued;
  }
  return ends <= 1 ? Whole(workers) : absl::InternalError("ended twice");
}

absl::Status Fetch(Workers& workers, const fleet::v1::FetchRequest& request) {
  auto ask = fetch::ParseRequest(request, *workers.engine);
  if (!ask.ok()) return Canonical(ask.status()) ? absl::OkStatus() : ask.status();
  int ends = 0;
  ask->send = [](const fleet::v1::FetchEvent&) {};
  ask->finish = [&ends](const absl::Status&) { ++ends; };
  ask->congested = [] { return false; };
  const absl::Status served = workers.server.Submit(1, *std::move(ask));
  if (served.ok()) {
    for (int step = 0; step < kSteps; ++step) workers.server.Step();
    workers.server.Cancel(1);
  } else if (!Canonical(served)) {
    return served;
  }
  return ends <= 1 ? Whole(workers) : absl::InternalError("ended twice");
}

const router::Tenant& TheTenant() {
  static const auto* tenant = new router::Tenant{.salt = kv::TenantSalt("tenant")};
  return *tenant;
}

// A public request as the router's service treats it. What the router accepts, a worker of the same model
// takes: only this check can tell the client of its mistake.
template <typename Request>
absl::Status Generate(Workers& workers, const router::RequestPreparer& preparer,
                      const grpc::ByteBuffer& bytes) {
  const router::Tenant& tenant = TheTenant();
  Request request;
  if (const absl::Status parsed = router::ParseMessage(bytes, &request); !parsed.ok()) {
    return Canonical(parsed) ? absl::OkStatus() : parsed;
  }
  if (const absl::Status checked = preparer.Check(request); !checked.ok()) {
    const bool refused = Canonical(checked) || absl::IsNotFound(checked) || absl::IsUnimplemented(checked);
    return refused ? absl::OkStatus() : checked;
  }
  auto prepared = preparer.Prepare(request, tenant);
  if (!prepared.ok()) return Canonical(prepared.status()) ? absl::OkStatus() : prepared.status();
  fleet::v1::DecodeRequest& decode = prepared->request;
  *decode.mutable_fingerprint() = protocol::ToProto(workers.engine->fingerprint());
  if (const auto taken =
          decode_service::ParseRequest(decode, *workers.engine, workers.tokenizer, workers.markers);
      !taken.ok()) {
    return absl::InternalError(
        fmt::format("the worker refuses what the router accepted: {}", taken.status().ToString()));
  }
  return Decode(workers, decode);
}

// Answers of the router itself.
template <typename Answer>
absl::Status Answered(const absl::StatusOr<Answer>& answer) {
  return answer.ok() || Canonical(answer.status()) || absl::IsNotFound(answer.status()) ? absl::OkStatus()
                                                                                        : answer.status();
}

absl::Status Public(Workers& workers, uint8_t method, std::span<const uint8_t> bytes) {
  static const auto* models = new router::ModelRegistry(
      router::ModelRegistry::Create({router::ServedModel::Load(fuzz::InSource(kModel), "").value()}).value());
  static const auto* preparer = new router::RequestPreparer(*models, [] { return uint64_t{1}; });
  grpc::Slice slice(bytes.data(), bytes.size());
  const grpc::ByteBuffer buffer(&slice, 1);
  switch (method) {
    case 0:
      return Generate<v1::GenerateRequest>(workers, *preparer, buffer);
    case 1:
      return Generate<v1::ChatRequest>(workers, *preparer, buffer);
    case 2: {
      v1::TokenizeRequest request;
      if (!router::ParseMessage(buffer, &request).ok()) return absl::OkStatus();
      return request.has_chat() ? Answered(preparer->PromptOf(request.chat(), TheTenant()))
                                : Answered(preparer->PromptOf(request.generate(), TheTenant()));
    }
    default: {
      v1::DetokenizeRequest request;
      if (!router::ParseMessage(buffer, &request).ok()) return absl::OkStatus();
      return Answered(preparer->Detokenize(request));
    }
  }
}

}  // namespace

absl::Status RunRequestBytes(std::span<const uint8_t> bytes) {
  if (bytes.empty()) return absl::OkStatus();
  Workers& workers = TheWorkers();
  const uint8_t choice = bytes.front();
  bytes = bytes.subspan(1);
  if ((choice & 4) != 0) return Public(workers, choice & 3, bytes);
  const auto fingerprint = protocol::ToProto(workers.engine->fingerprint());
  const auto parse = [&](auto& request) {
    if (!request.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return false;
    if ((choice & 2) != 0) *request.mutable_fingerprint() = fingerprint;
    return true;
  };
  if ((choice & 8) != 0) {
    fleet::v1::FetchRequest request;
    return parse(request) ? Fetch(workers, request) : absl::OkStatus();
  }
  if ((choice & 1) != 0) {
    fleet::v1::DecodeRequest request;
    return parse(request) ? Decode(workers, request) : absl::OkStatus();
  }
  fleet::v1::PrefillRequest request;
  if (!parse(request)) return absl::OkStatus();
  if ((choice & 2) != 0) request.set_prompt_crc32c(protocol::PromptChecksum(request));
  return Prefill(workers, request);
}

std::string GoodFetchRequestBytes() {
  fleet::v1::FetchRequest request;
  request.set_request_id("request");
  request.set_hashes(std::string(2 * kv::BlockHash::kBytes, 'h'));
  fleet::v1::Ticket& ticket = *request.mutable_ticket();
  ticket.set_incarnation(1);
  ticket.set_id(2);
  ticket.add_generations(1);
  ticket.add_generations(4);
  return request.SerializeAsString();
}

std::string GoodRequestBytes(bool decode) {
  fleet::v1::DecodeRequest to_decode;
  fleet::v1::PrefillRequest to_prefill;
  for (int token = 20; token < 60; ++token) {
    to_decode.add_token_ids(token);
    to_prefill.add_token_ids(token);
  }
  to_decode.set_resumed_tokens(3);
  to_decode.mutable_stop()->set_max_tokens(30);
  to_decode.mutable_stop()->add_stop("stop");
  to_decode.mutable_stop()->add_stop_token_ids(70);
  to_decode.mutable_sampling()->set_temperature(0.5f);
  to_decode.mutable_sampling()->set_top_k(40);
  (*to_decode.mutable_sampling()->mutable_logit_bias())[25] = 1;
  to_decode.mutable_output()->set_logprobs(true);
  to_decode.mutable_output()->set_top_logprobs(3);
  to_decode.mutable_output()->set_explain(true);
  to_decode.add_prefill()->set_address("nowhere");
  to_decode.add_reusable()->set_begin(1);
  to_decode.mutable_reusable(0)->set_end(35);
  *to_prefill.mutable_reusable() = to_decode.reusable();
  fleet::v1::Ticket& ticket = *to_prefill.mutable_ticket();
  ticket.set_incarnation(1);
  ticket.set_id(2);
  ticket.set_first_block(1);
  ticket.add_generations(1);
  ticket.add_generations(4);
  return decode ? to_decode.SerializeAsString() : to_prefill.SerializeAsString();
}

std::string GoodPublicRequestBytes(int method) {
  v1::GenerateRequest generate;
  generate.set_text("Hello there.");
  generate.mutable_sampling()->set_temperature(0.5f);
  generate.mutable_sampling()->set_top_p(0.9f);
  generate.mutable_sampling()->set_repetition_penalty(1.1f);
  (*generate.mutable_sampling()->mutable_logit_bias())[25] = 1;
  generate.mutable_stop()->set_max_tokens(20);
  generate.mutable_stop()->add_stop("stop");
  generate.mutable_output()->set_top_logprobs(2);
  generate.mutable_output()->set_logprobs(true);
  generate.mutable_output()->set_explain(true);
  generate.mutable_options()->set_priority(1);
  v1::Conversation conversation;
  v1::Message& message = *conversation.add_messages();
  message.set_role("user");
  message.set_content("What is the colour?");
  v1::Message& parts = *conversation.add_messages();
  parts.set_role("user");
  for (int i = 0; i < 2; ++i)
    parts.add_parts()->set_text("One two three four five six seven eight nine ten. ");
  parts.mutable_parts(1)->set_reusable(true);
  v1::TokenizeRequest tokenize;
  *tokenize.mutable_chat()->mutable_conversation() = conversation;
  v1::DetokenizeRequest detokenize;
  for (int token = 20; token < 30; ++token) detokenize.add_token_ids(token);
  v1::ChatRequest chat;
  *chat.mutable_conversation() = conversation;
  *chat.mutable_sampling() = generate.sampling();
  *chat.mutable_stop() = generate.stop();
  switch (method) {
    case 0:
      return generate.SerializeAsString();
    case 1:
      return chat.SerializeAsString();
    case 2:
      return tokenize.SerializeAsString();
    default:
      return detokenize.SerializeAsString();
  }
}

}  // namespace baton
