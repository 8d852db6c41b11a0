#include "common/worker/watch_hub.h"

#include <google/protobuf/util/message_differencer.h>

#include <utility>

#include "absl/status/status.h"

namespace baton::worker {
namespace {

void Append(std::string& bytes, const std::vector<kv::BlockHash>& hashes) {
  for (const kv::BlockHash& hash : hashes) bytes += hash.bytes();
}

bool SameBookings(const v1::Load& a, const v1::Load& b) {
  if (a.booked_size() != b.booked_size()) return false;
  for (const auto& [router, booked] : a.booked()) {
    const auto other = b.booked().find(router);
    if (other == b.booked().end() || other->second.requests() != booked.requests() ||
        other->second.tokens() != booked.tokens()) {
      return false;
    }
  }
  return true;
}

}  // namespace

void WatchHub::Publish(v1::Load load, size_t serves, kv::BlockPool::Changes changes,
                       absl::FunctionRef<std::vector<kv::BlockHash>()> published, absl::Time now) {
  std::vector<absl::AnyInvocable<void()>> idle;
  {
    absl::MutexLock lock(&mutex_);
    load.mutable_booked()->insert(booked_.begin(), booked_.end());
    const bool changed = changes.reset || !changes.stored.empty() || !changes.evicted.empty() ||
                         !google::protobuf::util::MessageDifferencer::Equals(load, load_);
    const bool urgent =
        load.queued() != load_.queued() || load.running() != load_.running() || !SameBookings(load, load_);
    load_ = std::move(load);
    published_at_ = now;
    for (Watcher& watcher : watchers_) {
      if (watcher.blocks && !watcher.needs_snapshot) {
        Append(watcher.stored, changes.stored);
        Append(watcher.evicted, changes.evicted);
        if (changes.reset || watcher.stored.size() + watcher.evicted.size() > kMaxPendingBytes) {
          watcher.needs_snapshot = true;
        }
      }
      watcher.changed |= changed;
      watcher.urgent |= urgent;
      if (watcher.needs_snapshot && !watcher.writing) {
        v1::WatchEvent event;
        event.set_sequence(++watcher.sequence);
        v1::Snapshot& snapshot = *event.mutable_snapshot();
        *snapshot.mutable_info() = info_;
        *snapshot.mutable_load() = load_;
        snapshot.set_draining(draining_ || !ready_);
        for (const v1::Role role : roles_) snapshot.add_active_roles(role);
        snapshot.mutable_peer_rates()->Assign(peer_rates_.begin(), peer_rates_.end());
        if (watcher.blocks) Append(*snapshot.mutable_stored(), published());
        watcher.needs_snapshot = watcher.changed = watcher.urgent = watcher.rates_changed = false;
        watcher.told = now;
        watcher.stored.clear();
        watcher.evicted.clear();
        watcher.writing = watcher.stream->Send(std::move(event));
      } else {
        Flush(watcher, now);
      }
    }
    if (load_.queued() == 0 && load_.running() == 0 && serves == 0) idle.swap(idle_);
  }
  for (auto& callback : idle) callback();
}

void WatchHub::Flush(Watcher& watcher, absl::Time now) {
  if (watcher.writing || watcher.needs_snapshot || !watcher.changed) return;
  if (!watcher.urgent && now - watcher.told < kPace) return;
  v1::WatchEvent event;
  event.set_sequence(++watcher.sequence);
  v1::WatchDelta& delta = *event.mutable_delta();
  *delta.mutable_load() = load_;
  delta.set_draining(draining_ || !ready_);
  delta.set_stored(std::exchange(watcher.stored, {}));
  delta.set_evicted(std::exchange(watcher.evicted, {}));
  if (watcher.rates_changed) delta.mutable_peer_rates()->Assign(peer_rates_.begin(), peer_rates_.end());
  watcher.changed = watcher.urgent = watcher.rates_changed = false;
  watcher.told = now;
  watcher.writing = watcher.stream->Send(std::move(event));
}

std::shared_ptr<const void> WatchHub::Book(const std::string& router_id, int64_t tokens) {
  absl::MutexLock lock(&mutex_);
  v1::Booked& booked = booked_[router_id];
  booked.set_requests(booked.requests() + 1);
  booked.set_tokens(booked.tokens() + tokens);
  return std::shared_ptr<const void>(this, [this, router_id, tokens](const void*) {
    absl::MutexLock lock(&mutex_);
    const auto found = booked_.find(router_id);
    found->second.set_requests(found->second.requests() - 1);
    found->second.set_tokens(found->second.tokens() - tokens);
    if (found->second.requests() == 0) booked_.erase(found);
  });
}

void WatchHub::SetRoles(std::vector<v1::Role> roles) {
  absl::MutexLock lock(&mutex_);
  roles_ = std::move(roles);
}

void WatchHub::Attach(std::shared_ptr<Stream> stream, bool blocks) {
  Stream* key = stream.get();
  {
    absl::MutexLock lock(&mutex_);
    if (!closed_) {
      Watcher watcher;
      watcher.stream = stream;
      watcher.blocks = blocks;
      watchers_.push_back(std::move(watcher));
    }
  }
  stream->Listen({.cancelled = [this, key] { Detach(key); }, .drained = [this, key] { Drained(key); }});
  absl::MutexLock lock(&mutex_);
  if (closed_) stream->Finish(absl::UnavailableError("the worker is leaving"));
}

void WatchHub::Drained(const Stream* stream) {
  absl::MutexLock lock(&mutex_);
  for (Watcher& watcher : watchers_) {
    if (watcher.stream.get() != stream) continue;
    watcher.writing = false;
    Flush(watcher, published_at_);
  }
}

void WatchHub::Detach(const Stream* stream) {
  std::list<Watcher> gone;  // its stream may be the last reference: released outside the lock
  absl::MutexLock lock(&mutex_);
  for (auto it = watchers_.begin(); it != watchers_.end();) {
    const auto current = it++;
    if (current->stream.get() == stream) gone.splice(gone.end(), watchers_, current);
  }
}

void WatchHub::TellAll() {
  for (Watcher& watcher : watchers_) {
    watcher.changed = watcher.urgent = true;
    Flush(watcher, published_at_);
  }
}

void WatchHub::SetPeerRates(std::vector<v1::PeerRate> rates) {
  absl::MutexLock lock(&mutex_);
  peer_rates_ = std::move(rates);
  for (Watcher& watcher : watchers_) watcher.changed = watcher.urgent = watcher.rates_changed = true;
}

void WatchHub::SetDraining(bool draining) {
  absl::MutexLock lock(&mutex_);
  draining_ = draining;
  TellAll();
}

void WatchHub::SetReady(bool ready) {
  absl::MutexLock lock(&mutex_);
  ready_ = ready;
  TellAll();
}

bool WatchHub::draining() const {
  absl::MutexLock lock(&mutex_);
  return draining_;
}

bool WatchHub::takes_work() const {
  absl::MutexLock lock(&mutex_);
  return ready_ && !draining_;
}

void WatchHub::Close() {
  std::list<Watcher> watchers;
  std::vector<absl::AnyInvocable<void()>> idle;
  {
    absl::MutexLock lock(&mutex_);
    closed_ = true;
    watchers.swap(watchers_);
    idle.swap(idle_);
  }
  for (Watcher& watcher : watchers) watcher.stream->Finish(absl::UnavailableError("the worker is leaving"));
  for (auto& callback : idle) callback();
}

void WatchHub::WhenIdle(absl::AnyInvocable<void()> idle) {
  {
    absl::MutexLock lock(&mutex_);
    if (!closed_) {
      idle_.push_back(std::move(idle));
      return;
    }
  }
  idle();
}

}  // namespace baton::worker
