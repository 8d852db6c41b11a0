// FaultyFolder: a folder of the disk tier whose files fail as told, in front of one that works. MemoryDisk:
// files in memory that outlive the folders over them, as a disk outlives processes, and that tests damage.
// One thread at a time may change faults; files are used by any.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "engine/kv/tier/folder.h"

namespace baton::kv::tier {

struct Faults {
  // Writes (and files made or removed) that still happen; negative: all. The one after them is torn: of it,
  // `torn_bytes` are written, and then `die` is called, and everything fails from then on.
  std::atomic<int64_t> changes_left = -1;
  std::atomic<int64_t> torn_bytes = 0;
  std::function<void()> die = [] {};
  std::atomic<bool> dead = false;

  std::atomic<bool> full = false;          // no room for files, and none for writes
  std::atomic<int> bad_reads = 0;          // so many reads fail
  std::atomic<int> bad_writes = 0;         // so many writes fail
  std::atomic<int> flipped_reads = 0;      // in so many reads a bit is wrong
  std::function<void()> on_read = [] {};   // before a read: to be slow
  std::function<void()> on_write = [] {};  // before a write
};

// `faults` outlives it.
std::unique_ptr<Folder> MakeFaultyFolder(std::unique_ptr<Folder> folder, Faults& faults);

class MemoryDisk {
 public:
  struct Bytes {
    absl::Mutex mutex;
    std::vector<std::byte> bytes;
    std::atomic<int64_t> modified = 0;  // nanoseconds of the disk's clock, which counts changes
  };
  // The disk outlives it.
  std::unique_ptr<Folder> OpenFolder();

  std::map<std::string, std::shared_ptr<Bytes>>& files() { return files_; }
  int64_t bytes() const;

 private:
  class MemoryFolder;
  std::map<std::string, std::shared_ptr<Bytes>> files_;
  std::atomic<int64_t> changes_ = 0;
};

}  // namespace baton::kv::tier
