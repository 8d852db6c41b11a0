// DiskCache: a worker's tiers in files put together, its own disk (--kv-disk) and what it shares with other
// workers (--kv-shared): the stores and their threads, what goes there and what is loaded. Create: before the
// engine serves. Everything else: engine thread, but for what says otherwise. It ends before the engine and
// its loop.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "baton/fleet/v1/worker.pb.h"
#include "common/base/clock.h"
#include "common/telemetry/metrics.h"
#include "engine/engine.h"
#include "engine/kv/tier/disk_store.h"
#include "engine/kv/tier/disk_tier.h"
#include "engine/kv/tier/folder.h"
#include "engine/kv/tier/record_cipher.h"
#include "engine/loop.h"
#include "protocol/forecast/step_forecast.h"
#include "transfer/fetch/disk_client.h"
#include "transfer/fetch/disk_probe.h"
#include "transfer/fetch/disk_source.h"
#include "transfer/fetch/fetcher.h"
#include "transfer/fetch/write_behind.h"
#include "transfer/link.h"

namespace baton::worker {

struct DiskOptions {
  // The worker's own folder; empty: no blocks are kept on disk.
  std::string folder;
  // Cap on all files in it.
  int64_t bytes = int64_t{16} << 30;
  // A folder that workers have together; empty: none is.
  std::string shared_folder;
  // Cap on all files in it, of all workers.
  int64_t shared_bytes = int64_t{64} << 30;
  // File with the keys that blocks are encrypted with (kv::tier::ReadDiskKeys); empty: they are in the clear.
  std::string key_file;
  // Loads and writes without asking a prediction: for tests and benchmarks.
  bool always = false;
};

class DiskCache {
 public:
  static bool Wanted(const DiskOptions& options) {
    return !options.folder.empty() || !options.shared_folder.empty();
  }
  // Files opened before the model is loaded, which may take minutes.
  struct Files {
    std::unique_ptr<kv::tier::Folder> folder, shared;  // null: none
    std::vector<kv::tier::DiskKey> keys;
  };
  static absl::StatusOr<Files> OpenFiles(const DiskOptions& options);
  // All outlive it but `files`.
  static absl::StatusOr<std::unique_ptr<DiskCache>> Create(const DiskOptions& options, Files files,
                                                           engine::Engine& engine, engine::Loop& loop,
                                                           transfer::LinkReceiver& link,
                                                           Incarnation incarnation,
                                                           const forecast::StepCost& step_cost,
                                                           const Clock& clock, telemetry::Metrics& metrics);

  // Null: there is none.
  fetch::DiskSource* disk();
  fetch::DiskSource* shared();
  // The disk's store; null: there is none.
  kv::tier::DiskStore* store() { return store_; }
  // After a step; `busy`: there is other work to do at once. Whether there is more of this.
  bool Step(bool busy) { return write_behind_->Step(busy); }
  // At the end: writes what is worth it, for so long at most.
  void Flush(absl::Duration patience) { write_behind_->Flush(patience); }
  // The rate of loading from the disk, which must exist, if it has changed by a fifth since the last one
  // returned, or this is the first call.
  std::optional<fleet::v1::DiskRate> TakeRateNews();

 private:
  struct Tier;
  // A load, to begin with: seconds, and bytes per second.
  struct LoadCost {
    double base, rate;
  };
  DiskCache() = default;

  kv::tier::DiskStore* store_ = nullptr;  // of disk_
  // Later ones use earlier ones.
  std::unique_ptr<Tier> disk_, shared_;
  std::unique_ptr<fetch::WriteBehind> write_behind_;
  std::optional<fleet::v1::DiskRate> told_;
};

// In the order of construction: what comes later uses what comes before.
struct DiskCache::Tier {
  Tier(const char* name, std::unique_ptr<kv::tier::BlockStore> store, const LoadCost& first,
       absl::Duration settle, bool always, engine::Engine& engine, engine::Loop& loop,
       transfer::LinkReceiver& link, Incarnation incarnation, const Clock& clock,
       telemetry::Metrics& metrics);

  fetch::DiskProbe probe;
  fetch::FetchProbe load_probe;
  kv::tier::DiskTier tier;
  fetch::DiskClient client;
  fetch::Fetcher fetcher;
  fetch::DiskSource source;
};

inline fetch::DiskSource* DiskCache::disk() { return disk_ == nullptr ? nullptr : &disk_->source; }
inline fetch::DiskSource* DiskCache::shared() { return shared_ == nullptr ? nullptr : &shared_->source; }

}  // namespace baton::worker
