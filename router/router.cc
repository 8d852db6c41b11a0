#include "router/router.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <map>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_join.h"
#include "absl/synchronization/mutex.h"
#include "common/base/check.h"
#include "common/base/clock.h"
#include "common/base/cores.h"
#include "common/base/digest.h"
#include "common/base/quote.h"
#include "common/base/random.h"
#include "common/base/status.h"
#include "common/rpc/security.h"
#include "common/rpc/server.h"
#include "protocol/client/limits.h"
#include "router/api/classifier.h"
#include "router/api/classifiers.h"
#include "router/api/executor.h"
#include "router/api/grpc_decode_client.h"
#include "router/api/model_registry.h"
#include "router/api/request_driver.h"
#include "router/api/request_preparer.h"
#include "router/api/service.h"
#include "router/api/validation.h"
#include "router/billing/ledger.h"
#include "router/billing/price_file.h"
#include "router/kserve/service.h"
#include "router/model_workers.h"
#include "router/store/redis_ledger.h"
#include "router/store/shared_limits.h"
#include "router/store/store_probe.h"
#include "router/tenancy/authenticator.h"
#include "router/vllm/service.h"

namespace baton::router {
namespace {

// The workers of some of the models.
using Finding = discovery::Discovery::Options;

Finding WorkersOf(const RouterOptions& options, const RouterOptions::Model& model) {
  Finding finding;
  finding.decode = model.HasWorkers() ? model.decode : options.decode;
  finding.prefill = model.HasWorkers() ? model.prefill : options.prefill;
  finding.fleet_file = model.HasWorkers() ? model.fleet_file : options.fleet_file;
  finding.resolve_every = options.resolve_interval;
  return finding;
}

bool SameWorkers(const Finding& a, const Finding& b) {
  return a.decode == b.decode && a.prefill == b.prefill && a.fleet_file == b.fleet_file;
}

admission::TenantLimits RatesOf(const RouterOptions::Model& model) {
  admission::TenantLimits rates;
  rates.requests_per_minute = model.requests_per_minute;
  rates.prompt_tokens_per_minute = model.prompt_tokens_per_minute;
  rates.output_tokens_per_minute = model.output_tokens_per_minute;
  return rates;
}

// Sets the limits of the model with this number.
void SetLimits(const RouterOptions::Model& model, size_t number, ServedModel* served) {
  served->tenants.insert(model.tenants.begin(), model.tenants.end());
  served->max_tokens = model.max_tokens;
  auto& otherwise = served->defaults.max_new_tokens;
  if (model.default_max_tokens > 0) otherwise = static_cast<int>(model.default_max_tokens);
  if (model.max_tokens > 0) {
    const int most = static_cast<int>(model.max_tokens);
    otherwise = std::min(otherwise.value_or(most), most);
  }
  if (RatesOf(model) != admission::TenantLimits()) {
    served->meter = admission::TenantId(static_cast<uint32_t>(number));
  }
}

// `fleets`: where the workers of each fleet are, in the order of their first models.
absl::StatusOr<ModelRegistry> LoadModels(const RouterOptions& options, std::vector<Finding>* fleets) {
  std::vector<ServedModel> served;
  // Names of one folder share what is loaded of it.
  std::map<std::tuple<std::string, std::string, std::string>, ServedModel> loaded;
  for (const RouterOptions::Model& model : options.models) {
    const std::tuple folder(model.folder, model.output_format, model.classifier);
    if (!loaded.contains(folder)) {
      BATON_ASSIGN_OR_RETURN(
          loaded[folder], ServedModel::Load(model.folder, model.name, model.output_format, model.classifier));
    }
    served.push_back(loaded[folder]);
    if (!model.name.empty()) served.back().name = model.name;
    SetLimits(model, served.size() - 1, &served.back());
    const output::FormatChoice& choice = served.back().output;
    spdlog::info("model {}: output format {}, {} tool calls, {} thinking", served.back().name,
                 choice.format->name, choice.tools ? "with" : "without",
                 choice.thinking ? "with" : "without");
    spdlog::info("model {}: tokenizer {}, ends {}, chat template {}", served.back().name,
                 ShortDigest(served.back().tokenizer_digest), ShortDigest(served.back().ends_digest),
                 ShortDigest(served.back().template_digest));
    for (const std::string& why : served.back().defaults.left_out) {
      spdlog::warn("model {}: {}: requests have no default for it", served.back().name, why);
    }
    for (const std::string_view part : served.back().unstable_history) {
      spdlog::info(
          "model {}: its chat template writes {} of earlier turns otherwise than the model does: the KV of "
          "an answer with it "
          "is not found again in the next turn (ModelInfo.unstable_history)",
          served.back().name, part);
    }
    if (served.back().classifier != nullptr) {
      spdlog::info("model {}: a classifier of the format {}, {} bytes of text per verdict",
                   served.back().name, served.back().classifier->name, served.back().classifier_room);
    }
    const Finding workers = WorkersOf(options, model);
    const auto fleet = std::find_if(fleets->begin(), fleets->end(),
                                    [&](const Finding& other) { return SameWorkers(workers, other); });
    served.back().fleet = fleet - fleets->begin();
    if (fleet == fleets->end()) {
      fleets->push_back(workers);
      continue;
    }
    // The fleet's workers have one fingerprint: those of another model would be left out.
    const auto first = std::find_if(served.begin(), served.end(), [&](const ServedModel& other) {
      return other.fleet == served.back().fleet;
    });
    const std::string_view other = served.back().config != first->config ? "configuration"
                                   : served.back().tokenizer_digest != first->tokenizer_digest ? "tokenizer"
                                   : served.back().ends_digest != first->ends_digest           ? "set of ends"
                                                                                               : "";
    if (other.empty()) continue;
    return absl::InvalidArgumentError(
        fmt::format("\"{}\" and \"{}\" are different models (another {}), and the workers of one fleet serve "
                    "one: name the workers of each (--models)",
                    first->name, served.back().name, other));
  }
  return ModelRegistry::Create(std::move(served));
}

// The prices of a file, if one is named, after a look whether any request for a model could cost more than is
// counted.
absl::StatusOr<std::unique_ptr<billing::PriceFile>> OpenPrices(const std::string& path,
                                                               const ModelRegistry& models) {
  if (path.empty()) return nullptr;
  return billing::PriceFile::Open(path, [path, &models](const billing::PriceTable& table) -> absl::Status {
    for (const auto& model : models.models()) {
      const billing::Price* const price = table.Find(model->name);
      if (price == nullptr) {
        spdlog::warn("{}: no price for {}: its requests have no cost", path, model->name);
        continue;
      }
      // A prompt, and as many answers as a request may have.
      const absl::Status fits =
          billing::CheckPrice(*price, (1 + int{protocol::kMaxChoices}) * model->context);
      if (fits.ok()) continue;
      return absl::InvalidArgumentError(
          fmt::format("{}: models.{}: {}", path, Quoted(model->name), std::string(fits.message())));
    }
    return absl::OkStatus();
  });
}

// The digest of all templates that a fleet's models render. If all have one template, it is that one's.
std::string TemplatesOf(const ModelRegistry& models, size_t fleet) {
  std::set<std::string> digests;
  for (const auto& model : models.models()) {
    if (model->fleet == fleet) digests.insert(model->template_digest);
  }
  return digests.size() == 1 ? *digests.begin() : Sha256Of(absl::StrJoin(digests, ""));
}

// Options of the fleet with this number, of so many. `model`: the first of those that it serves.
ModelWorkers::Options FleetOptions(const RouterOptions& options, const ServedModel& model,
                                   const std::string& router_id, Finding finding, size_t fleets) {
  ModelWorkers::Options result;
  if (fleets > 1) result.label = model.name;
  if (options.vllm_metrics) result.vllm_name = model.name;
  result.slo = options.slo;
  result.index_bytes = options.index_bytes / static_cast<int64_t>(fleets);
  result.fleet.router_id = router_id;
  result.fleet.vocabulary = model.vocabulary;
  result.fleet.tokenizer_digest = model.tokenizer_digest;
  result.fleet.ends_digest = model.ends_digest;
  result.dispatcher = options.dispatcher;
  result.finding = std::move(finding);
  result.keepalive = {options.keepalive.interval, options.keepalive.timeout};
  return result;
}

// gRPC takes so much of a request that is too large, so that the refusal is the router's and says what to do.
constexpr int kOverMessageBytes = 1 << 20;

// Seeds that the router draws, and those of the choices that count up from them, fit the integers of a
// double, which is all that many languages have.
constexpr int kSeedShift = 12;

// Calls that a leaving router can't wait for are ended so long before its gRPC would break them.
constexpr absl::Duration kToldBeforeEnd = absl::Milliseconds(100);

// New grammars that wait to be compiled, each for up to 200 ms, and the bytes of their requests.
constexpr size_t kMaxGrammarsWaiting = 256, kMaxGrammarBytesWaiting = size_t{64} << 20;

}  // namespace

// In the order in which they are built; destroyed the other way round.
struct Router::Parts {
  Parts(const RouterOptions& options, ModelRegistry registry)
      : drain(options.drain),
        models(std::move(registry)),
        preparer(models, [] { return RandomU64() >> kSeedShift; }),
        executor({.threads = options.tokenizer_threads,
                  .clock = &clock,
                  .dropped = [this] { context.probe->PreparationDropped(); }}),
        grammars({.threads = 1,
                  .capacity = kMaxGrammarsWaiting,
                  .capacity_bytes = kMaxGrammarBytesWaiting,
                  .clock = &clock,
                  .what = "new grammars wait to be compiled",
                  .dropped = [this] { context.probe->PreparationDropped(); }}),
        load({.cores = UsableCores(),
              .threads = options.tokenizer_threads,
              .sample = [this] { return SampleLoad(); }},
             clock) {
    context.preparer = &preparer;
    context.decode = &decode_client;
    context.executor = &executor;
    context.grammars = &grammars;
    context.clock = &clock;
    context.load = &load;
    context.live = &live;
    context.sessions = &sessions;
    context.held = &held;
    context.router_id = fmt::format("{:016x}", RandomU64());
    context.max_attempts = options.max_attempts;
    context.max_migrations = options.max_migrations;
    context.client_stall = options.client_stall;
    said_models.resize(models.models().size());
  }

  // The fleets call FollowFleets: they end before what it uses.
  ~Parts() {
    for (const auto& fleet : workers) fleet->Stop();
  }

  // One fleet for each of `places`; they follow no worker yet.
  absl::Status MakeFleets(const RouterOptions& options, const std::vector<Finding>& places) {
    auto shared = options;
    shared.dispatcher.meters = meters;
    shared.dispatcher.models = model_meters;
    for (size_t i = 0; i < options.models.size(); ++i) {
      const admission::TenantId number(static_cast<uint32_t>(i));
      model_meters->Configure(number, RatesOf(options.models[i]), clock.Now());
    }
    for (const Finding& place : places) {
      BATON_ASSIGN_OR_RETURN(
          auto policy,
          placement::MakePolicy(options.policy, RandomU64(),
                                forecast::QueueTargets::For(options.slo.ttft_seconds, options.tail_share),
                                options.slo.tpot_seconds));
      const auto first = std::find_if(models.models().begin(), models.models().end(),
                                      [&](const auto& model) { return model->fleet == workers.size(); });
      BATON_CHECK(first != models.models().end()) << "a fleet that serves no model";
      ModelWorkers::Options fleet = FleetOptions(shared, **first, context.router_id, place, places.size());
      fleet.fleet.template_digest = TemplatesOf(models, workers.size());
      fleet.fleet.targets = {.ttft = options.slo.ttft_seconds,
                             .tpot = options.slo.tpot_seconds,
                             .tail_share = options.tail_share};
      fleet.security = security.get();
      ModelWorkers& made = *workers.emplace_back(
          std::make_unique<ModelWorkers>(std::move(fleet), std::move(policy), metrics, clock));
      context.fleets.push_back(
          {.dispatcher = &made.dispatcher(), .fleet = &made.fleet(), .probe = &made.probe()});
    }
    context.probe = &workers.front()->probe();
    return absl::OkStatus();
  }

  void OpenStore(const RouterOptions& options) {
    if (!options.store.has_value()) return;
    store_probe.emplace(metrics);
    shared_limits = std::make_unique<store::SharedLimits>(
        store::SharedLimits::Options{.store = *options.store, .router_id = context.router_id}, meters, clock,
        *store_probe);
  }

  // Makes a tenant, or what has changed of it, known to all who hold it to its limits.
  void SetTenant(const Tenant& tenant) {
    if (shared_limits != nullptr) shared_limits->SetTenant(tenant.id, tenant.name);
    for (const auto& fleet : workers) {
      fleet->dispatcher().SetTenant(tenant.id, tenant.label, tenant.limits);
    }
    const Tenant lane = Classifier::LaneOf(tenant);
    for (const auto& model : models.models()) {
      if (model->classifier == nullptr) continue;
      workers[model->fleet]->dispatcher().SetTenant(lane.id, lane.label, lane.limits);
    }
  }

  absl::Status OpenLedger(const RouterOptions& options) {
    if (options.ledger.empty() && options.audit_log.empty()) return absl::OkStatus();
    billing::Ledger::Options files = {.ledger_file = options.ledger, .audit_file = options.audit_log};
    std::unique_ptr<billing::LedgerStore> shared;
    if (options.ledger == RouterOptions::kStoreLedger) {
      if (!options.store.has_value()) {
        return absl::InvalidArgumentError(
            "the ledger is to be kept in the store, and none is named: give --store, or a file");
      }
      files.ledger_file.clear();
      BATON_ASSIGN_OR_RETURN(shared, store::RedisLedger::Open(*options.store));
    }
    BATON_ASSIGN_OR_RETURN(ledger, billing::Ledger::Open(files, ledger_probe, std::move(shared)));
    return absl::OkStatus();
  }

  // The classifiers among the models, with the rules of tenants that have none of their own.
  absl::Status MakeClassifiers(const moderation::Rules& rules) {
    internal = context;
    internal.internal = true;
    internal.ledger = nullptr;
    internal.prices = nullptr;
    internal.sessions = nullptr;
    internal.held = nullptr;
    internal.tracer = nullptr;
    std::vector<std::unique_ptr<moderation::Moderator>> moderators;
    for (const auto& model : models.models()) {
      if (model->classifier == nullptr) continue;
      moderators.push_back(std::make_unique<Classifier>(internal, *model, moderation_probe));
    }
    if (moderators.empty() && rules.policy != moderation::Policy::kOff) {
      return absl::InvalidArgumentError(
          "answers are to be moderated, and no model is a classifier: give one \"classifier\" (--models)");
    }
    classifiers = std::make_unique<Classifiers>(models, rules, std::move(moderators));
    context.classifiers = classifiers.get();
    context.moderation = &moderation_probe;
    return absl::OkStatus();
  }

  // The health service follows the fleets.
  void FollowFleets() {
    absl::MutexLock lock(&health_mutex);
    if (server != nullptr && !stopping) SayServing();
  }

  // Says what has changed of each model, and of the router as a whole, which serves while one does.
  void SayServing() ABSL_EXCLUSIVE_LOCKS_REQUIRED(health_mutex) {
    bool any = false;
    for (size_t i = 0; i < models.models().size(); ++i) {
      const ServedModel& model = *models.models()[i];
      const bool serving = !stopping && workers[model.fleet]->dispatcher().serves();
      any = any || serving;
      if (std::exchange(said_models[i], serving) == serving) continue;
      // That there is a model of some tenants is not for strangers to know.
      server->SetServing(fmt::format("{}/{}", v1::Inference::service_full_name(), model.name), serving,
                         model.tenants.empty());
    }
    if (std::exchange(said_serving, any) != any) server->SetServing(any);
  }

  LoadReport::Sample SampleLoad() const {
    LoadReport::Sample sample = {.cpu = ProcessCpu(), .busy = executor.Busy()};
    int64_t blocks = 0, free = 0;
    for (const auto& fleet : workers) {
      sample.waiting += fleet->dispatcher().waiting();
      const std::shared_ptr<const fleet::View> view = fleet->fleet().view();
      for (const auto& worker : view->decode) {
        blocks += worker->TotalBlocks();
        free += worker->FreeBlocks();
      }
    }
    if (blocks > 0) sample.kv_used = 1 - static_cast<double>(free) / static_cast<double>(blocks);
    return sample;
  }

  const absl::Duration drain;
  telemetry::Metrics metrics;
  std::unique_ptr<telemetry::Tracing> tracing;
  MonotonicClock clock;
  std::shared_ptr<const rpc::Security> security;
  const ModelRegistry models;
  std::vector<std::unique_ptr<ModelWorkers>> workers;  // by ServedModel::fleet
  RequestPreparer preparer;
  GrpcDecodeClient decode_client{clock};
  HeldAnswers held{clock, metrics};
  LiveCalls live{clock};
  SessionPrompts sessions;
  vllm::RunningRequests vllm_running;
  CallContext context, internal;
  moderation::Probe moderation_probe{metrics};
  std::unique_ptr<Classifiers> classifiers;
  Executor executor, grammars;
  LoadReport load;
  const std::shared_ptr<admission::Meters> meters = std::make_shared<admission::Meters>();
  const std::shared_ptr<admission::Meters> model_meters = std::make_shared<admission::Meters>();
  std::optional<store::StoreProbe> store_probe;        // none without a store
  std::unique_ptr<store::SharedLimits> shared_limits;  // null: each router has its own limits
  std::unique_ptr<Tenants> tenants;
  billing::LedgerProbe ledger_probe{metrics};
  // Calls end on its thread: it goes after the server.
  std::unique_ptr<billing::Ledger> ledger;     // null: nothing is recorded
  std::unique_ptr<billing::PriceFile> prices;  // null: no model has a price
  std::unique_ptr<Authenticator> authenticator;
  std::unique_ptr<InferenceService> service;
  std::unique_ptr<kserve::KserveService> kserve;
  std::unique_ptr<vllm::InferenceService> vllm_inference;
  std::unique_ptr<vllm::ControlService> vllm_control;
  absl::Mutex health_mutex;
  std::unique_ptr<rpc::Server> server;
  bool said_serving ABSL_GUARDED_BY(health_mutex) = true;                      // what a new server says
  std::vector<std::optional<bool>> said_models ABSL_GUARDED_BY(health_mutex);  // none: nothing yet
  bool stopping ABSL_GUARDED_BY(health_mutex) = false;
};

absl::StatusOr<std::unique_ptr<Router>> Router::Start(const RouterOptions& options) {
  BATON_ASSIGN_OR_RETURN(auto security, rpc::Security::Load(options.security));
  std::vector<Finding> places;
  BATON_ASSIGN_OR_RETURN(ModelRegistry models, LoadModels(options, &places));
  auto parts = std::make_unique<Parts>(options, std::move(models));
  Parts* const all = parts.get();
  all->security = security;
  BATON_ASSIGN_OR_RETURN(all->tracing, telemetry::Tracing::Start(options.tracing, "baton-router",
                                                                 all->context.router_id, all->metrics));
  all->context.tracer = &all->tracing->tracer();
  BATON_RETURN_IF_ERROR(all->MakeFleets(options, places));
  all->live.Watch(options.client_stall);
  all->held.Watch();
  all->OpenStore(options);
  BATON_ASSIGN_OR_RETURN(
      all->tenants, Tenants::Open(options.tenants, [all](const Tenant& tenant) { all->SetTenant(tenant); }));
  all->tenants->Watch();
  all->authenticator = std::make_unique<Authenticator>(*all->tenants, *all->context.probe);
  all->context.authenticator = all->authenticator.get();
  if (all->shared_limits != nullptr) all->shared_limits->Start();
  BATON_RETURN_IF_ERROR(all->OpenLedger(options));
  all->context.ledger = all->ledger.get();
  BATON_ASSIGN_OR_RETURN(all->prices, OpenPrices(options.prices, all->models));
  if (all->prices != nullptr) all->prices->Watch();
  all->context.prices = all->prices.get();
  BATON_RETURN_IF_ERROR(all->MakeClassifiers(options.moderation));
  for (const auto& fleet : all->workers) {
    BATON_RETURN_IF_ERROR(fleet->Start([all] { all->FollowFleets(); }));
  }
  all->service = std::make_unique<InferenceService>(all->context);
  all->kserve = std::make_unique<kserve::KserveService>(all->context);
  all->vllm_inference = std::make_unique<vllm::InferenceService>(all->context, all->vllm_running);
  all->vllm_control = std::make_unique<vllm::ControlService>(all->context, all->vllm_running);
  rpc::ServerOptions listening;
  listening.listen = options.listen;
  listening.health_listen = options.health_listen;
  listening.security = security;
  listening.is_public = true;
  listening.keepalive = options.client_keepalive;
  listening.connections = options.connections;
  listening.takes_gzip = true;
  listening.ends_calls = true;
  listening.max_connection_age = options.max_connection_age;
  listening.max_receive_bytes = rpc::kMaxMessageBytes + kOverMessageBytes;
  BATON_ASSIGN_OR_RETURN(auto server,
                         rpc::Server::Start(listening, {all->service.get(), all->kserve.get(),
                                                        all->vllm_inference.get(), all->vllm_control.get()}));
  {
    absl::MutexLock lock(&all->health_mutex);
    all->server = std::move(server);
  }
  all->FollowFleets();
  return std::unique_ptr<Router>(new Router(std::move(parts)));
}

Router::Router(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}

Router::~Router() { Stop(); }

void Router::Stop() {
  {
    absl::MutexLock lock(&parts_->health_mutex);
    if (parts_->stopping) return;
    parts_->stopping = true;
    // Balancers and kubelets hear of it while running requests end.
    parts_->SayServing();
  }
  parts_->context.probe->Draining();
  // Calls that run longer are ended a little before gRPC would do it, so that they tell what they used.
  const absl::Duration told = std::min(kToldBeforeEnd, parts_->drain / 2);
  parts_->live.DrainAt(parts_->context.clock->Now() + parts_->drain - told);
  parts_->server->Shutdown(std::max(parts_->drain, kToldBeforeEnd));
  // Decode calls end a moment after the clients' calls that they were for.
  parts_->live.WaitUntilNone();
  for (const auto& fleet : parts_->workers) fleet->Stop();
}

const std::string& Router::address() const { return parts_->server->address(); }
const std::string& Router::health_address() const { return parts_->server->health_address(); }
const telemetry::Metrics& Router::metrics() const { return parts_->metrics; }
const fleet::Fleet& Router::fleet(std::string_view model) const {
  const auto found = parts_->models.Find(model);
  BATON_CHECK(found.ok()) << found.status();
  return parts_->workers[(*found)->fleet]->fleet();
}

}  // namespace baton::router
