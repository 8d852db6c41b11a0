// Disk: the disk tier of a simulated worker (engine/kv/tier): which blocks lie there and when they are read.
// A full disk drops its oldest block, after a second chance for one that was used since it was written; what
// is worth a write is decided as fetch::WriteBehind decides it. Reads go one after the other, and so do
// writes, which hold up nothing: where they can't follow, blocks are evicted unwritten.
#pragma once

#include <cstdint>
#include <deque>
#include <span>

#include "absl/container/flat_hash_map.h"
#include "engine/kv/index/block_pool.h"
#include "lab/simulate/events.h"
#include "lab/simulate/fleet_model.h"

namespace baton::lab::simulate {

class Disk {
 public:
  // Keeps blocks of `pool` from now on, `capacity` at most; 0: there is no disk. All outlive it.
  Disk(const FleetModel& model, int64_t capacity, const Events& events, kv::BlockPool& pool);
  ~Disk();
  Disk(const Disk&) = delete;

  // Writes what has become cached in the pool since the last call, as far as writes can follow.
  void WriteBehind();
  // Length of the longest run of `chain`, from its start, that is here.
  int64_t Match(std::span<const kv::BlockHash> chain) const;
  // Seconds until `blocks` blocks would have been read, if that began now.
  double ReadSeconds(int64_t blocks) const;
  // These will be read: they get their second chance before room for them is made in memory, which writes
  // what it evicts.
  void Touch(std::span<const kv::BlockHash> blocks);
  // Reads `blocks`. Returns the time at which the last one is in memory.
  double Read(std::span<const kv::BlockHash> blocks);
  // Blocks stored and evicted since the last call, for the router.
  kv::BlockPool::Changes TakeChanges();

 private:
  enum class Kept { kYes, kNotWorthIt, kNoRoom };
  Kept Keep(const kv::BlockPool::Cached& block);
  void Write(const kv::BlockHash& hash);

  const FleetModel& model_;
  const Events& events_;
  kv::BlockPool& pool_;
  const int64_t capacity_;                               // blocks
  const double block_seconds_;                           // to read or write one
  absl::flat_hash_map<kv::BlockHash, bool> used_again_;  // of what is here: since it was written
  std::deque<kv::BlockHash> order_;                      // the oldest first
  absl::flat_hash_map<kv::BlockHash, bool> changes_;     // true: stored
  double read_until_ = 0;
  double written_until_ = 0;
};

}  // namespace baton::lab::simulate
