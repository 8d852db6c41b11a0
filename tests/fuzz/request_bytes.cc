#include "tests/fuzz/request_bytes.h"

#include <memory>
#include <optional>
#include <utility>

#include "common/base/check.h"
#include "common/engine/engine.h"
#include "common/telemetry/metrics.h"
#include "common/text/tokenizer.h"
#include "common/transfer/fingerprint_wire.h"
#include "common/transfer/host_link.h"
#include "decode_service/request.h"
#include "decode_service/scheduler.h"
#include "prefill_service/request.h"
#include "prefill_service/scheduler.h"

namespace baton {
namespace {

constexpr char kModel[] = BATON_SOURCE_DIR "/models/baton-tiny";
constexpr int kSteps = 4;

// Nobody is at home.
class NoPrefillClient final : public decode_service::PrefillClient {
 public:
  std::unique_ptr<decode_service::PrefillCall> Call(const std::string&, v1::PrefillRequest, absl::Time,
                                                    Callbacks) override {
    class Silent final : public decode_service::PrefillCall {
      void Next() override {}
    };
    return std::make_unique<Silent>();
  }
};

struct Workers {
  std::unique_ptr<engine::Engine> engine =
      engine::Engine::Load({.model_folder = kModel, .threads = 1, .kv_bytes = 16 << 20}).value();
  std::shared_ptr<const text::Tokenizer> tokenizer = text::Tokenizer::Load(kModel).value();
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

absl::Status Decode(Workers& workers, const v1::DecodeRequest& request) {
  auto sequence = decode_service::ParseRequest(request, *workers.engine, workers.tokenizer);
  if (!sequence.ok()) {
    return Canonical(sequence.status()) ? absl::OkStatus() : sequence.status();
  }
  int ends = 0;
  (*sequence)->send = [](const v1::DecodeEvent&) {};
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

absl::Status Prefill(Workers& workers, const v1::PrefillRequest& request) {
  auto job = prefill_service::ParseRequest(request, *workers.engine);
  if (!job.ok()) return Canonical(job.status()) ? absl::OkStatus() : job.status();
  int ends = 0;
  job->send = [](const v1::PrefillEvent&) {};
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

}  // namespace

absl::Status RunRequestBytes(std::span<const uint8_t> bytes) {
  if (bytes.empty()) return absl::OkStatus();
  Workers& workers = TheWorkers();
  const uint8_t choice = bytes.front();
  bytes = bytes.subspan(1);
  const auto fingerprint = transfer::ToProto(workers.engine->fingerprint());
  const auto parse = [&](auto& request) {
    if (!request.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return false;
    if ((choice & 2) != 0) *request.mutable_fingerprint() = fingerprint;
    return true;
  };
  if ((choice & 1) != 0) {
    v1::DecodeRequest request;
    return parse(request) ? Decode(workers, request) : absl::OkStatus();
  }
  v1::PrefillRequest request;
  return parse(request) ? Prefill(workers, request) : absl::OkStatus();
}

std::string GoodRequestBytes(bool decode) {
  v1::DecodeRequest to_decode;
  v1::PrefillRequest to_prefill;
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
  to_decode.add_prefill()->set_address("nowhere");
  v1::Ticket& ticket = *to_prefill.mutable_ticket();
  ticket.set_incarnation(1);
  ticket.set_id(2);
  ticket.set_first_block(1);
  ticket.add_generations(1);
  ticket.add_generations(4);
  return decode ? to_decode.SerializeAsString() : to_prefill.SerializeAsString();
}

}  // namespace baton
