#include "tests/fault/rig.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <tuple>
#include <utility>

#include "common/base/check.h"
#include "decode_service/request.h"
#include "protocol/fleet/fingerprint_wire.h"
#include "spdlog/spdlog.h"
#include "tests/fault/rig_fetch_client.h"
#include "tests/fault/rig_prefill_client.h"

namespace baton::fault {
namespace {

constexpr char kModel[] = BATON_SOURCE_DIR "/models/baton-tiny";
constexpr int64_t kBlocks = 96;
// Blocks that are fetched of every prompt.
constexpr int64_t kFetched = 4;

std::unique_ptr<engine::Engine> MakeEngine(int tp, bool of_ranks) {
  auto engine = engine::Engine::Load(
      {.model_folder = kModel,
       .threads = tp,
       .tp = tp,
       .kv_blocks = kBlocks,
       .weights = of_ranks ? model::WeightPrecision::kInt8 : model::WeightPrecision::kStored});
  BATON_CHECK(engine.ok()) << engine.status().ToString();
  return *std::move(engine);
}

engine::Engine& SharedEngine(int index, int tp, bool of_ranks) {
  static std::map<std::tuple<int, int, bool>, std::unique_ptr<engine::Engine>>
      engines;  // as long as the process
  auto& engine = engines[{index, tp, of_ranks}];
  if (engine == nullptr) engine = MakeEngine(tp, of_ranks);
  return *engine;
}

// The host link without its checks: whatever came is written.
class TrustingReceiver final : public transfer::LinkReceiver {
 public:
  std::string_view name() const override { return "host"; }
  void Receive(const fleet::v1::KvChunk& chunk, std::string_view, transfer::Pieces pieces,
               Done done) override {
    std::string data = chunk.data();
    size_t size = 0;
    for (const auto piece : pieces) size += piece.size();
    data.resize(size);
    const char* from = data.data();
    for (const auto piece : pieces) {
      std::memcpy(piece.data(), from, piece.size());
      from += piece.size();
    }
    done(absl::OkStatus());
  }
};

}  // namespace

void SlowReceiver::Receive(const fleet::v1::KvChunk& chunk, std::string_view, transfer::Pieces pieces,
                           Done done) {
  writes_.push_back({&chunk, pieces, std::move(done), clock_.Now() + takes_});
}

void SlowReceiver::Tick() {
  while (!writes_.empty() && writes_.front().due <= clock_.Now()) {
    Write write = std::move(writes_.front());
    writes_.pop_front();
    host_.Receive(*write.chunk, "", write.pieces, std::move(write.done));
  }
}

void SlowReceiver::Close() {
  for (Write& write : std::exchange(writes_, {})) write.done(absl::UnavailableError("the link is gone"));
}

engine::Engine& Rig::SoloEngine(bool of_ranks) { return SharedEngine(4, 1, of_ranks); }

void Rig::Empty(engine::Engine& engine) {
  kv::BlockPool& pool = engine.pool();
  BATON_CHECK(pool.counts().held == 0);
  pool.Release(pool.Allocate(pool.available()).value());
}

Rig::Rig(const RigOptions& options)
    : without_(options.without),
      write_takes_(options.write_takes),
      fetches_(options.fetches),
      progress_(options.progress),
      turn_(options.turn),
      clock_(absl::UnixEpoch() + absl::Hours(1)) {
  spdlog::set_level(spdlog::level::off);  // the faults are meant; their warnings would bury a failure
  tokenizer_ = text::Tokenizer::Load(kModel).value();
  router.name = "router";
  client.name = "client";
  for (int i = 0; i < 2; ++i) {
    prefill[i].name = fmt::format("prefill-{}", i);
    prefill[i].engine = &SharedEngine(i, options.prefill_tp, options.of_ranks());
    decode[i].name = fmt::format("decode-{}", i);
    decode[i].engine = &SharedEngine(2 + i, options.decode_tp, options.of_ranks());
    Boot(prefill[i]);
    Boot(decode[i]);
  }
}

Rig::~Rig() {
  for (const auto& request : requests_) Abandon(*request);
  for (int i = 0; i < 2; ++i) {
    Kill(decode[i]);
    Kill(prefill[i]);
  }
}

void Rig::Boot(PrefillNode& node) {
  Empty(*node.engine);
  node.probe = std::make_unique<prefill_service::Probe>(node.metrics, node.link.name());
  node.fetch_probe = std::make_unique<fetch::Probe>(node.metrics, node.link.name());
  node.fetch_client = std::make_unique<RigFetchClient>(*this, node);
  node.fetcher = std::make_unique<fetch::Fetcher>(
      fetch::FetcherOptions{
          .worker_id = node.name, .incarnation = Incarnation(100 + node.life), .always = true},
      *node.engine, node.receiver, *node.fetch_client, clock_, *node.fetch_probe);
  // A block to a step.
  const int64_t block_bytes = node.engine->store().layout().block_bytes();
  node.server = std::make_unique<fetch::PeerServer>(
      fetch::PeerServerOptions{.max_chunk_bytes = block_bytes, .step_bytes = block_bytes}, *node.engine,
      node.link, *node.fetch_probe);
  node.scheduler = std::make_unique<prefill_service::Scheduler>(
      prefill_service::SchedulerOptions{.chunk_tokens = 16, .token_budget = 16}, *node.engine, node.link,
      clock_, *node.probe, fetch::PeerFetch{.fetcher = node.fetcher.get(), .server = node.server.get()});
}

void Rig::Boot(DecodeNode& node) {
  Empty(*node.engine);
  node.slow = nullptr;
  if (without_.checksum) {
    node.link = std::make_unique<TrustingReceiver>();
  } else if (write_takes_ > absl::ZeroDuration()) {
    auto slow = std::make_unique<SlowReceiver>(clock_, write_takes_);
    node.slow = slow.get();
    node.link = std::move(slow);
  } else {
    node.link = std::make_unique<transfer::HostLinkReceiver>();
  }
  node.probe = std::make_unique<decode_service::Probe>(node.metrics, node.link->name());
  node.client = std::make_unique<RigPrefillClient>(*this, node);
  node.fetch_probe = std::make_unique<fetch::Probe>(node.metrics, node.link->name());
  node.fetch_client = std::make_unique<RigFetchClient>(*this, node);
  node.fetcher = std::make_unique<fetch::Fetcher>(
      fetch::FetcherOptions{.worker_id = node.name, .incarnation = IncarnationOf(node), .always = true},
      *node.engine, *node.link, *node.fetch_client, clock_, *node.fetch_probe);
  node.scheduler = std::make_unique<decode_service::Scheduler>(
      decode_service::SchedulerOptions{.worker_id = node.name,
                                       .incarnation = IncarnationOf(node),
                                       .local_prefill_tokens = 8,
                                       .step = {.chunk_tokens = 16, .token_budget = 32}},
      *node.engine, *node.link, *node.client, clock_, *node.probe,
      fetch::PeerFetch{.fetcher = node.fetcher.get()});
}

Incarnation Rig::IncarnationOf(const DecodeNode& node) const {
  return Incarnation(1000 * (&node - decode + 1) + node.life);
}

void Rig::Kill(PrefillNode& node) {
  node.up = false;
  ++node.life;
  node.mail.clear();
  node.scheduler.reset();
  node.server.reset();
  if (!node.hog.empty()) node.engine->pool().Release(std::exchange(node.hog, {}));
}

void Rig::Kill(DecodeNode& node) {
  node.up = false;
  ++node.life;
  node.mail.clear();
  // Memory and link go together.
  if (node.scheduler != nullptr) node.scheduler->Abort(absl::UnavailableError("killed"));
  if (node.slow != nullptr) node.slow->Close();
  node.scheduler.reset();
  if (!node.hog.empty()) node.engine->pool().Release(std::exchange(node.hog, {}));
}

void Rig::Restart(PrefillNode& node) {
  Kill(node);
  node.up = true;
  Boot(node);
}

void Rig::Restart(DecodeNode& node) {
  Kill(node);
  node.up = true;
  Boot(node);
}

void Rig::After(absl::Duration delay, std::function<void()> work) {
  later_.emplace(clock_.Now() + delay, std::move(work));
}

Request& Rig::Ask(const std::vector<TokenId>& prompt, const sampling::Params& params, uint32_t max_tokens,
                  absl::Time deadline) {
  requests_.push_back(std::make_unique<Request>());
  Request& request = *requests_.back();
  request.flow = std::make_unique<router::RequestFlow>(
      router::RequestFlow::Options{.request_id = fmt::format("r{}", requests_.size()),
                                   .router_id = "router",
                                   .arrival = clock_.Now(),
                                   .deadline = deadline},
      clock_, probe_);
  router::Prepared prepared;
  for (TokenId token : prompt) prepared.request.add_token_ids(token.value());
  v1::SamplingParams& sampling = *prepared.request.mutable_sampling();
  sampling.set_temperature(params.temperature);
  sampling.set_top_k(params.top_k);
  sampling.set_top_p(params.top_p);
  sampling.set_repetition_penalty(params.repetition_penalty);
  sampling.set_presence_penalty(params.presence_penalty);
  sampling.set_frequency_penalty(params.frequency_penalty);
  prepared.seed = params.seed;
  prepared.request.mutable_stop()->set_max_tokens(max_tokens);
  prepared.request.mutable_stop()->set_ignore_eos(true);
  prepared.request.mutable_output()->set_logits_digest(true);
  prepared.request.mutable_output()->set_progress(progress_);
  prepared.progress = progress_;
  prepared.request.set_salt("tenant");
  prepared.token_ids = true;
  prepared.model = &model_;
  router.Post([this, &request, prepared = std::move(prepared)]() mutable {
    Perform(request, request.flow->OnPrepared(std::move(prepared)));
  });
  return request;
}

void Rig::Place(Request& request) {
  for (DecodeNode& node : decode) {
    const bool avoided =
        std::find(request.avoid.begin(), request.avoid.end(), IncarnationOf(node)) != request.avoid.end();
    if (!node.up || avoided) continue;
    router::Placement placement;
    placement.decode = std::make_shared<router::fleet::Worker>(
        router::fleet::Worker::Identity{.endpoint = static_cast<int>(&node - decode),
                                        .address = node.name,
                                        .id = node.name,
                                        .role = router::fleet::Role::kDecode,
                                        .incarnation = IncarnationOf(node),
                                        .fingerprint = protocol::ToProto(node.engine->fingerprint()),
                                        .peer_fetch = true});
    for (PrefillNode& worker : prefill) {
      placement.prefill.push_back(
          std::make_shared<router::fleet::Worker>(router::fleet::Worker::Identity{.endpoint = 0,
                                                                                  .address = worker.name,
                                                                                  .id = worker.name,
                                                                                  .role = {},
                                                                                  .incarnation = {},
                                                                                  .fingerprint = {},
                                                                                  .peer_fetch = true}));
    }
    if (fetches_ != Fetches::kNobody) {
      placement.fetch_from = placement.prefill[1];
      placement.selection.fetch_blocks = kFetched;
      if (fetches_ == Fetches::kDecode) placement.prefill.clear();
    }
    request.wants_place = false;
    request.decode = &node;
    Perform(request, request.flow->OnPlaced(0, std::move(placement)));
    return;
  }
  request.wants_place = false;
  Perform(request, request.flow->OnPlaced(0, absl::UnavailableError("no decode worker is up")));
}

void Rig::Dial(Request& request, router::Dial dial) {
  DecodeNode& node = decode[dial.worker->identity().endpoint];
  const int choice = dial.choice, attempt = dial.attempt;
  request.accepted = false;
  auto wire = std::make_shared<DecodeWire>(
      router, node,
      DecodeWire::Reader{.event =
                             [this, &request, choice, attempt](fleet::v1::DecodeEvent event) {
                               if (request.router_dead) return;
                               request.accepted |= event.has_accepted();
                               Perform(request,
                                       request.flow->OnDecodeEvent(choice, attempt, std::move(event)));
                             },
                         .done =
                             [this, &request, choice, attempt](absl::Status status) {
                               if (request.router_dead) return;
                               Perform(request, request.flow->OnDecodeEnd(choice, attempt, status));
                             }});
  request.wire = wire;
  wires_.push_back(wire);
  After(kArrives, [this, &request, &node, wire, to = End(node), asked = std::move(dial.request)] {
    to.Post([this, &request, &node, wire, asked] {
      auto sequence = decode_service::ParseRequest(asked, *node.engine, tokenizer_);
      if (!sequence.ok()) {
        wire->Finish(sequence.status());
        return;
      }
      (*sequence)->send = [wire, &request](fleet::v1::DecodeEvent event) {
        request.decode_finished |= event.has_finished();
        wire->Send(std::move(event));
      };
      (*sequence)->finish = [wire](absl::Status status) { wire->Finish(std::move(status)); };
      (*sequence)->congested = [wire, forget = without_.release] {
        return wire->waiting() > 4 || (forget && wire->server_over());
      };
      const SequenceId id(next_id_++);
      if (absl::Status admitted = node.scheduler->Submit(id, *std::move(sequence)); !admitted.ok()) {
        wire->Finish(admitted);
        return;
      }
      if (without_.release) return;
      wire->SetCancelled([&node, id] { node.scheduler->Cancel(id); });
    });
  });
}

void Rig::Perform(Request& request, router::Actions actions) {
  for (router::Action& action : actions) {
    if (std::holds_alternative<router::Submit>(action)) {
      request.wants_place = true;
      request.may_place = clock_.Now();
    } else if (auto* again = std::get_if<router::Requeue>(&action)) {
      request.wants_place = true;
      request.avoid = again->avoid;
      request.may_place = clock_.Now() + absl::Milliseconds(50);
    } else if (std::holds_alternative<router::Withdraw>(action)) {
      request.wants_place = false;
    } else if (auto* dial = std::get_if<router::Dial>(&action)) {
      Dial(request, std::move(*dial));
    } else if (std::holds_alternative<router::ReadNext>(action)) {
      request.wire->Next();
    } else if (std::holds_alternative<router::HangUp>(action)) {
      request.wire->Cancel();
    } else if (auto* write = std::get_if<router::Write>(&action)) {
      request.writing = true;
      After(turn_, [this, &request, response = std::move(write->response)] {
        if (request.router_dead || request.vanished) return;
        request.seen.Take(response);
        router.Post([this, &request] {
          request.writing = false;
          if (!request.router_dead) Perform(request, request.flow->OnWritten(true));
        });
      });
    } else if (auto* last = std::get_if<router::WriteLast>(&action)) {
      request.flow_ended = true;
      if (!request.vanished) request.seen.Take(last->response);
      ++request.seen.ends;
      request.seen.status = absl::OkStatus();
      request.seen.ended = clock_.Now();
    } else if (auto* finish = std::get_if<router::Finish>(&action)) {
      request.flow_ended = true;
      ++request.seen.ends;
      request.seen.status = finish->status;
      request.seen.ended = clock_.Now();
    }
  }
}

void Rig::Turn() {
  clock_.Advance(turn_);
  while (!later_.empty() && later_.begin()->first <= clock_.Now()) {
    const auto work = std::move(later_.begin()->second);
    later_.erase(later_.begin());
    work();
  }
  router.TakeMail();
  for (const auto& request : requests_) {
    if (request->wants_place && !request->router_dead && clock_.Now() >= request->may_place) Place(*request);
  }
  for (PrefillNode& node : prefill) {
    if (!node.up || node.stopped) continue;
    node.TakeMail();
    node.scheduler->Step();
    node.server->Step();
  }
  for (DecodeNode& node : decode) {
    if (!node.up || node.stopped) continue;
    node.TakeMail();
    if (node.slow != nullptr) node.slow->Tick();
    node.scheduler->Step();
  }
  for (size_t i = 0; i < wires_.size(); ++i) wires_[i]->Tick(clock_.Now());
  std::erase_if(wires_, [](const auto& wire) { return wire->over(); });
}

void Rig::Warm(PrefillNode& node, const std::vector<TokenId>& prompt) {
  engine::SequenceKv kv(node.engine->pool(), node.engine->RootFor(kv::TenantSalt("tenant")));
  const auto size = std::ssize(prompt);
  BATON_CHECK(kv.Reserve(prompt, size).ok());
  engine::Batch batch;
  batch.Add({.tokens = std::span(prompt).subspan(kv.computed_tokens()),
             .first_position = kv.computed_tokens(),
             .blocks = kv.blocks(),
             .logit_rows = 1});
  node.engine->Forward(batch, [](int) {});
  kv.Computed(prompt, size);
}

void Rig::Settle(absl::Duration most) {
  const absl::Time until = clock_.Now() + most;
  const auto quiet = [&] {
    return later_.empty() && wires_.empty() && router.mail.empty() &&
           std::all_of(requests_.begin(), requests_.end(),
                       [](const auto& request) { return request->seen.status.has_value(); }) &&
           Leftovers().empty();
  };
  while (clock_.Now() < until && !quiet()) Turn();
}

void Rig::Abandon(Request& request) {
  if (std::exchange(request.flow_ended, true)) return;
  const router::Actions actions = request.flow->OnCancelled();
  const bool finished = std::any_of(actions.begin(), actions.end(), [](const router::Action& action) {
    return std::holds_alternative<router::Finish>(action);
  });
  if (!finished) (void)request.flow->OnWritten(false);
}

void Rig::KillRouter(Request& request) {
  request.router_dead = true;
  Abandon(request);
  request.seen.status = absl::UnavailableError("connection reset by peer");
  request.seen.ended = clock_.Now();
  ++request.seen.ends;
  request.wants_place = false;
  router.mail.clear();
  // A new life of the process; the calls of the old one break.
  ++router.life;
}

void Rig::Cancel(Request& request) {
  router.Post([this, &request] { Perform(request, request.flow->OnCancelled()); });
}

void Rig::Vanish(Request& request) {
  request.vanished = true;
  After(kNoticed, [this, &request] {
    router.Post([this, &request] {
      Perform(request, request.flow->OnCancelled());
      if (std::exchange(request.writing, false)) Perform(request, request.flow->OnWritten(false));
    });
  });
}

void Rig::PassDeadline(Request& request) {
  for (const auto& wire : wires_) wire->PassDeadline();
  Cancel(request);
}

void Rig::HogPrefill(absl::Duration until) {
  for (PrefillNode& node : prefill) {
    node.hog = node.engine->pool().Allocate(node.engine->pool().available()).value();
    After(until, [&node, to = End(node)] {
      to.Post([&node] { node.engine->pool().Release(std::exchange(node.hog, {})); });
    });
  }
}

void Rig::FillPools(Request& request, absl::Duration until) {
  if (prefill[0].hog.empty()) HogPrefill(until);
  if (request.decode == nullptr) return;
  DecodeNode& node = *request.decode;
  if (node.engine->pool().available() == 0) return;
  node.hog = node.engine->pool().Allocate(node.engine->pool().available()).value();
  After(until, [&node, to = End(node)] {
    to.Post([&node] { node.engine->pool().Release(std::exchange(node.hog, {})); });
  });
}

std::string Rig::Leftovers() {
  std::string found;
  for (PrefillNode& node : prefill) {
    if (!node.up || node.stopped) continue;
    const auto counts = node.engine->pool().counts();
    node.engine->pool().CheckConservation();
    if (counts.held != 0) found += fmt::format("{} holds {} blocks; ", node.name, counts.held);
    if (node.scheduler->queued() + node.scheduler->computing() != 0) {
      found += fmt::format("{} has prompts; ", node.name);
    }
    if (node.server->serving() + node.fetcher->running() != 0) {
      found += fmt::format("{} has fetches; ", node.name);
    }
  }
  for (DecodeNode& node : decode) {
    if (!node.up || node.stopped) continue;
    const auto counts = node.engine->pool().counts();
    node.engine->pool().CheckConservation();
    if (counts.held != 0) found += fmt::format("{} holds {} blocks; ", node.name, counts.held);
    if (node.scheduler->sequences() != 0) found += fmt::format("{} has sequences; ", node.name);
  }
  return found;
}

}  // namespace baton::fault
