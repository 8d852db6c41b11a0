// SharedStore: blocks by their hashes in a folder that several workers have, on one machine or on many (a
// mounted volume, NFS). A worker publishes runs of blocks, each a file that is never changed: written under
// another name, synced, renamed. A run lies as a segment of the disk tier does (record.h): its header tells
// whose it is, and its last seal which blocks it holds, so that one page of each file is the manifest of all
// its blocks. What others have published is learnt by listing the folder now and then and reading the
// manifests of new files: to look for a prompt's blocks touches no file.
//
// All workers together keep to a cap of bytes: whoever finds more removes what was used longest ago, as the
// files' times tell. Nobody holds a lock: a file that vanishes is a miss, and what two write twice is
// harmless. Files of other models, layouts, versions and keys are never read, and count and go as all do.
//
// Append and Settle: one thread at a time. Everything else: any thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "engine/kv/tier/block_store.h"
#include "engine/kv/tier/folder.h"
#include "engine/kv/tier/record_codec.h"

namespace baton::kv::tier {

struct SharedOptions {
  // Cap on all files of all workers together. Several workers that publish at once may exceed it by a run
  // each, until one of them looks again.
  int64_t bytes = 0;
  Identity identity;
  // As of a DiskStore: every worker of the folder has the same.
  std::vector<DiskKey> keys = {};
  // Blocks of one file.
  int64_t run_bytes = int64_t{16} << 20;
  // How often a thread looks what others have done; zero: none does, and Refresh is called.
  absl::Duration refresh = absl::ZeroDuration();
  // A file that is used is touched at most so often.
  absl::Duration touch = absl::Minutes(1);
  // A file that is begun and not changed for so long has lost its writer.
  absl::Duration abandoned = absl::Minutes(10);
};

class SharedStore final : public BlockStore {
 public:
  // RESOURCE_EXHAUSTED: the cap holds fewer than kFewest blocks. `clock` outlives it.
  static absl::StatusOr<std::unique_ptr<SharedStore>> Open(std::unique_ptr<Folder> folder,
                                                           const SharedOptions& options, const Clock& clock);
  static constexpr int64_t kFewest = 4;
  // Most blocks in the index; more count against the cap and are not found.
  static constexpr int64_t kMostBlocks = int64_t{1} << 22;
  // A published file is kv-<digest of the identity>-<number>; while it is written, its name begins with
  // another word. Both numbers have so many digits.
  static constexpr std::string_view kPublished = "kv-", kUnfinished = "new-";
  static constexpr size_t kDigits = 16;
  // Publishes nothing more.
  ~SharedStore() override;

  const Identity& identity() const override { return codec_.identity(); }

  // Published, or about to be.
  bool contains(const BlockHash& hash) const override;
  // 0 while the folder does not answer.
  int64_t Match(std::span<const BlockHash> chain) const override;
  void Touch(const BlockHash& hash) override;

  // Publishes when the run is full, and with another root: a file is one tenant's.
  absl::Status Append(const BlockHash& hash, const BlockHash& root, PageBuffer& slot) override;
  absl::Status Settle() override;
  int64_t ReadRun(std::span<const BlockHash> hashes, PageBuffer& slots) override;

  // Learns what others have published and removed, touches what was used, and removes what is too much. What
  // is not read after `most` is left to the next one.
  absl::Status Refresh(absl::Duration most = absl::InfiniteDuration());

  Counts counts() const override;
  // CHECK-fails if index, files and counts disagree.
  void CheckTables() const;

 private:
  struct FileEntry {
    int64_t bytes = 0;
    absl::Time modified;                        // as far as is known: others may have touched it since
    const RecordCipher* cipher = nullptr;       // null: in the clear
    std::vector<BlockHash> hashes = {};         // by slot; zero: not to be found here
    bool used = false;                          // since it was touched
    absl::Time touched = absl::InfinitePast();  // from here
  };
  struct Place {
    const std::string* file;  // key of files_
    uint32_t slot;
  };

  SharedStore(std::unique_ptr<Folder> folder, const SharedOptions& options, const Clock& clock);
  // Number of the file of a run that begins with this block: a run that several workers publish at once is
  // one file.
  uint64_t NumberOf(const BlockHash& first) const;
  std::string NameOf(uint64_t number) const;
  // The content of the file of this name; nothing if it is gone or can't be read now.
  std::optional<FileEntry> ReadManifest(const std::string& name);
  absl::Status Publish();
  // shared_store_sweep.cc
  absl::Status Sweep(absl::Duration most) ABSL_EXCLUSIVE_LOCKS_REQUIRED(sweeping_);
  void Add(const std::string& name, FileEntry entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // It is gone.
  void Forget(const std::string& name) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Removes those that have lost their writer.
  void LookAtUnfinished(const std::vector<std::string>& names) ABSL_EXCLUSIVE_LOCKS_REQUIRED(sweeping_);
  void TouchUsed() ABSL_EXCLUSIVE_LOCKS_REQUIRED(sweeping_);
  // Removes what was used longest ago until `more` bytes fit.
  void MakeRoom(int64_t more) ABSL_EXCLUSIVE_LOCKS_REQUIRED(sweeping_);
  // The record is no good.
  void Drop(const BlockHash& hash, const std::string& name);
  // Its bytes are no good: it goes for everyone, and may be published anew.
  void RemoveDamaged(const std::string& name, const absl::Status& status);
  // Counts it, and says it the first time. A folder that does not answer is silent until Refresh finds that
  // it does.
  void Note(const absl::Status& status, Failure failure);
  void RefreshForever();

  const std::unique_ptr<Folder> folder_;
  const SharedOptions options_;
  const RecordCodec codec_;
  const int64_t slot_bytes_, run_slots_;
  const Clock& clock_;

  // Used by the appending thread alone: the run in assembly, after its header.
  std::unique_ptr<PageBuffer> run_;
  std::vector<BlockHash> run_hashes_;
  BlockHash run_root_;
  uint64_t run_number_ = 0;

  // Held while files are listed or removed, before mutex_.
  absl::Mutex sweeping_;
  struct Unfinished {
    absl::Time modified;
    absl::Time seen;  // first, by clock_
  };
  std::map<std::string, Unfinished> unfinished_ ABSL_GUARDED_BY(sweeping_);

  mutable absl::Mutex mutex_;
  std::map<std::string, FileEntry> files_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<BlockHash, Place> places_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_set<BlockHash> building_ ABSL_GUARDED_BY(mutex_);  // of the run
  int64_t unfinished_bytes_ ABSL_GUARDED_BY(mutex_) = 0;             // of files that are written by others
  Counts counts_ ABSL_GUARDED_BY(mutex_);
  bool silent_ ABSL_GUARDED_BY(mutex_) = false;  // the folder does not answer
  bool damage_said_ ABSL_GUARDED_BY(mutex_) = false;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;

  std::thread refresher_;
};

}  // namespace baton::kv::tier
