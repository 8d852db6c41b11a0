#include "lab/simulate/prefill_worker.h"

#include <algorithm>
#include <utility>

#include "common/base/check.h"

namespace baton::lab::simulate {

PrefillWorker::PrefillWorker(const FleetModel& model, Setup setup, Events& events, Links& links,
                             kv::BlockPool& pool, Disk& disk)
    : model_(model),
      setup_(std::move(setup)),
      variation_(model, setup_.seed),
      events_(events),
      links_(links),
      pool_(pool),
      disk_(disk) {}

// Tokens of the prompt that need no computing if its first `blocks` blocks are there: the last one always
// does, for its logits.
int64_t PrefillWorker::Reused(const Job& job, int64_t blocks) const {
  return std::min(blocks * model_.block_tokens, job.record->request->prompt_tokens - 1);
}

forecast::VirtualDeadline PrefillWorker::Due(const Job& job) const {
  if (setup_.discipline == Discipline::kFirstCome) return {};  // equals go by arrival
  const int64_t reused = Reused(job, job.matched);
  return forecast::DeadlineOf(absl::UnixEpoch() + absl::Seconds(job.record->placed),
                              forecast_.Seconds(job.record->request->prompt_tokens - reused, reused),
                              setup_.targets);
}

void PrefillWorker::Submit(RequestRecord& record, std::optional<Peer> source) {
  Job& job = jobs_[record.id];
  job.record = &record;
  job.matched = record.known_blocks >= 0 ? record.known_blocks : pool_.MatchPrefix(record.request->chain);
  if (source.has_value() && record.selection.fetch_blocks > job.matched) Fetch(job, *source);
  if (!job.fetching) Load(job);
  queue_.Add(record.id, Due(job));
  TryBegin();
}

void PrefillWorker::Fetch(Job& job, const Peer& source) {
  const auto& chain = job.record->request->chain;
  const auto wanted = std::span(chain).first(
      std::min<size_t>(chain.size(), static_cast<size_t>(job.record->selection.fetch_blocks)));
  std::vector<BlockId> theirs = source.pool->AcquirePrefix(wanted);
  if (std::ssize(theirs) <= job.matched) {
    source.pool->Release(theirs);
    return;
  }
  if (!MakeRoom(job, std::ssize(theirs))) {
    source.pool->Release(theirs);
    return;
  }
  const double arrives =
      links_.Send(events_.now(), source.port, setup_.number, job.fetched_blocks * model_.block_bytes());
  events_.At(arrives, [this, id = job.record->id, theirs = std::move(theirs), from = source.pool] {
    from->Release(theirs);
    Arrived(id);
  });
}

// Reads the blocks that only its disk has, if that is quicker than computing them.
void PrefillWorker::Load(Job& job) {
  const RequestRecord& record = *job.record;
  if (record.known_blocks >= 0) return;
  const auto& chain = record.request->chain;
  const int64_t there = disk_.Match(chain);
  if (there <= job.matched) return;
  const int64_t prompt = record.request->prompt_tokens;
  const int64_t with = Reused(job, there), without = Reused(job, job.matched);
  const double spared =
      model_.PrefillSeconds(prompt - without, without) - model_.PrefillSeconds(prompt - with, with);
  const int64_t here = job.matched;
  if (disk_.ReadSeconds(there - here) >= spared * model_.Slowness(setup_.number)) return;
  const auto blocks = std::span(chain).first(there).subspan(here);
  disk_.Touch(blocks);
  if (!MakeRoom(job, there)) return;
  job.from_disk = true;
  events_.At(disk_.Read(blocks), [this, id = record.id] { Arrived(id); });
}

bool PrefillWorker::MakeRoom(Job& job, int64_t blocks) {
  job.fetched = pool_.AcquirePrefix(std::span(job.record->request->chain).first(job.matched));
  auto room = pool_.Allocate(blocks - job.matched);
  if (!room.ok()) {
    pool_.Release(job.fetched);
    job.fetched.clear();
    return false;
  }
  job.fetched.insert(job.fetched.end(), room->begin(), room->end());
  job.fetched_blocks = blocks - job.matched;
  job.matched = blocks;
  job.fetching = true;
  return true;
}

void PrefillWorker::Arrived(uint64_t id) {
  Job& ready = jobs_.at(id);
  ready.fetching = false;
  for (size_t i = 0; i < ready.fetched.size(); ++i) {
    pool_.Publish(ready.fetched[i], ready.record->request->chain[i]);
  }
  TryBegin();
}

void PrefillWorker::TryBegin() {
  if (busy_) return;
  queue_.Advance(absl::UnixEpoch() + absl::Seconds(events_.now()));
  for (auto id = queue_.First(); id.has_value(); id = queue_.After(*id)) {
    Job& job = jobs_.at(*id);
    if (job.fetching) continue;
    if (!Begin(job)) return;  // the first whose blocks can't be had holds back those behind it
    queue_.Remove(*id);
    jobs_.erase(*id);
    return;
  }
}

bool PrefillWorker::Begin(Job& job) {
  RequestRecord& record = *job.record;
  const auto& chain = record.request->chain;
  std::vector<BlockId> blocks = pool_.AcquirePrefix(chain);
  // Fetched blocks are held already; the cached prefix may have grown meanwhile.
  int64_t fetched = 0;
  if (std::ssize(job.fetched) > std::ssize(blocks)) {
    pool_.Release(blocks);
    blocks = std::move(job.fetched);
    fetched = job.fetched_blocks;
  } else {
    fetched = std::min(job.fetched_blocks, std::ssize(blocks));
    pool_.Release(job.fetched);
  }
  job.fetched.clear();
  const int64_t reused = record.known_blocks >= 0 ? record.known_blocks : std::ssize(blocks);
  const int64_t needed = (record.request->prompt_tokens + model_.block_tokens - 1) / model_.block_tokens;
  auto rest = pool_.Allocate(needed - std::ssize(blocks));
  if (!rest.ok()) {
    // Only prompts that wait for their turn with fetched blocks can stand in the way: what they hold is
    // published, so it stays cached for as long as there is room.
    for (auto& [id, other] : jobs_) {
      if (other.fetching) continue;
      pool_.Release(other.fetched);
      other.fetched.clear();
    }
    rest = pool_.Allocate(needed - std::ssize(blocks));
  }
  if (!rest.ok()) {
    pool_.Release(blocks);
    return false;
  }
  blocks.insert(blocks.end(), rest->begin(), rest->end());
  record.cached_tokens = Reused(job, reused);
  (job.from_disk ? record.loaded_tokens : record.fetched_tokens) =
      std::min(record.cached_tokens, fetched * model_.block_tokens);
  const int64_t uncached = record.request->prompt_tokens - record.cached_tokens;
  const double seconds = model_.PrefillSeconds(uncached, record.cached_tokens) *
                         model_.Slowness(setup_.number) * variation_.Factor();
  busy_ = true;
  busy_seconds_ += seconds;
  ++served_;
  record.began = events_.now();
  setup_.began(record);
  events_.In(seconds, [this, &record, seconds, uncached, blocks = std::move(blocks)]() mutable {
    forecast_.Observe(uncached, record.cached_tokens, seconds);
    Finish(record, std::move(blocks));
  });
  return true;
}

void PrefillWorker::Finish(RequestRecord& record, std::vector<BlockId> blocks) {
  const auto& chain = record.request->chain;
  for (size_t i = 0; i < chain.size(); ++i) pool_.Publish(blocks[i], chain[i]);
  pool_.Release(blocks);
  busy_ = false;
  record.computed = events_.now();
  Reconsider();
  setup_.done(record);
  TryBegin();
}

// More of a waiting prompt's prefix may be cached now: then it takes less, and is due earlier.
void PrefillWorker::Reconsider() {
  if (setup_.discipline == Discipline::kFirstCome) return;
  for (auto& [id, job] : jobs_) {
    const auto& chain = job.record->request->chain;
    if (job.fetching || job.record->known_blocks >= 0 || job.matched >= std::ssize(chain)) continue;
    const auto next = std::span(chain).subspan(job.matched, 1);
    if (pool_.MatchPrefix(next) == 0) continue;
    job.matched = std::max(job.matched, pool_.MatchPrefix(chain));
    queue_.Move(id, Due(job));
  }
}

}  // namespace baton::lab::simulate
