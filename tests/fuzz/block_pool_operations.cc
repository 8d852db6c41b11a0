#include "tests/fuzz/block_pool_operations.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "common/base/status.h"
#include "engine/kv/index/block_pool.h"

namespace baton::kv {
namespace {

// Chains come from a binary tree of prefixes, numbered like a heap: node n continues node n / 2. Few and
// deep, so that they meet often.
constexpr int kNodes = 64;

BlockHash HashOf(int node) {
  std::string bytes(BlockHash::kBytes, '\0');
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(node * 37 + i);
  return BlockHash::FromBytes(bytes);
}

std::vector<int> PathTo(int node) {
  std::vector<int> path;
  for (; node > 0; node /= 2) path.push_back(node);
  std::reverse(path.begin(), path.end());
  return path;
}

std::vector<BlockHash> HashesOf(const std::vector<int>& path) {
  std::vector<BlockHash> chain;
  for (const int node : path) chain.push_back(HashOf(node));
  return chain;
}

absl::Status Differ(std::string what) { return absl::InternalError(std::move(what)); }

class Interpreter {
 public:
  explicit Interpreter(std::span<const uint8_t> bytes)
      : bytes_(bytes),
        total_(1 + Next() % 48),
        most_leased_(total_ / 2),
        pool_(total_, Eviction::kLeastRecentlyUsed),
        blocks_(total_) {}

  absl::StatusOr<int64_t> Run() {
    int64_t done = 0;
    for (; !bytes_.empty(); ++done) {
      // Beyond a few holders everything would be held and nothing ever evicted.
      const int operation = holders_.size() > 24 ? kRelease : Next() % kOperations;
      absl::Status status = Do(operation);
      if (status.ok()) status = Compare();
      if (!status.ok()) {
        return Differ(
            fmt::format("operation {} (number {}): {}", operation, done, std::string(status.message())));
      }
    }
    return done;
  }

 private:
  // Operations above kRelease release too, so that things come and go in balance.
  enum Operation {
    kAllocate,
    kAcquire,
    kMatch,
    kPublishOne,
    kPublishAlong,
    kRetain,
    kTakeChanges,
    kLease,
    kAdvance,
    kRelease,
    kOperations = 12
  };

  struct Block {
    int references = 0;
    uint32_t generation = 0;
    std::optional<int> node;
  };
  struct Lease {
    int lease_class = 0;
    int64_t until = 0;  // seconds
    int64_t depth = 0;
    int tenant = 0;
    bool used_again = false;
  };
  static constexpr std::array<int64_t, 2> kSeconds = {300, 3600};

  static absl::Time At(int64_t seconds) { return absl::UnixEpoch() + absl::Seconds(seconds); }

  int Next() {
    if (bytes_.empty()) return 0;
    const int byte = bytes_.front();
    bytes_ = bytes_.subspan(1);
    return byte;
  }

  absl::Status Do(int operation) {
    switch (operation) {
      case kAllocate:
        return Allocate(Next() % (total_ + 2));
      case kAcquire:
        return Acquire(1 + Next() % (kNodes - 1));
      case kMatch:
        return Match(1 + Next() % (kNodes - 1));
      case kPublishOne:
        return PublishOne(Next(), Next(), 1 + Next() % (kNodes - 1));
      case kPublishAlong:
        return PublishAlong(Next(), 1 + Next() % (kNodes - 1));
      case kRetain:
        return Retain(BlockId(Next() % total_));
      case kTakeChanges:
        return TakeChanges();
      case kLease:
        return LeaseBlocks(Next(), Next() % 4, Next() % 2, Next() % 3);
      case kAdvance:
        return Advance(Next());
      default:
        return Release(Next(), Next());
    }
  }

  absl::Status Allocate(int64_t count) {
    std::set<BlockId> allowed;
    for (int64_t i = 0; i < total_; ++i) {
      if (blocks_[i].references == 0 && !blocks_[i].node) allowed.insert(BlockId(i));
    }
    const int64_t free = std::ssize(allowed);
    const auto taken = pool_.Allocate(count);
    if (count > free + std::ssize(order_) + std::ssize(LeasedInOrder())) {
      if (taken.status().code() != absl::StatusCode::kResourceExhausted)
        return Differ("too much was given out");
      return absl::OkStatus();
    }
    if (!taken.ok()) return Differ("refused although there is room");
    if (std::ssize(*taken) != count) return Differ("not as many blocks as wanted");
    // The victims are exactly the first ones in the order.
    for (int64_t i = free; i < count; ++i) {
      const BlockId victim = order_.empty() ? FirstLeased() : order_.front();
      if (order_.empty()) {
        Break(victim);
      } else {
        order_.erase(order_.begin());
      }
      blocks_[victim.value()].node.reset();
      allowed.insert(victim);
    }
    for (const BlockId id : *taken) {
      if (allowed.erase(id) == 0) return Differ(fmt::format("block {} was not to be had", id.value()));
      blocks_[id.value()].references = 1;
      ++blocks_[id.value()].generation;
    }
    holders_.push_back(*taken);
    return absl::OkStatus();
  }

  // Cached blocks under a lease, the next victim first.
  std::vector<BlockId> LeasedInOrder() const {
    std::vector<BlockId> blocks;
    for (const auto& [id, lease] : leases_) {
      if (blocks_[id.value()].references == 0) blocks.push_back(id);
    }
    std::ranges::sort(blocks, {}, [this](BlockId id) {
      const Lease& lease = leases_.at(id);
      return std::tuple(lease.lease_class, lease.until, -lease.depth, id);
    });
    return blocks;
  }

  // The tenant that has most beyond an equal part is evicted from, and otherwise whoever comes first.
  BlockId FirstLeased() const {
    std::set<int> tenants;
    for (const auto& [id, lease] : leases_) tenants.insert(lease.tenant);
    const std::vector<BlockId> leased = LeasedInOrder();
    BlockId first = leased.front();
    int64_t most = tenants.size() > 1 ? most_leased_ / std::ssize(tenants) : total_;
    for (const BlockId id : leased) {
      if (LeasedBy(leases_.at(id).tenant) <= most) continue;
      most = LeasedBy(leases_.at(id).tenant);
      first = id;
    }
    return first;
  }

  void Break(BlockId id) {
    ++expected_[leases_.at(id).lease_class].broken;
    leases_.erase(id);
  }

  int64_t LeasedBy(int tenant) const {
    return std::ranges::count_if(leases_,
                                 [tenant](const auto& lease) { return lease.second.tenant == tenant; });
  }

  // Makes room for one more lease of the tenant, maybe at another's cost; false: it can't.
  bool MakeRoom(int tenant) {
    if (std::ssize(leases_) < most_leased_) return true;
    std::set<int> tenants = {tenant};
    for (const auto& [id, lease] : leases_) tenants.insert(lease.tenant);
    const int64_t part = most_leased_ / std::ssize(tenants);
    if (LeasedBy(tenant) >= part) return false;
    std::optional<BlockId> dropped;
    int64_t most = part;
    for (const BlockId id : LeasedInOrder()) {
      const int other = leases_.at(id).tenant;
      if (other != tenant && LeasedBy(other) > most) {
        most = LeasedBy(other);
        dropped = id;
      }
    }
    if (!dropped) return false;
    Break(*dropped);
    order_.push_back(*dropped);
    return true;
  }

  // Leases the first blocks of a holder, as far as they are published.
  absl::Status LeaseBlocks(int holder, int64_t first, int lease_class, int tenant) {
    if (holders_.empty()) return absl::OkStatus();
    std::vector<BlockId> blocks;
    for (const BlockId id : holders_[holder % holders_.size()]) {
      if (!blocks_[id.value()].node) break;
      blocks.push_back(id);
    }
    int64_t granted = 0;
    for (const BlockId id : blocks) {
      if (const auto found = leases_.find(id); found != leases_.end()) {
        Lease& lease = found->second;
        if (lease_class > lease.lease_class) {
          lease.lease_class = lease_class;
          ++expected_[lease_class].granted;
        }
        lease.until = std::max(lease.until, now_ + kSeconds[lease.lease_class]);
      } else {
        if (!MakeRoom(tenant)) break;
        leases_[id] = {.lease_class = lease_class,
                       .until = now_ + kSeconds[lease_class],
                       .depth = first + granted,
                       .tenant = tenant};
        ++expected_[lease_class].granted;
      }
      ++granted;
    }
    const int64_t leased =
        pool_.Lease(blocks, first, static_cast<LeaseClass>(lease_class), HashOf(200 + tenant), At(now_));
    if (leased != granted) return Differ(fmt::format("{} blocks were leased, not {}", leased, granted));
    return absl::OkStatus();
  }

  void End(BlockId id) {
    const Lease& lease = leases_.at(id);
    if (!lease.used_again) ++expected_[lease.lease_class].expired_unused;
    leases_.erase(id);
    order_.push_back(id);
  }

  absl::Status Advance(int seconds) {
    now_ += 10 * seconds;
    pool_.Advance(At(now_));
    for (const BlockId id : LeasedInOrder()) {
      if (leases_.at(id).until <= now_) End(id);
    }
    return absl::OkStatus();
  }

  std::optional<BlockId> Find(int node) const {
    for (int64_t i = 0; i < total_; ++i) {
      if (blocks_[i].node == node) return BlockId(i);
    }
    return std::nullopt;
  }

  std::vector<BlockId> RunOf(const std::vector<int>& path) const {
    std::vector<BlockId> run;
    for (const int node : path) {
      const auto found = Find(node);
      if (!found) break;
      run.push_back(*found);
    }
    return run;
  }

  void AddReference(BlockId id) {
    if (blocks_[id.value()].references++ == 0) std::erase(order_, id);
  }

  absl::Status Acquire(int node) {
    const std::vector<int> path = PathTo(node);
    const std::vector<BlockId> expected = RunOf(path);
    const std::vector<BlockId> acquired = pool_.AcquirePrefix(HashesOf(path));
    if (acquired != expected) return Differ("another run was acquired");
    for (const BlockId id : expected) {
      AddReference(id);
      const auto found = leases_.find(id);
      if (found == leases_.end()) continue;
      Lease& lease = found->second;
      lease.until = std::max(lease.until, now_ + kSeconds[lease.lease_class]);
      lease.used_again = true;
      ++expected_[lease.lease_class].renewed;
    }
    holders_.push_back(acquired);
    return absl::OkStatus();
  }

  absl::Status Match(int node) {
    const std::vector<int> path = PathTo(node);
    const int64_t length = pool_.MatchPrefix(HashesOf(path));
    if (length != std::ssize(RunOf(path))) return Differ(fmt::format("a run of {} was matched", length));
    return absl::OkStatus();
  }

  absl::Status Publish(BlockId id, int node) {
    Block& block = blocks_[id.value()];
    node =
        block.node.value_or(node);  // another hash for a published block is our own error, not an operation
    const BlockId expected = Find(node).value_or(id);
    if (pool_.Publish(id, HashOf(node)) != expected) return Differ("published as another block");
    if (expected == id) block.node = node;
    return absl::OkStatus();
  }

  absl::Status PublishOne(int holder, int index, int node) {
    if (holders_.empty()) return absl::OkStatus();
    const auto& blocks = holders_[holder % holders_.size()];
    if (blocks.empty()) return absl::OkStatus();
    return Publish(blocks[index % blocks.size()], node);
  }

  // Publishes blocks along a path, as an engine does for a computed prompt.
  absl::Status PublishAlong(int holder, int node) {
    if (holders_.empty()) return absl::OkStatus();
    const auto& blocks = holders_[holder % holders_.size()];
    const std::vector<int> path = PathTo(node);
    for (size_t i = 0; i < std::min(blocks.size(), path.size()); ++i) {
      BATON_RETURN_IF_ERROR(Publish(blocks[i], path[i]));
    }
    return absl::OkStatus();
  }

  absl::Status Retain(BlockId id) {
    const Block& block = blocks_[id.value()];
    if (block.references == 0 && !block.node) return absl::OkStatus();
    pool_.Retain(id);
    AddReference(id);
    holders_.push_back({id});
    return absl::OkStatus();
  }

  // The holder's blocks from `keep` on, all of them when that is beyond the end.
  absl::Status Release(int holder, int keep) {
    if (holders_.empty()) return absl::OkStatus();
    const size_t at = holder % holders_.size();
    std::vector<BlockId>& blocks = holders_[at];
    const size_t kept = static_cast<size_t>(keep) < blocks.size() ? keep : 0;
    const std::vector<BlockId> released(blocks.begin() + kept, blocks.end());
    blocks.resize(kept);
    if (blocks.empty()) holders_.erase(holders_.begin() + at);
    pool_.Release(released);
    for (auto id = released.rbegin(); id != released.rend(); ++id) {
      Block& block = blocks_[id->value()];
      if (--block.references > 0 || !block.node) continue;
      const auto found = leases_.find(*id);
      if (found == leases_.end()) {
        order_.push_back(*id);
      } else if (found->second.until <= now_) {
        End(*id);
      }
    }
    return absl::OkStatus();
  }

  absl::Status TakeChanges() {
    const BlockPool::Changes changes = pool_.TakeChanges();
    if (changes.reset) return Differ("changes were lost though there are few");
    for (const BlockHash& hash : changes.evicted) {
      if (watched_.erase(hash) == 0) return Differ("evicted, but never stored");
    }
    for (const BlockHash& hash : changes.stored) {
      if (!watched_.insert(hash).second) return Differ("stored twice");
    }
    const std::vector<BlockHash> published = pool_.Published();
    if (watched_ != std::set<BlockHash>(published.begin(), published.end())) {
      return Differ("a watcher that follows the changes sees something else");
    }
    return absl::OkStatus();
  }

  absl::Status Compare() const {
    pool_.CheckConservation();
    const int64_t leased = std::ssize(LeasedInOrder());
    BlockPool::Counts expected{.cached = std::ssize(order_) + leased, .total = total_, .leased = leased};
    for (int64_t i = 0; i < total_; ++i) {
      const Block& block = blocks_[i];
      const BlockId id(i);
      if (block.references > 0) ++expected.held;
      if (block.references == 0 && !block.node) ++expected.free;
      std::optional<BlockHash> hash;
      if (block.node) hash = HashOf(*block.node);
      if (pool_.references(id) != block.references || pool_.generation(id).value() != block.generation ||
          pool_.hash(id) != hash) {
        return Differ(fmt::format("block {} differs: {} references, not {}", i, pool_.references(id),
                                  block.references));
      }
    }
    const BlockPool::Counts counts = pool_.counts();
    if (counts.free != expected.free || counts.held != expected.held || counts.cached != expected.cached ||
        counts.total != expected.total || counts.leased != expected.leased ||
        pool_.available() != expected.free + expected.cached) {
      return Differ(fmt::format("free {} held {} cached {}, not {} {} {}", counts.free, counts.held,
                                counts.cached, expected.free, expected.held, expected.cached));
    }
    for (const int lease_class : {0, 1}) {
      if (pool_.lease_counts(static_cast<LeaseClass>(lease_class)) != expected_[lease_class]) {
        return Differ(fmt::format("leases of class {} are counted otherwise", lease_class));
      }
    }
    return absl::OkStatus();
  }

  std::span<const uint8_t> bytes_;
  const int64_t total_;
  const int64_t most_leased_;
  BlockPool pool_;
  // The model.
  std::vector<Block> blocks_;
  std::vector<BlockId> order_;  // cached blocks without a lease, the next victim first
  std::map<BlockId, Lease> leases_;
  std::array<LeaseCounts, 2> expected_;
  int64_t now_ = 0;  // seconds
  std::vector<std::vector<BlockId>> holders_;
  std::set<BlockHash> watched_;
};

}  // namespace

absl::StatusOr<int64_t> RunBlockPoolOperations(std::span<const uint8_t> bytes) {
  return Interpreter(bytes).Run();
}

}  // namespace baton::kv
