#include "decode_service/server.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "common/base/digest.h"
#include "common/base/status.h"
#include "common/telemetry/load_watch.h"
#include "decode_service/draft_engine.h"
#include "decode_service/meeting_calls.h"
#include "decode_service/service.h"
#include "engine/measure.h"
#include "spdlog/spdlog.h"
#include "text/tokenizer.h"
#include "text/tokenizer_digest.h"
#include "worker/worker_runtime.h"

namespace baton::decode_service {

namespace {

// What a worker runs to decode. In the order of construction: what comes later uses what comes before.
class DecodeRole final : public worker::Stepper {
 public:
  DecodeRole(const SchedulerOptions& options, std::shared_ptr<const text::Tokenizer> tokenizer,
             worker::WorkerRuntime& runtime)
      : probe_(runtime.metrics(), runtime.link().receiver().name()),
        prefill_(runtime.loop(), runtime.peer_options()),
        meetings_(runtime.loop(), runtime.peer_options()),
        scheduler_(options, runtime.engine(), runtime.link().receiver(), prefill_, runtime.clock(), probe_,
                   runtime.peer_fetch()),
        service_(runtime.engine(), runtime.loop(), scheduler_, runtime.hub(), std::move(tokenizer), probe_,
                 runtime.peers(), runtime.clock(), runtime.tracer()) {
    runtime.link().SetAsk(
        [this](const std::string& address, const transfer::Meeting& meeting,
               transfer::LinkSender::Answer answer) { meetings_.Ask(address, meeting, std::move(answer)); });
  }

  fleet::v1::Role role() const override { return fleet::v1::ROLE_DECODE; }
  grpc::Service& service() override { return service_; }
  bool Step() override { return scheduler_.Step(); }
  worker::RoleReport Report() override {
    worker::RoleReport report;
    const size_t running = scheduler_.running();
    report.load.set_running(static_cast<uint32_t>(running));
    report.load.set_queued(static_cast<uint32_t>(scheduler_.sequences() - running));
    report.load.set_queued_tokens(scheduler_.pending_tokens());
    const int64_t in_time = scheduler_.AnswersInTime();
    probe_.AnswersInTime(in_time);
    report.load.set_answers_in_time(static_cast<uint32_t>(in_time));
    if (const auto rates = scheduler_.TakeRateNews(); rates.has_value()) {
      for (const forecast::TransferForecast::Rate& rate : *rates) {
        fleet::v1::PeerRate& told = report.peer_rates.emplace_back();
        told.set_worker(rate.peer);
        told.set_base_seconds(rate.base);
        told.set_bytes_per_second(rate.bytes_per_second);
      }
    }
    return report;
  }
  void SetTargets(const forecast::LatencyTargets& targets) override { scheduler_.SetTargets(targets); }
  void Abort(const absl::Status& status) override { scheduler_.Abort(status); }

 private:
  Probe probe_;
  GrpcPrefillClient prefill_;
  MeetingCalls meetings_;
  Scheduler scheduler_;
  DecodeService service_;
};

// What drafts by name is there, and what is there may draft.
absl::Status CheckSpeculation(const ServerOptions& options) {
  const std::string& how = options.speculation;
  if (!options.draft_model.empty() && options.self_draft) {
    return absl::InvalidArgumentError(
        "--draft-model and --self-draft: one of the two drafts, leave out the other");
  }
  const auto check = [&](bool is_there, bool may_draft, std::string_view flag,
                         std::string_view name) -> absl::Status {
    if (how != "auto" && may_draft && !is_there) {
      return absl::InvalidArgumentError(
          fmt::format("--speculation {}: {} has nothing to draft with: add {}", how, name, flag));
    }
    if (is_there && !may_draft) {
      const std::string with = how == "off" ? std::string(name) : fmt::format("{},{}", how, name);
      return absl::InvalidArgumentError(fmt::format(
          "{} does not draft with --speculation {}: use --speculation {}, or leave it out", flag, how, with));
    }
    return absl::OkStatus();
  };
  const Speculation& has = options.scheduler.speculation;
  BATON_RETURN_IF_ERROR(check(!options.draft_model.empty(), has.draft_model, "--draft-model", "draft-model"));
  return check(options.self_draft, has.self, "--self-draft", "self");
}

}  // namespace

struct DecodeServer::Parts {
  std::unique_ptr<worker::WorkerRuntime> runtime;
  std::unique_ptr<engine::Engine> draft_engine;  // null: no draft model
  std::unique_ptr<DecodeRole> role;
  std::unique_ptr<LinkCheck> link_check;
};

absl::StatusOr<std::unique_ptr<DecodeServer>> DecodeServer::Start(ServerOptions options) {
  auto parts = std::make_unique<Parts>();
  // Kernels of GPUs give a row other bits in a step with more rows: there, drafts have to be asked for.
  const bool exact = options.worker.engine.backend != "cuda";
  if (options.speculation == "auto" && !exact) options.speculation = "off";
  auto make = std::move(options.scheduler.speculation.make);
  options.scheduler.speculation = SpeculationOf(options.speculation);
  options.scheduler.speculation.make = std::move(make);
  BATON_RETURN_IF_ERROR(CheckSpeculation(options));
  if (options.self_draft) options.worker.engine.draft_weights = model::WeightPrecision::kInt4;
  options.worker.chunk_tokens =
      std::min(options.scheduler.step.chunk_tokens, options.scheduler.step.token_budget);
  if (options.local_prefill_tokens.has_value()) {
    options.scheduler.local_prefill_tokens = *options.local_prefill_tokens;
    options.worker.local_prefill_tokens = options.local_prefill_tokens;
  }
  BATON_ASSIGN_OR_RETURN(parts->runtime,
                         worker::WorkerRuntime::Create(options.worker, fleet::v1::ROLE_DECODE, "decode"));
  std::shared_ptr<const text::Tokenizer> tokenizer;
  {
    const telemetry::LoadWatch watch(options.worker.engine.model_folder);
    BATON_ASSIGN_OR_RETURN(tokenizer, text::Tokenizer::Load(options.worker.engine.model_folder));
  }
  worker::WorkerRuntime& runtime = *parts->runtime;
  runtime.hub().SetTokenizerDigest(text::TokenizerDigest(*tokenizer));
  // As routers log their own, to be compared.
  spdlog::info("tokenizer {}, ends {}", ShortDigest(runtime.hub().info().tokenizer_digest()),
               ShortDigest(runtime.hub().info().ends_digest()));
  options.scheduler.worker_id = runtime.worker_id();
  options.scheduler.incarnation = runtime.incarnation();
  options.scheduler.step_cost = runtime.step_cost();
  options.scheduler.chunk_reuse = !options.worker.chunk_reuse.empty();
  if (!options.draft_model.empty()) {
    engine::EngineOptions target = options.worker.engine;
    target.cores = runtime.cores();
    BATON_ASSIGN_OR_RETURN(parts->draft_engine,
                           LoadDraftEngine(options.draft_model, target, runtime.engine(), *tokenizer));
  }
  if (options.self_draft || parts->draft_engine != nullptr) {
    engine::Engine& drafts = options.self_draft ? runtime.engine() : *parts->draft_engine;
    options.scheduler.draft_model = {
        .engine = &drafts,
        .cost = engine::MeasureStepCost(
            drafts, {.chunk_tokens = options.worker.chunk_tokens, .drafts = options.self_draft},
            MonotonicClock())};
    spdlog::info(
        "{} drafts, {:.3g} ms a draft step", options.self_draft ? "a copy in 4 bits" : options.draft_model,
        1e3 * (options.scheduler.draft_model.cost.base + options.scheduler.draft_model.cost.sequence));
  }
  parts->role = std::make_unique<DecodeRole>(options.scheduler, std::move(tokenizer), runtime);
  engine::Engine& engine = runtime.engine();
  if (const int64_t held = engine.store().blocks() * kBlockTokens; held < engine.config().context) {
    spdlog::warn(
        "KV memory holds {} tokens and the model's context has {}: a prompt and its answer have at most that "
        "many here; raise --kv-memory for more",
        held, engine.config().context);
  }
  const bool tested = !options.link_check.peers.empty();
  BATON_RETURN_IF_ERROR(runtime.Serve({parts->role.get()}, !tested));
  if (tested) {
    runtime.link().probe().Floor(options.link_check.floor_gbps * 1e9);
    parts->link_check = std::make_unique<LinkCheck>(std::move(options.link_check), runtime,
                                                    [&runtime] { runtime.SetReady(); });
  }
  return std::unique_ptr<DecodeServer>(new DecodeServer(std::move(parts)));
}

DecodeServer::DecodeServer(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}

DecodeServer::~DecodeServer() {
  if (parts_->link_check != nullptr) parts_->link_check->Stop();
  parts_->runtime->Stop(absl::UnavailableError("the decode worker is leaving"));
}

void DecodeServer::Drain(absl::Duration grace) { parts_->runtime->Drain(grace); }
const std::string& DecodeServer::address() const { return parts_->runtime->address(); }
const std::string& DecodeServer::metrics_address() const { return parts_->runtime->metrics_address(); }

}  // namespace baton::decode_service
