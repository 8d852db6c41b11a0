// WatchHub: what a worker tells its watchers (Worker/Watch): a snapshot, then deltas with consecutive
// sequence numbers. A watcher that reads slowly gets fewer, merged deltas, never a growing queue. Requests
// that come and go are told at once; what changes with every step (blocks, tokens left to compute) at most
// every kPace while there are steps. Any thread; the engine thread publishes.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/functional/any_invocable.h"
#include "absl/functional/function_ref.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "baton/fleet/v1/worker.grpc.pb.h"
#include "common/rpc/server_stream.h"
#include "engine/kv/index/block_pool.h"

namespace baton::worker {

class WatchHub {
 public:
  using Stream = rpc::ServerStream<fleet::v1::WatchEvent>;

  // `wake` makes the engine publish soon, also when it has no work. Any thread, with the hub's lock held.
  WatchHub(fleet::v1::WorkerInfo info, std::function<void()> wake)
      : info_(std::move(info)), wake_(std::move(wake)) {}

  const fleet::v1::WorkerInfo& info() const { return info_; }
  // Says it besides (WorkerInfo.tokenizer_digest). Before the first watcher.
  void SetTokenizerDigest(std::string digest) { info_.set_tokenizer_digest(std::move(digest)); }

  static constexpr absl::Duration kPace = absl::Milliseconds(20);

  // Changes on the worker's disk, if it has one.
  struct DiskNews {
    kv::BlockPool::Changes changes;
    absl::FunctionRef<std::vector<kv::BlockHash>()> stored;  // for snapshots
    std::optional<fleet::v1::DiskRate> rate;                 // absent: as before
  };

  // Sets the test for blocks on the disk, for those that a snapshot has no room for. Any thread; before
  // Publish tells of a disk.
  void SetOnDisk(std::function<bool(const kv::BlockHash&)> on_disk);

  // Engine thread, after a step. `published` is asked for all published hashes when somebody needs a
  // snapshot. What is booked is added to the load here. `serves`: fetches of peers that run; they are no load
  // of its own, but a worker that serves them is not idle.
  void Publish(fleet::v1::Load load, size_t serves, kv::BlockPool::Changes changes,
               absl::FunctionRef<std::vector<kv::BlockHash>()> published, absl::Time now,
               const DiskNews* disk = nullptr);

  // A router's request is on this worker until the last copy of what this returns is gone. Counts at the next
  // Publish. The hub outlives it.
  std::shared_ptr<const void> Book(const std::string& router_id, int64_t tokens);

  // How long the engine may rest at most: until what was held back for kPace has to be told.
  absl::Duration rest() const;

  // A watcher; the engine is woken to publish its snapshot. `template_digest`: WatchRequest's, which all
  // watchers hear of while this one is there. One that is not of kTemplateDigestBytes is left out.
  void Attach(std::shared_ptr<Stream> stream, bool blocks, std::string template_digest = {});
  static constexpr size_t kTemplateDigestBytes = 32;
  // Different ones are told up to this number: two are enough for each router to see that they differ.
  static constexpr size_t kMaxTemplates = 4;

  // The roles that the worker has now, for snapshots.
  void SetRoles(std::vector<fleet::v1::Role> roles);
  // Rates of hand-offs, by prefill worker: all of them. Told at the next Publish.
  void SetPeerRates(std::vector<fleet::v1::PeerRate> rates);
  void SetDraining(bool draining);
  // A worker that is not ready yet (its link has not passed its test) tells its watchers that it drains: it
  // takes no work.
  void SetReady(bool ready);
  bool draining() const;
  // Neither draining nor short of being ready.
  bool takes_work() const;
  // Ends all watches: the process leaves.
  void Close();
  // Runs `idle` at the next Publish that knows of no work that is left: neither its own nor fetches of peers.
  // Not at once: what the last Publish told may have been overtaken since. The caller sees to a next step.
  // Close runs what still waits, and nothing waits after it.
  void WhenIdle(absl::AnyInvocable<void()> idle);

 private:
  // Blocks added and removed since the last event: of each the latest change, as an event has no order.
  class BlockNews {
   public:
    void Add(const kv::BlockPool::Changes& changes);
    void Stored(const kv::BlockHash& hash) { latest_[hash] = true; }
    // Writes the hashes into the fields of an event, and forgets them.
    void Take(std::string* stored, std::string* evicted);
    void Clear() { latest_.clear(); }
    size_t bytes() const { return latest_.size() * kv::BlockHash::kBytes; }

   private:
    absl::flat_hash_map<kv::BlockHash, bool> latest_;  // true: it has come
  };
  struct Watcher {
    std::shared_ptr<Stream> stream;
    bool blocks = false;
    std::string template_digest = {};  // empty: it does not say
    bool needs_snapshot = true;
    bool writing = false;
    uint64_t sequence = 0;
    // News since the last event; sent when the last one is out, and its time has come.
    bool changed = false;
    bool urgent = false;
    bool rates_changed = false;
    bool disk_rate_changed = false;
    bool templates_changed = false;
    absl::Time told = absl::InfinitePast();
    BlockNews in_memory;
    BlockNews on_disk;
    // Blocks on disk that the snapshot had no room for: they follow, as fast as the watcher reads.
    std::vector<kv::BlockHash> disk_rest;
    size_t pending_bytes() const { return in_memory.bytes() + on_disk.bytes(); }
  };
  // More than this many bytes of pending hashes are dropped in favour of a new snapshot.
  static constexpr size_t kMaxPendingBytes = 1 << 20;
  // Bound on hashes of the disk in one event.
  static constexpr size_t kMaxDiskHashes = 1 << 15;

  // The next of disk_rest, if the last event is out.
  void FeedDisk(Watcher& watcher) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Flush(Watcher& watcher, absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Drained(const Stream* stream);
  void Detach(const Stream* stream);
  void TellAll() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // After a watcher has come or gone: looks which templates there are, and tells them if they are others.
  void CompareTemplates() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  fleet::v1::WorkerInfo info_;  // constant once it is watched
  const std::function<void()> wake_;
  mutable absl::Mutex mutex_;
  fleet::v1::Load load_ ABSL_GUARDED_BY(mutex_);
  absl::Time published_at_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
  std::map<std::string, fleet::v1::Booked> booked_ ABSL_GUARDED_BY(mutex_);
  std::vector<fleet::v1::Role> roles_ ABSL_GUARDED_BY(mutex_);
  std::vector<fleet::v1::PeerRate> peer_rates_ ABSL_GUARDED_BY(mutex_);
  std::optional<fleet::v1::DiskRate> disk_rate_ ABSL_GUARDED_BY(mutex_);
  fleet::v1::ChatTemplates templates_ ABSL_GUARDED_BY(mutex_);
  std::function<bool(const kv::BlockHash&)> on_disk_ ABSL_GUARDED_BY(mutex_);
  bool draining_ ABSL_GUARDED_BY(mutex_) = false;
  bool ready_ ABSL_GUARDED_BY(mutex_) = true;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  std::list<Watcher> watchers_ ABSL_GUARDED_BY(mutex_);
  std::vector<absl::AnyInvocable<void()>> idle_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace baton::worker
