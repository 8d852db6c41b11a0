#include "router/fleet/fleet.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "common/base/digest.h"
#include "common/base/status.h"
#include "common/rpc/status.h"
#include "protocol/fleet/fingerprint_wire.h"

namespace baton::router::fleet {
namespace {

// For a client that is refused because there is no decode worker.
constexpr absl::Duration kRetryWithoutWorkers = absl::Seconds(5);

const char* Name(Role role) { return role == Role::kDecode ? "decode" : "prefill"; }

std::optional<int64_t> LocalBound(const baton::fleet::v1::WorkerInfo& info) {
  return info.has_local_prefill_tokens() ? std::optional<int64_t>(info.local_prefill_tokens()) : std::nullopt;
}

std::optional<forecast::StepCost> MeasuredBy(const baton::fleet::v1::WorkerInfo& info) {
  if (!info.has_step_cost()) return std::nullopt;
  const baton::fleet::v1::StepCost& said = info.step_cost();
  const forecast::StepCost cost = {.base = said.base_seconds(),
                                   .sequence = said.sequence_seconds(),
                                   .context = said.context_seconds(),
                                   .token = said.token_seconds(),
                                   .pair = said.pair_seconds()};
  return forecast::Plausible(cost) ? std::optional(cost) : std::nullopt;
}

}  // namespace

Fleet::Fleet(Options options, Probe& probe, index::PrefixIndex* index)
    : options_(std::move(options)),
      probe_(probe),
      index_(index),
      listing_(options_.listing),
      view_(std::make_shared<View>()) {
  for (const Endpoint& endpoint : options_.endpoints) AddEndpoint(endpoint);
}

int Fleet::AddEndpoint(Endpoint endpoint) {
  absl::MutexLock lock(&mutex_);
  const int number = next_endpoint_++;
  endpoints_.emplace(number, EndpointState{.listed = std::move(endpoint)});
  return number;
}

void Fleet::RemoveEndpoint(int endpoint) {
  {
    absl::MutexLock lock(&mutex_);
    const auto found = endpoints_.find(endpoint);
    if (found == endpoints_.end()) return;
    EndpointState& state = found->second;
    if (state.worker != nullptr) {
      const int64_t running = state.worker->BookedRequests();
      spdlog::info("{} worker {} at {} is no longer listed{}", Name(state.listed.role),
                   state.worker->identity().id, state.listed.address,
                   running == 0 ? "" : fmt::format("; the {} requests that it runs go on", running));
    }
    LeaveIndex(state);
    ShowLeftOut(state, "");
    endpoints_.erase(found);
    CompareTemplates();
    Rebuild();
  }
  Changed();
}

void Fleet::SetListing(Listing listing) {
  {
    absl::MutexLock lock(&mutex_);
    listing_ = std::move(listing);
  }
  Changed();
}

absl::Status Fleet::OnEvent(int endpoint, const baton::fleet::v1::WatchEvent& event) {
  absl::Status status;
  BlockNews news;
  {
    absl::MutexLock lock(&mutex_);
    status = Apply(endpoint, event, &news);
  }
  if (status.ok()) Tell(news);
  if (absl::IsDataLoss(status)) probe_.WatchRestarted("gap");
  Changed();
  return status;
}

void Fleet::Tell(const BlockNews& news) const {
  if (index_ == nullptr) return;
  const auto hashes = [](std::string_view bytes) {
    std::vector<kv::BlockHash> blocks;
    blocks.reserve(bytes.size() / kv::BlockHash::kBytes);
    for (; bytes.size() >= kv::BlockHash::kBytes; bytes.remove_prefix(kv::BlockHash::kBytes)) {
      blocks.push_back(kv::BlockHash::FromBytes(bytes.substr(0, kv::BlockHash::kBytes)));
    }
    return blocks;
  };
  if (!news.evicted.empty()) index_->Evict(news.slot, hashes(news.evicted));
  if (!news.stored.empty()) index_->Store(news.slot, hashes(news.stored));
  if (!news.disk_slot.has_value()) return;
  if (!news.disk_evicted.empty()) index_->Evict(*news.disk_slot, hashes(news.disk_evicted));
  if (!news.disk_stored.empty()) index_->Store(*news.disk_slot, hashes(news.disk_stored));
}

std::optional<WorkerSlot> Fleet::JoinIndex(int endpoint) {
  return index_ == nullptr ? WorkerSlot(static_cast<uint32_t>(endpoint)) : index_->Join();
}

void Fleet::LeaveIndex(EndpointState& state) {
  if (state.worker == nullptr) return;
  if (index_ != nullptr) index_->Leave(state.worker->slot());
  if (const auto disk = state.worker->disk_slot(); disk.has_value()) index_->Leave(*disk);
  state.worker->SetDiskSlot(std::nullopt);
  state.worker->Depart();
  moves_.push_back({.slot = state.worker->slot(), .incarnation = state.worker->identity().incarnation});
}

std::vector<Fleet::Move> Fleet::TakeMoves() {
  absl::MutexLock lock(&mutex_);
  return std::exchange(moves_, {});
}

absl::Status Fleet::Apply(int endpoint, const baton::fleet::v1::WatchEvent& event, BlockNews* news) {
  const auto found = endpoints_.find(endpoint);
  if (found == endpoints_.end()) return absl::NotFoundError("the worker is no longer listed");
  EndpointState& state = found->second;
  if (event.has_snapshot()) {
    state.sequence = event.sequence();
    BATON_RETURN_IF_ERROR(TakeSnapshot(endpoint, state, event.snapshot()));
    *news = {.slot = state.worker->slot(),
             .stored = event.snapshot().stored(),
             .evicted = {},
             .disk_slot = state.worker->disk_slot(),
             .disk_stored = event.snapshot().disk_stored(),
             .disk_evicted = {}};
    return absl::OkStatus();
  }
  if (state.sequence == 0 || event.sequence() != state.sequence + 1) {
    return absl::DataLossError(fmt::format("event {} of {} follows event {}", event.sequence(),
                                           state.listed.address, state.sequence));
  }
  state.sequence = event.sequence();
  if (state.worker == nullptr) return absl::OkStatus();
  const baton::fleet::v1::WatchDelta& delta = event.delta();
  *news = {.slot = state.worker->slot(),
           .stored = delta.stored(),
           .evicted = delta.evicted(),
           .disk_slot = state.worker->disk_slot(),
           .disk_stored = delta.disk_stored(),
           .disk_evicted = delta.disk_evicted()};
  if (delta.has_disk_rate()) state.worker->ReportDisk(delta.disk_rate());
  if (delta.has_load()) state.worker->Report(delta.load(), options_.router_id);
  if (!delta.peer_rates().empty()) state.worker->ReportPeers(delta.peer_rates());
  if (delta.has_chat_templates()) TakeTemplates(state, delta.chat_templates());
  if (delta.has_draining() && delta.draining() != state.draining) {
    state.draining = delta.draining();
    Rebuild();
  }
  return absl::OkStatus();
}

std::optional<Fleet::Difference> Fleet::Compare(const Endpoint& listed,
                                                const baton::fleet::v1::WorkerInfo& info) const {
  if (options_.vocabulary != 0 && info.vocabulary_tokens() != 0 &&
      info.vocabulary_tokens() != options_.vocabulary) {
    return Difference{
        .field = "vocabulary",
        .why = fmt::format("{} serves a vocabulary of {} tokens, the router's model folder has {}: start "
                           "both with the same model",
                           listed.address, info.vocabulary_tokens(), options_.vocabulary)};
  }
  const auto differ = [](const std::string& own, const std::string& told) {
    return !own.empty() && !told.empty() && own != told;
  };
  if (differ(options_.tokenizer_digest, info.tokenizer_digest())) {
    return Difference{
        .field = "tokenizer",
        .why = fmt::format("{} worker {} has another tokenizer ({}) than the router's model folder ({}): "
                           "start both with the same model folder",
                           Name(listed.role), listed.address, ShortDigest(info.tokenizer_digest()),
                           ShortDigest(options_.tokenizer_digest))};
  }
  if (differ(options_.ends_digest, info.ends_digest())) {
    return Difference{
        .field = "ends",
        .why = fmt::format("{} worker {} ends answers at other tokens (ends {}) than the router's model "
                           "folder says (ends {}): start both with the same model folder, and compare what "
                           "'baton model inspect' says of its ends",
                           Name(listed.role), listed.address, ShortDigest(info.ends_digest()),
                           ShortDigest(options_.ends_digest))};
  }
  return std::nullopt;
}

void Fleet::TakeTemplates(EndpointState& state, const baton::fleet::v1::ChatTemplates& templates) {
  state.templates.clear();
  for (const std::string& digest : templates.digests()) {
    if (digest.size() != sizeof(Sha256Digest)) continue;
    state.templates.insert(digest);
    if (state.templates.size() == kMaxTemplates) break;
  }
  CompareTemplates();
}

void Fleet::CompareTemplates() {
  if (options_.template_digest.empty()) return;
  std::set<std::string> others;
  const EndpointState* where = nullptr;  // the oldest that tells of another one
  bool told = false;
  for (const auto& [number, state] : endpoints_) {
    for (const std::string& digest : state.templates) {
      told = true;
      if (digest == options_.template_digest) continue;
      if (where == nullptr) where = &state;
      others.insert(digest);
    }
  }
  // Workers that are all away say nothing new of the routers.
  if (!told || others == other_templates_) return;
  other_templates_ = std::move(others);
  if (other_templates_.empty()) {
    spdlog::info("all routers of its workers have this router's chat template again ({})",
                 ShortDigest(options_.template_digest));
    return;
  }
  std::vector<std::string> digests;
  for (const std::string& digest : other_templates_) digests.push_back(ShortDigest(digest));
  spdlog::warn(
      "another router of {} worker {} has another chat template ({}) than this router's model folder ({}): a "
      "conversation gets another prompt from each; start all routers with the same model folder",
      Name(where->listed.role), where->listed.address, fmt::join(digests, ", "),
      ShortDigest(options_.template_digest));
}

absl::Status Fleet::TakeSnapshot(int endpoint, EndpointState& state,
                                 const baton::fleet::v1::Snapshot& snapshot) {
  const Endpoint& listed = state.listed;
  const baton::fleet::v1::WorkerInfo& info = snapshot.info();
  state.answered = true;
  state.draining = snapshot.draining();
  state.starting = false;
  absl::Status refused;
  std::string left_out;
  const baton::fleet::v1::Role expected =
      listed.role == Role::kDecode ? baton::fleet::v1::ROLE_DECODE : baton::fleet::v1::ROLE_PREFILL;
  if (info.role() != expected) {
    refused = absl::FailedPreconditionError(
        fmt::format("{} is listed as a {} worker but says that it is not: fix the lists", listed.address,
                    Name(listed.role)));
  } else if (const auto difference = Compare(listed, info); difference.has_value()) {
    refused = absl::FailedPreconditionError(difference->why);
    left_out = difference->field;
    if (state.trouble != difference->why) {
      probe_.FingerprintDiffers(listed.address, std::string(difference->field));
    }
  }
  ShowLeftOut(state, std::move(left_out));
  LeaveIndex(state);  // whatever it held, the snapshot says what it holds
  std::optional<WorkerSlot> slot;
  if (refused.ok()) {
    slot = JoinIndex(endpoint);
    if (!slot.has_value()) {
      refused = absl::FailedPreconditionError(
          fmt::format("{} is one worker more than the {} that a router can watch", listed.address,
                      index::SlotSets::kMaxSlots));
    }
  }
  if (!refused.ok()) {
    if (state.trouble != refused.message()) spdlog::error("{}", refused.ToString());
    state.worker = nullptr;
    state.trouble = std::string(refused.message());
    state.templates.clear();  // its routers are of another model
    CompareTemplates();
    Rebuild();
    return refused;
  }
  const Incarnation incarnation(info.incarnation());
  if (state.worker == nullptr || state.worker->identity().incarnation != incarnation ||
      !protocol::DifferingField(state.worker->identity().fingerprint, info.fingerprint()).empty()) {
    state.worker = std::make_shared<Worker>(
        Worker::Identity{.endpoint = endpoint,
                         .address = listed.address,
                         .id = info.worker_id(),
                         .role = listed.role,
                         .incarnation = incarnation,
                         .fingerprint = info.fingerprint(),
                         .channel = listed.channel,
                         .peer_fetch = info.peer_fetch(),
                         .chunk_reuse = info.chunk_reuse(),
                         .chunk_tokens = info.chunk_tokens(),
                         .local_prefill_tokens = LocalBound(info),
                         .link_domain = info.link_domain(),
                         .answer_digest = protocol::AnswerDigest(info.fingerprint())},
        *slot);
    state.block_hash_domain = info.block_hash_domain();
    state.differing_field.clear();
    state.served = false;
    spdlog::info("{} worker {} at {} is up", Name(listed.role), info.worker_id(), listed.address);
  }
  state.worker->SetSlot(*slot);
  state.worker->SetHeard(true);
  if (snapshot.has_disk_rate() && index_ != nullptr) {
    // A second slot of the index: blocks on disk are within the same bound of memory, and one walk along a
    // chain tells both. Without a free one they go unseen.
    state.worker->SetDiskSlot(index_->Join());
    state.worker->ReportDisk(snapshot.disk_rate());
  }
  moves_.push_back(
      {.slot = *slot, .incarnation = incarnation, .arrived = true, .step_cost = MeasuredBy(info)});
  state.worker->Report(snapshot.load(), options_.router_id);
  state.worker->ReportPeers(snapshot.peer_rates());
  TakeTemplates(state, snapshot.chat_templates());
  Rebuild();
  return absl::OkStatus();
}

void Fleet::OnBroken(int endpoint) {
  absl::MutexLock lock(&mutex_);
  const auto found = endpoints_.find(endpoint);
  if (found == endpoints_.end() || found->second.worker == nullptr) return;
  found->second.worker->SetHeard(false);
  probe_.WatchRestarted("lost");
}

void Fleet::OnDown(int endpoint, const absl::Status& why) {
  {
    absl::MutexLock lock(&mutex_);
    const auto found = endpoints_.find(endpoint);
    if (found == endpoints_.end()) return;
    EndpointState& state = found->second;
    if (state.worker != nullptr) {
      spdlog::warn("{} worker {} at {} is down: {}", Name(state.listed.role), state.worker->identity().id,
                   state.listed.address, std::string(why.message()));
      probe_.WatchRestarted("down");
    }
    LeaveIndex(state);
    ShowLeftOut(state, "");
    state = EndpointState{.listed = std::move(state.listed)};
    state.answered = true;
    state.starting = rpc::IsStarting(why);
    state.trouble = std::string(why.message());
    CompareTemplates();
    Rebuild();
  }
  Changed();
}

void Fleet::ShowLeftOut(EndpointState& state, std::string field) {
  if (state.left_out == field) return;
  const std::string before = std::exchange(state.left_out, std::move(field));
  if (!before.empty()) probe_.LeftOut(state.listed.address, before, false);
  if (!state.left_out.empty()) probe_.LeftOut(state.listed.address, state.left_out, true);
}

const Fleet::EndpointState* Fleet::Reference() const {
  struct Group {
    const EndpointState* first_decode = nullptr;
    int number = 0;  // of its endpoint
    int size = 0;
  };
  absl::flat_hash_map<std::string, Group> groups;  // by the fingerprint's bytes
  for (const auto& [number, state] : endpoints_) {
    if (state.worker == nullptr) continue;
    Group& group = groups[state.worker->identity().fingerprint.SerializeAsString()];
    ++group.size;
    if (group.first_decode == nullptr && state.listed.role == Role::kDecode) {
      group.first_decode = &state;
      group.number = number;
    }
  }
  Group best;
  for (const auto& [bytes, group] : groups) {
    if (group.first_decode == nullptr) continue;
    const bool tie = group.size == best.size && group.number < best.number;
    if (group.size > best.size || tie) best = group;
  }
  return best.first_decode;
}

void Fleet::Rebuild() {
  const EndpointState* const reference = Reference();
  auto view = std::make_shared<View>();
  std::map<std::pair<Role, uint64_t>, const std::string*> seen;  // addresses, by incarnation
  if (reference != nullptr) {
    view->block_hash_domain = reference->block_hash_domain;
    view->answer_digest = reference->worker->identity().answer_digest;
  } else {
    view->block_hash_domain = view_->block_hash_domain;
  }
  for (auto& [number, state] : endpoints_) {
    state.usable = false;
    if (state.worker == nullptr) continue;
    const Worker::Identity& identity = state.worker->identity();
    if (reference != nullptr) {
      const Worker::Identity& model = reference->worker->identity();
      std::string field = protocol::DifferingField(identity.fingerprint, model.fingerprint);
      if (field != state.differing_field && !field.empty()) {
        spdlog::error("{} worker {} at {} is not used: its fingerprint differs from {}'s in {}",
                      Name(identity.role), identity.id, identity.address, model.address, field);
        probe_.FingerprintDiffers(identity.address, field);
      }
      state.differing_field = std::move(field);
      ShowLeftOut(state, state.differing_field);
      if (!state.differing_field.empty()) {
        state.trouble =
            fmt::format("its fingerprint differs from {}'s in {}", model.address, state.differing_field);
        continue;
      }
    }
    if (state.draining) {
      state.trouble = "draining";
      if (identity.peer_fetch) view->leaving.push_back(state.worker);
      continue;
    }
    // An incarnation of 0 is a worker that doesn't say.
    if (const auto [first, is_first] =
            seen.try_emplace({identity.role, identity.incarnation.value()}, &identity.address);
        !is_first && identity.incarnation.value() != 0) {
      state.trouble = fmt::format("it is the worker at {}", *first->second);
      continue;
    }
    state.usable = state.served = true;
    state.trouble.clear();
    view->chunk_reuse = view->chunk_reuse && identity.chunk_reuse;
    (identity.role == Role::kDecode ? view->decode : view->prefill).push_back(state.worker);
  }
  probe_.Workers(static_cast<int>(view->decode.size()), static_cast<int>(view->prefill.size()));
  view_ = std::move(view);
}

std::shared_ptr<const View> Fleet::view() const {
  absl::MutexLock lock(&mutex_);
  return view_;
}

bool Fleet::settled() const {
  absl::MutexLock lock(&mutex_);
  return listing_.complete && std::all_of(endpoints_.begin(), endpoints_.end(),
                                          [](const auto& endpoint) { return endpoint.second.answered; });
}

bool Fleet::decode_expected() const {
  absl::MutexLock lock(&mutex_);
  return std::any_of(endpoints_.begin(), endpoints_.end(), [](const auto& endpoint) {
    const EndpointState& state = endpoint.second;
    return state.listed.role == Role::kDecode && (state.starting || (state.draining && state.served));
  });
}

absl::Status Fleet::NoDecodeWorker() const {
  std::string endpoints;
  {
    absl::MutexLock lock(&mutex_);
    for (const auto& [number, state] : endpoints_) {
      if (state.listed.role != Role::kDecode || state.usable) continue;
      if (!endpoints.empty()) endpoints += "; ";
      endpoints += fmt::format("{} ({})", state.listed.address, state.trouble);
    }
    if (!listing_.trouble.empty()) {
      if (!endpoints.empty()) endpoints += "; ";
      endpoints += listing_.trouble;
    }
  }
  if (endpoints.empty()) endpoints = "none is listed";
  return absl::UnavailableError(fmt::format(
      "no decode worker is up: {}. Start one there, or give the router the right --decode addresses",
      endpoints));
}

absl::Status Fleet::TellNoDecodeWorker() {
  const absl::Status why = NoDecodeWorker();
  absl::MutexLock lock(&mutex_);
  if (told_ != why.message()) spdlog::warn("{}", std::string(why.message()));
  told_ = std::string(why.message());
  return rpc::WithRetryDelay(
      rpc::WithReason(
          absl::UnavailableError(
              "no decode worker is up: the router's log names each that it knows, and says what is wrong; "
              "retry"),
          v1::REASON_NO_WORKER),
      kRetryWithoutWorkers);
}

Booking Fleet::Book(std::shared_ptr<Worker> decode, std::shared_ptr<Worker> prefill, const Work& work,
                    absl::Time now) {
  const bool trial = decode->breaker().Pass();
  probe_.Booked(1);
  return Booking(this, std::move(decode), std::move(prefill), work, trial, now);
}

void Fleet::BookingEnded() const {
  probe_.Booked(-1);
  Changed();
}

}  // namespace baton::router::fleet
