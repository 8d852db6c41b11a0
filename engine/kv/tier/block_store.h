// BlockStore: blocks by their hashes in files, as the threads of a tier (disk_tier.h) and those who load and
// write through it know them. What is read is what was written, or a miss. One level deep: a worker's own
// disk (disk_store.h) and a folder that several workers have (shared_store.h).
//
// Append, Settle: one thread at a time. Everything else: any thread; only Append, Settle and ReadRun wait for
// files.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "engine/kv/tier/folder.h"
#include "engine/kv/tier/record.h"
#include "protocol/block_hash.h"

namespace baton::kv::tier {

class BlockStore {
 public:
  enum class Failure { kRead, kWrite, kFull, kCorrupt };
  static constexpr size_t kFailures = 4;

  struct Counts {
    int64_t blocks = 0;  // that can be found
    int64_t bytes = 0;   // of the files
    // Since the folder was opened.
    int64_t written = 0;         // records
    int64_t read = 0;            // records that were good
    int64_t second_chances = 0;  // records that were appended once more
    int64_t evicted = 0;         // records that went with their file
    std::array<int64_t, kFailures> failures{};
  };

  virtual ~BlockStore() = default;
  virtual const Identity& identity() const = 0;

  // Nobody needs to write it.
  virtual bool contains(const BlockHash& hash) const = 0;
  // Length of the longest run of `chain`, from its start, that can be read.
  virtual int64_t Match(std::span<const BlockHash> chain) const = 0;
  // The block was used, though not from here: it is worth keeping.
  virtual void Touch(const BlockHash& hash) = 0;

  // Writes the block whose bytes `slot` begins with; the rest of the slot is filled in here, and under a key
  // it is encrypted in place. Nothing happens if the hash is here already. RESOURCE_EXHAUSTED: no room.
  virtual absl::Status Append(const BlockHash& hash, const BlockHash& root, PageBuffer& slot) = 0;
  // Nothing more comes for now: what was appended and can't be found yet can be afterwards.
  virtual absl::Status Settle() { return absl::OkStatus(); }

  // Reads the leading blocks of `hashes` that lie side by side, as many as fit into `slots`, at once. Returns
  // how many, from the first on, are good: block i begins at i * slot_bytes. 0: the first is not here, or not
  // any more.
  virtual int64_t ReadRun(std::span<const BlockHash> hashes, PageBuffer& slots) = 0;

  virtual Counts counts() const = 0;
};

}  // namespace baton::kv::tier
