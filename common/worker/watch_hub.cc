#include "common/worker/watch_hub.h"

#include <google/protobuf/util/message_differencer.h>

#include <utility>

#include "absl/status/status.h"

namespace baton::worker {
namespace {

void Append(std::string& bytes, const std::vector<kv::BlockHash>& hashes) {
  for (const kv::BlockHash& hash : hashes) bytes += hash.bytes();
}

}  // namespace

void WatchHub::Publish(const v1::Load& load, kv::BlockPool::Changes changes,
                       absl::FunctionRef<std::vector<kv::BlockHash>()> published) {
  std::vector<absl::AnyInvocable<void()>> idle;
  {
    absl::MutexLock lock(&mutex_);
    const bool changed = changes.reset || !changes.stored.empty() || !changes.evicted.empty() ||
                         !google::protobuf::util::MessageDifferencer::Equals(load, load_);
    load_ = load;
    published_once_ = true;
    for (Watcher& watcher : watchers_) {
      if (watcher.blocks && !watcher.needs_snapshot) {
        Append(watcher.stored, changes.stored);
        Append(watcher.evicted, changes.evicted);
        if (changes.reset || watcher.stored.size() + watcher.evicted.size() > kMaxPendingBytes) {
          watcher.needs_snapshot = true;
        }
      }
      watcher.changed |= changed;
      if (watcher.needs_snapshot && !watcher.writing) {
        v1::WatchEvent event;
        event.set_sequence(++watcher.sequence);
        v1::Snapshot& snapshot = *event.mutable_snapshot();
        *snapshot.mutable_info() = info_;
        *snapshot.mutable_load() = load_;
        snapshot.set_draining(draining_);
        if (watcher.blocks) Append(*snapshot.mutable_stored(), published());
        watcher.needs_snapshot = watcher.changed = false;
        watcher.stored.clear();
        watcher.evicted.clear();
        watcher.writing = watcher.stream->Send(std::move(event));
      } else {
        Flush(watcher);
      }
    }
    idle = TakeIdleCallbacks();
  }
  for (auto& callback : idle) callback();
}

void WatchHub::Flush(Watcher& watcher) {
  if (watcher.writing || watcher.needs_snapshot || !watcher.changed) return;
  v1::WatchEvent event;
  event.set_sequence(++watcher.sequence);
  v1::WatchDelta& delta = *event.mutable_delta();
  *delta.mutable_load() = load_;
  delta.set_draining(draining_);
  delta.set_stored(std::exchange(watcher.stored, {}));
  delta.set_evicted(std::exchange(watcher.evicted, {}));
  watcher.changed = false;
  watcher.writing = watcher.stream->Send(std::move(event));
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
    Flush(watcher);
  }
}

void WatchHub::Detach(const Stream* stream) {
  std::list<Watcher> gone;  // its stream may be the last reference: let go outside the lock
  absl::MutexLock lock(&mutex_);
  for (auto it = watchers_.begin(); it != watchers_.end();) {
    const auto current = it++;
    if (current->stream.get() == stream) gone.splice(gone.end(), watchers_, current);
  }
}

void WatchHub::SetDraining(bool draining) {
  absl::MutexLock lock(&mutex_);
  draining_ = draining;
  for (Watcher& watcher : watchers_) {
    watcher.changed = true;
    Flush(watcher);
  }
}

bool WatchHub::draining() const {
  absl::MutexLock lock(&mutex_);
  return draining_;
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
  std::vector<absl::AnyInvocable<void()>> ready;
  {
    absl::MutexLock lock(&mutex_);
    idle_.push_back(std::move(idle));
    ready = TakeIdleCallbacks();
  }
  for (auto& callback : ready) callback();
}

std::vector<absl::AnyInvocable<void()>> WatchHub::TakeIdleCallbacks() {
  std::vector<absl::AnyInvocable<void()>> taken;
  if (published_once_ && load_.queued() == 0 && load_.running() == 0) taken.swap(idle_);
  return taken;
}

}  // namespace baton::worker
