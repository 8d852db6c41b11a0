// DiskStore: blocks by their hashes in the files of one folder, within a hard cap of bytes. Records are
// appended to segments; a full folder drops its oldest segment whole, and what of it was used since it was
// written is appended once more (FIFO with a second chance). The index is in memory and rebuilt from the
// seals when the folder is opened, each of which tells of those before it; records of another model, layout
// or version are dropped then. A record can be found when it is written whole, and what is read is what was
// written, or a miss: whatever a seal or a checksum denies is dropped. Nothing is ever synced: what a power
// cut tears, the checksums find.
//
// Append: one thread at a time. Everything else: any thread; only Append and ReadRun wait for the disk, and
// neither holds the lock meanwhile.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "engine/kv/index/block_pool.h"
#include "engine/kv/tier/block_store.h"
#include "engine/kv/tier/folder.h"
#include "engine/kv/tier/record_codec.h"
#include "protocol/block_hash.h"

namespace baton::kv::tier {

struct StoreOptions {
  // Cap on all files together.
  int64_t bytes = 0;
  Identity identity;
  // The first one encrypts, the others only open what is there; none: records are in the clear.
  std::vector<DiskKey> keys;
};

class DiskStore final : public BlockStore {
 public:
  // Content of the folder when it was opened.
  struct Found {
    int64_t blocks = 0;
    int64_t foreign_segments = 0;  // of another model, layout or version, or no segments at all: removed
    // Encrypted with a missing key, or in the clear where there is one: removed.
    int64_t other_key_segments = 0;
    int64_t unsealed_slots = 0;  // torn or damaged
  };

  // RESOURCE_EXHAUSTED: the cap holds fewer than kFewest blocks.
  static absl::StatusOr<std::unique_ptr<DiskStore>> Open(std::unique_ptr<Folder> folder,
                                                         const StoreOptions& options);
  static constexpr int64_t kFewest = 4;
  static constexpr int64_t kMostSegmentBytes = int64_t{256} << 20;

  const Identity& identity() const override { return identity_; }
  const Found& found() const { return found_; }

  bool contains(const BlockHash& hash) const override;
  int64_t Match(std::span<const BlockHash> chain) const override;
  void Touch(const BlockHash& hash) override;
  // RESOURCE_EXHAUSTED: the disk is full, even after the oldest segment went.
  absl::Status Append(const BlockHash& hash, const BlockHash& root, PageBuffer& slot) override;
  int64_t ReadRun(std::span<const BlockHash> hashes, PageBuffer& slots) override;

  // Blocks added and removed since the last TakeChanges: of each block the latest change. One that came and
  // went is reported as gone, as contains() or Stored() may have told of it in between.
  BlockPool::Changes TakeChanges();
  std::vector<BlockHash> Stored() const;
  Counts counts() const override;

  // CHECK-fails if index, segments and counts disagree. O(blocks).
  void CheckTables() const;

 private:
  struct Segment {
    std::string name;
    std::shared_ptr<File> file;
    const RecordCipher* cipher = nullptr;  // null: in the clear
    int64_t slots = 0;
    int64_t used = 0;               // slots that are written or torn
    std::vector<BlockHash> hashes;  // by slot; zero: none
  };
  struct Place {
    uint64_t segment = 0;
    uint32_t slot = 0;
    bool used_again = false;
    uint64_t sequence = 0;
  };

  DiskStore(std::unique_ptr<Folder> folder, const StoreOptions& options);
  // The file of a segment.
  static std::string NameOf(uint64_t number);
  // disk_store_scan.cc
  absl::Status Scan();
  void ScanSegment(uint64_t number, Segment& segment) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // A segment with a free slot.
  absl::Status EnsureActive();
  absl::Status CreateActive();
  absl::Status WriteSlot(const BlockHash& hash, const BlockHash& root, PageBuffer& slot, bool used_again);
  // Appends what of the oldest segment was used again, half a segment at most, and drops it.
  void RecycleOldest();
  void DropOldest() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The record is no good.
  void Drop(const BlockHash& hash, const Place& place, Failure failure);
  void NoteChange(const BlockHash& hash, bool stored) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Count(Failure failure) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    ++counts_.failures[static_cast<size_t>(failure)];
  }
  int64_t OffsetOf(int64_t slot) const { return kPage + slot * slot_bytes_; }

  const std::unique_ptr<Folder> folder_;
  const Identity identity_;
  const RecordCodec codec_;
  const int64_t most_bytes_, slot_bytes_, segment_slots_;
  Found found_;  // constant once open

  // Used by the appending thread alone.
  uint64_t active_ = 0;  // 0: none
  uint64_t next_segment_ = 1;
  uint64_t next_sequence_ = 1;
  int failed_writes_ = 0;  // in a row

  mutable absl::Mutex mutex_;
  std::map<uint64_t, Segment> segments_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<BlockHash, Place> places_ ABSL_GUARDED_BY(mutex_);
  Counts counts_ ABSL_GUARDED_BY(mutex_);
  // True for stored, false for evicted.
  absl::flat_hash_map<BlockHash, bool> changes_ ABSL_GUARDED_BY(mutex_);
  bool changes_lost_ ABSL_GUARDED_BY(mutex_) = false;
  bool damage_said_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace baton::kv::tier
