#include "worker/watch_hub.h"

#include <google/protobuf/util/message_differencer.h>

#include <algorithm>
#include <ranges>
#include <set>
#include <span>
#include <string_view>
#include <utility>

#include "absl/status/status.h"

namespace baton::worker {
namespace {

void Append(std::string& bytes, const std::vector<kv::BlockHash>& hashes) {
  for (const kv::BlockHash& hash : hashes) bytes += hash.bytes();
}

bool SameBookings(const fleet::v1::Load& a, const fleet::v1::Load& b) {
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

void WatchHub::BlockNews::Add(const kv::BlockPool::Changes& changes) {
  for (const kv::BlockHash& hash : changes.evicted) latest_[hash] = false;
  for (const kv::BlockHash& hash : changes.stored) latest_[hash] = true;
}

void WatchHub::BlockNews::Take(std::string* stored, std::string* evicted) {
  for (const auto& [hash, came] : latest_) (came ? stored : evicted)->append(hash.bytes());
  latest_.clear();
}

void WatchHub::Publish(fleet::v1::Load load, size_t serves, kv::BlockPool::Changes changes,
                       absl::FunctionRef<std::vector<kv::BlockHash>()> published, absl::Time now,
                       const DiskNews* disk) {
  std::vector<absl::AnyInvocable<void()>> idle;
  {
    absl::MutexLock lock(&mutex_);
    load.mutable_booked()->insert(booked_.begin(), booked_.end());
    const bool changed = changes.reset || !changes.stored.empty() || !changes.evicted.empty() ||
                         (disk != nullptr && (disk->changes.reset || !disk->changes.stored.empty() ||
                                              !disk->changes.evicted.empty() || disk->rate.has_value())) ||
                         !google::protobuf::util::MessageDifferencer::Equals(load, load_);
    const bool urgent =
        load.queued() != load_.queued() || load.running() != load_.running() || !SameBookings(load, load_);
    load_ = std::move(load);
    published_at_ = now;
    if (disk != nullptr && disk->rate.has_value()) disk_rate_ = disk->rate;
    for (Watcher& watcher : watchers_) {
      if (watcher.blocks && !watcher.needs_snapshot) {
        watcher.in_memory.Add(changes);
        if (disk != nullptr) watcher.on_disk.Add(disk->changes);
        if (changes.reset || (disk != nullptr && disk->changes.reset) ||
            watcher.pending_bytes() > kMaxPendingBytes) {
          watcher.needs_snapshot = true;
        }
      }
      watcher.disk_rate_changed |= disk != nullptr && disk->rate.has_value();
      watcher.changed |= changed;
      watcher.urgent |= urgent;
      if (watcher.needs_snapshot && !watcher.writing) {
        fleet::v1::WatchEvent event;
        event.set_sequence(++watcher.sequence);
        fleet::v1::Snapshot& snapshot = *event.mutable_snapshot();
        *snapshot.mutable_info() = info_;
        *snapshot.mutable_load() = load_;
        snapshot.set_draining(draining_ || !ready_);
        for (const fleet::v1::Role role : roles_) snapshot.add_active_roles(role);
        snapshot.mutable_peer_rates()->Assign(peer_rates_.begin(), peer_rates_.end());
        if (watcher.blocks) Append(*snapshot.mutable_stored(), published());
        watcher.disk_rest.clear();
        if (watcher.blocks && disk != nullptr) {
          watcher.disk_rest = disk->stored();
          const size_t first = watcher.disk_rest.size() - std::min(kMaxDiskHashes, watcher.disk_rest.size());
          for (const kv::BlockHash& hash : std::span(watcher.disk_rest).subspan(first)) {
            snapshot.mutable_disk_stored()->append(hash.bytes());
          }
          watcher.disk_rest.resize(first);
        }
        if (disk_rate_.has_value()) *snapshot.mutable_disk_rate() = *disk_rate_;
        *snapshot.mutable_chat_templates() = templates_;
        watcher.disk_rate_changed = watcher.templates_changed = false;
        watcher.needs_snapshot = watcher.changed = watcher.urgent = watcher.rates_changed = false;
        watcher.told = now;
        watcher.in_memory.Clear();
        watcher.on_disk.Clear();
        watcher.writing = watcher.stream->Send(std::move(event));
      } else {
        FeedDisk(watcher);
        Flush(watcher, now);
      }
    }
    if (load_.queued() == 0 && load_.running() == 0 && serves == 0) idle.swap(idle_);
  }
  for (auto& callback : idle) callback();
}

void WatchHub::SetOnDisk(std::function<bool(const kv::BlockHash&)> on_disk) {
  absl::MutexLock lock(&mutex_);
  on_disk_ = std::move(on_disk);
}

void WatchHub::FeedDisk(Watcher& watcher) {
  if (watcher.disk_rest.empty() || watcher.writing || watcher.needs_snapshot || !on_disk_) return;
  const size_t first = watcher.disk_rest.size() - std::min(kMaxDiskHashes, watcher.disk_rest.size());
  for (const kv::BlockHash& hash : std::span(watcher.disk_rest).subspan(first)) {
    // Blocks that have gone meanwhile were reported as gone.
    if (on_disk_(hash)) watcher.on_disk.Stored(hash);
  }
  watcher.disk_rest.resize(first);
  watcher.changed = watcher.urgent = true;
}

void WatchHub::Flush(Watcher& watcher, absl::Time now) {
  if (watcher.writing || watcher.needs_snapshot || !watcher.changed) return;
  if (!watcher.urgent && now - watcher.told < kPace) return;
  fleet::v1::WatchEvent event;
  event.set_sequence(++watcher.sequence);
  fleet::v1::WatchDelta& delta = *event.mutable_delta();
  *delta.mutable_load() = load_;
  delta.set_draining(draining_ || !ready_);
  watcher.in_memory.Take(delta.mutable_stored(), delta.mutable_evicted());
  if (watcher.rates_changed) delta.mutable_peer_rates()->Assign(peer_rates_.begin(), peer_rates_.end());
  watcher.on_disk.Take(delta.mutable_disk_stored(), delta.mutable_disk_evicted());
  if (watcher.disk_rate_changed && disk_rate_.has_value()) *delta.mutable_disk_rate() = *disk_rate_;
  if (watcher.templates_changed) *delta.mutable_chat_templates() = templates_;
  watcher.changed = watcher.urgent = watcher.rates_changed = watcher.disk_rate_changed = false;
  watcher.templates_changed = false;
  watcher.told = now;
  watcher.writing = watcher.stream->Send(std::move(event));
}

std::shared_ptr<const void> WatchHub::Book(const std::string& router_id, int64_t tokens) {
  absl::MutexLock lock(&mutex_);
  fleet::v1::Booked& booked = booked_[router_id];
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

void WatchHub::SetRoles(std::vector<fleet::v1::Role> roles) {
  absl::MutexLock lock(&mutex_);
  roles_ = std::move(roles);
}

void WatchHub::Attach(std::shared_ptr<Stream> stream, bool blocks, std::string template_digest) {
  Stream* key = stream.get();
  {
    absl::MutexLock lock(&mutex_);
    if (!closed_) {
      Watcher watcher;
      watcher.stream = stream;
      watcher.blocks = blocks;
      if (template_digest.size() == kTemplateDigestBytes)
        watcher.template_digest = std::move(template_digest);
      watchers_.push_back(std::move(watcher));
      CompareTemplates();
    }
  }
  stream->Listen({.cancelled = [this, key] { Detach(key); }, .drained = [this, key] { Drained(key); }});
  absl::MutexLock lock(&mutex_);
  if (closed_) {
    stream->Finish(absl::UnavailableError("the worker is leaving"));
  } else {
    wake_();
  }
}

absl::Duration WatchHub::rest() const {
  absl::MutexLock lock(&mutex_);
  for (const Watcher& watcher : watchers_) {
    // One that is being written to flushes when the event is out.
    if (watcher.changed && !watcher.writing) return kPace;
  }
  return absl::InfiniteDuration();
}

void WatchHub::Drained(const Stream* stream) {
  absl::MutexLock lock(&mutex_);
  for (Watcher& watcher : watchers_) {
    if (watcher.stream.get() != stream) continue;
    watcher.writing = false;
    // Only the engine can tell all; without work it would not come by.
    if (watcher.needs_snapshot) wake_();
    FeedDisk(watcher);
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
  CompareTemplates();
}

void WatchHub::CompareTemplates() {
  std::set<std::string_view> digests;
  for (const Watcher& watcher : watchers_) {
    if (!watcher.template_digest.empty()) digests.insert(watcher.template_digest);
  }
  fleet::v1::ChatTemplates templates;
  for (const std::string_view digest : digests | std::views::take(kMaxTemplates)) {
    templates.add_digests(std::string(digest));
  }
  if (std::ranges::equal(templates.digests(), templates_.digests())) return;
  templates_ = std::move(templates);
  for (Watcher& watcher : watchers_) watcher.templates_changed = true;
  TellAll();
}

void WatchHub::TellAll() {
  for (Watcher& watcher : watchers_) {
    watcher.changed = watcher.urgent = true;
    Flush(watcher, published_at_);
  }
}

void WatchHub::SetPeerRates(std::vector<fleet::v1::PeerRate> rates) {
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
