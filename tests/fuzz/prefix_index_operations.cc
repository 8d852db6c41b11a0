#include "tests/fuzz/prefix_index_operations.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "router/index/prefix_index.h"

namespace baton::router::index {
namespace {

// Chains come from a binary tree of prefixes, numbered like a heap: node n continues node n / 2.
constexpr int kNodes = 256;

// Few segments and few homes, so that entries collide, shift and share an order; one segment has entries at
// the very end of its table.
kv::BlockHash HashOf(int node) {
  uint64_t words[2];
  words[0] = static_cast<uint64_t>(node % 3) | (uint64_t{0xFFFFFFF0u + node % 5} << 32);
  if (node % 2 == 0) words[0] = static_cast<uint64_t>(node % 3) | (uint64_t{node * 2654435761u} << 32);
  words[1] = static_cast<uint64_t>(node);
  return kv::BlockHash::FromBytes({reinterpret_cast<const char*>(words), sizeof(words)});
}

std::vector<int> PathTo(int node) {
  std::vector<int> path;
  for (; node > 0; node /= 2) path.push_back(node);
  std::reverse(path.begin(), path.end());
  return path;
}

std::vector<kv::BlockHash> HashesOf(const std::vector<int>& path) {
  std::vector<kv::BlockHash> chain;
  for (const int node : path) chain.push_back(HashOf(node));
  return chain;
}

absl::Status Differ(std::string what) { return absl::InternalError(std::move(what)); }

class Interpreter {
 public:
  explicit Interpreter(std::span<const uint8_t> bytes) : bytes_(bytes), index_({}) {}

  absl::StatusOr<int64_t> Run() {
    int64_t done = 0;
    for (; !bytes_.empty(); ++done) {
      const int operation = Next() % kOperations;
      absl::Status status = Do(operation);
      if (status.ok() && done % 16 == 0) status = Compare();
      if (!status.ok()) {
        return Differ(
            fmt::format("operation {} (number {}): {}", operation, done, std::string(status.message())));
      }
    }
    BATON_RETURN_IF_ERROR(Compare());
    return done;
  }

 private:
  enum Operation {
    kJoin,
    kJoinMany,
    kLeave,
    kStore,
    kStoreMany,
    kEvict,
    kEvictMany,
    kSpeculate,
    kMaintain,
    kMatch,
    kMatchAgain,
    kOperations
  };
  // The blocks of a worker: confirmed, or until when each is a speculative entry.
  using Held = std::map<int, std::optional<int>>;

  int Next() {
    if (bytes_.empty()) return 0;
    const int byte = bytes_.front();
    bytes_ = bytes_.subspan(1);
    return byte;
  }
  int NextNode() { return 1 + Next() % (kNodes - 1); }

  absl::Status Do(int operation) {
    switch (operation) {
      case kJoin:
        return Join();
      case kJoinMany: {
        // Enough in all for every kind of set.
        const int count = workers_.size() < 3000 ? Next() * 2 : 1;
        for (int i = 0; i < count; ++i) BATON_RETURN_IF_ERROR(Join());
        return absl::OkStatus();
      }
      case kLeave: {
        // Most of the time one, now and then many.
        const int count = Next() % 16 == 0 ? 400 : 1;
        const int first = Next();
        for (int i = 0; i < count && !workers_.empty(); ++i) {
          const auto gone = std::next(workers_.begin(), first % workers_.size());
          index_.Leave(WorkerSlot(gone->first));
          index_.Store(WorkerSlot(gone->first), HashesOf(PathTo(1)));  // void: does nothing
          workers_.erase(gone);
        }
        return absl::OkStatus();
      }
      case kStore:
        Each(1, [this](uint32_t slot, Held& held, const std::vector<int>& path) { Store(slot, held, path); });
        return absl::OkStatus();
      case kStoreMany:
        Each(workers_.size(),
             [this](uint32_t slot, Held& held, const std::vector<int>& path) { Store(slot, held, path); });
        return absl::OkStatus();
      case kEvict:
        Each(1, [this](uint32_t slot, Held& held, const std::vector<int>& path) { Evict(slot, held, path); });
        return absl::OkStatus();
      case kEvictMany:
        Each(1 + Next() * 16,
             [this](uint32_t slot, Held& held, const std::vector<int>& path) { Evict(slot, held, path); });
        return absl::OkStatus();
      case kSpeculate: {
        const int until = now_ + Next() % 16;
        Each(1, [&](uint32_t slot, Held& held, const std::vector<int>& path) {
          index_.Speculate(WorkerSlot(slot), HashesOf(path), absl::FromUnixSeconds(until));
          for (const int node : path) {
            const auto [place, fresh] = held.try_emplace(node, until);
            if (!fresh && place->second.has_value()) place->second = std::max(*place->second, until);
          }
        });
        return absl::OkStatus();
      }
      case kMaintain:
        now_ += Next() % 8;
        while (index_.Maintain(absl::FromUnixSeconds(now_))) {
        }
        for (auto& [slot, held] : workers_) {
          std::erase_if(held,
                        [this](const auto& one) { return one.second.has_value() && *one.second <= now_; });
        }
        return absl::OkStatus();
      default:
        return Match(PathTo(NextNode()));
    }
  }

  absl::Status Join() {
    const auto slot = index_.Join();
    if (!slot.has_value()) return Differ("no slot");
    if (!workers_.try_emplace(slot->value()).second) return Differ("a slot was given out twice");
    return absl::OkStatus();
  }

  // For some workers in a row.
  template <typename Work>
  void Each(size_t count, Work work) {
    const int start = Next() * 256 + Next();
    std::vector<int> path = PathTo(NextNode());
    // Sometimes the tail alone, as evictions are.
    if (Next() % 2 == 0) path.erase(path.begin(), path.begin() + path.size() / 2);
    if (workers_.empty()) return;
    auto worker = std::next(workers_.begin(), start % workers_.size());
    for (size_t i = 0; i < std::min(count, workers_.size()); ++i) {
      work(worker->first, worker->second, path);
      if (++worker == workers_.end()) worker = workers_.begin();
    }
  }

  void Store(uint32_t slot, Held& held, const std::vector<int>& path) {
    index_.Store(WorkerSlot(slot), HashesOf(path));
    for (const int node : path) held[node] = std::nullopt;
  }

  void Evict(uint32_t slot, Held& held, const std::vector<int>& path) {
    index_.Evict(WorkerSlot(slot), HashesOf(path));
    for (const int node : path) held.erase(node);
  }

  absl::Status Match(const std::vector<int>& path) {
    Matches matches;
    index_.Match(HashesOf(path), &matches);
    uint32_t longest = 0;
    for (uint32_t slot = 0; slot < matches.blocks.size(); ++slot) {
      uint32_t run = 0;
      const auto worker = workers_.find(slot);
      if (worker != workers_.end()) {
        while (run < path.size() && worker->second.contains(path[run])) ++run;
      }
      longest = std::max(longest, run);
      if (matches.blocks[slot] != run) {
        return Differ(fmt::format("slot {} matches {} blocks, not {}", slot, matches.blocks[slot], run));
      }
    }
    if (matches.longest != longest)
      return Differ(fmt::format("longest {}, not {}", matches.longest, longest));
    return absl::OkStatus();
  }

  absl::Status Compare() {
    index_.CheckConsistency();
    int64_t pairs = 0, speculative = 0;
    for (const auto& [slot, held] : workers_) {
      pairs += std::ssize(held);
      for (const auto& one : held) speculative += one.second.has_value() ? 1 : 0;
      if (index_.PairsOf(WorkerSlot(slot)) != std::ssize(held)) return Differ("a worker's pairs");
    }
    const PrefixIndex::Stats stats = index_.stats();
    if (stats.pairs != pairs) return Differ(fmt::format("{} pairs, not {}", stats.pairs, pairs));
    if (stats.workers != std::ssize(workers_)) return Differ("workers");
    if (stats.speculative < speculative) return Differ("a speculation was forgotten");
    if (stats.evicted_blocks != 0 || stats.dropped_pairs != 0) return Differ("something was dropped");
    return absl::OkStatus();
  }

  std::span<const uint8_t> bytes_;
  PrefixIndex index_;
  // The model.
  std::map<uint32_t, Held> workers_;
  int now_ = 0;
};

}  // namespace

absl::StatusOr<int64_t> RunPrefixIndexOperations(std::span<const uint8_t> bytes) {
  return Interpreter(bytes).Run();
}

}  // namespace baton::router::index
