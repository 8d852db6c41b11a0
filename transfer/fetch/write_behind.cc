#include "transfer/fetch/write_behind.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/time/clock.h"

namespace baton::fetch {
namespace {

// Longest copying at once by a busy worker after a long step.
constexpr absl::Duration kMostCredit = absl::Milliseconds(1);

}  // namespace

WriteBehind::WriteBehind(const WriteBehindOptions& options, engine::Engine& engine, kv::tier::DiskTier& tier,
                         const Fetcher& loads, const Clock& clock, DiskProbe& probe)
    : options_(options),
      engine_(engine),
      clock_(clock),
      budget_(std::max(options.step_bytes, tier.store().identity().block_bytes)) {
  Add(tier, loads, probe);
  engine_.pool().TrackCached([this](const kv::BlockPool::Cached& block) { Evicting(block); });
}

void WriteBehind::Add(kv::tier::DiskTier& tier, const Fetcher& loads, DiskProbe& probe) {
  Target target{.tier = tier, .loads = loads, .probe = probe};
  device::Memory& memory = engine_.store().memory();
  if (!memory.host()) {
    // Gathering never waits for room: there is some for each write that may be on its way.
    auto outbound = memory.MakeOutbound(tier.WriteSlots() * tier.store().identity().block_bytes);
    if (outbound.ok()) target.outbound = *std::move(outbound);
  }
  targets_.push_back(std::move(target));
}

WriteBehind::~WriteBehind() { engine_.pool().TrackCached({}); }

bool WriteBehind::WorthIt(const Target& target, const kv::BlockPool::Cached& block) const {
  if (options_.always) return true;
  const double spared = options_.compute_seconds - target.loads.BlockSeconds();
  const double chance = block.leased || block.uses > 1 ? 1 : block.reuse;
  return chance * spared > target.tier.WriteSeconds();
}

WriteBehind::Kept WriteBehind::Keep(Target& target, const kv::BlockPool::Cached& block) {
  if (target.tier.Has(block.hash)) {
    // It was used, though not from there.
    if (block.uses > 1 || block.leased) target.tier.store().Touch(block.hash);
    return Kept::kThere;
  }
  if (!WorthIt(target, block)) return Kept::kNotWorthIt;
  if (budget_ <= 0 && &target == &targets_.front()) return Kept::kNoRoom;
  if (target.slot == nullptr) target.slot = target.tier.TakeSlot();
  if (target.slot == nullptr) return Kept::kNoRoom;
  kv::KvStore& store = engine_.store();
  pieces_.clear();
  store.AppendPieces(block.block, 0, store.layout().layers, pieces_);
  kv::tier::DiskTier::Fill fill;
  if (target.outbound != nullptr) {
    std::vector<device::Outbound::Piece> out;
    int64_t at = 0;
    for (const auto piece : pieces_) {
      out.push_back({.here = piece.data(), .at = at, .bytes = std::ssize(piece)});
      at += std::ssize(piece);
    }
    const uint64_t number = target.outbound->Gather(store.memory().announced(), out);
    fill = [outbound = target.outbound, number](std::span<std::byte> bytes) {
      outbound->Take(number, bytes.data());
    };
  } else {
    std::byte* to = target.slot->bytes().data();
    for (const auto piece : pieces_) {
      if (store.memory().host()) {
        std::memcpy(to, piece.data(), piece.size());
      } else if (!store.memory().Download(piece.data(), to, std::ssize(piece)).ok()) {
        return Kept::kNoRoom;  // the device has failed, and the next step says so
      }
      to += piece.size();
    }
  }
  budget_ -= target.tier.store().identity().block_bytes;
  target.tier.Write(block.hash, block.root, std::move(target.slot), std::move(fill));
  return Kept::kWritten;
}

bool WriteBehind::Step(bool busy) {
  Target& first = targets_.front();
  const int64_t block_bytes = first.tier.store().identity().block_bytes;
  budget_ = std::max(options_.step_bytes, block_bytes);
  absl::Time now = clock_.Now();
  if (now > last_step_) credit_ = std::min(credit_ + options_.share * (now - last_step_), kMostCredit);
  last_step_ = now;
  bool more = false;
  while (engine_.pool().HasNextCached()) {
    // Blocks that can't be copied now stay cached and may still be there later.
    if (budget_ <= 0 || (busy && credit_ <= absl::ZeroDuration())) {
      more = true;
      break;
    }
    if (first.slot == nullptr) first.slot = first.tier.TakeSlot();
    if (first.slot == nullptr) break;  // the tier wakes the loop
    const std::optional<kv::BlockPool::Cached> block = engine_.pool().NextCached();
    if (block.has_value()) {
      for (Target& target : targets_) {
        const Kept kept = Keep(target, *block);
        if (kept == Kept::kNotWorthIt) target.probe.NotWorthIt();
        if (kept == Kept::kNoRoom && &target != &first) target.probe.NoRoom();
      }
    }
    const absl::Time then = std::exchange(now, clock_.Now());
    if (busy) credit_ -= now - then;
  }
  for (Target& target : targets_) target.probe.Observe(target.tier.counts());
  // The rest of the budget is for blocks that are evicted before the next step.
  return more;
}

void WriteBehind::Evicting(const kv::BlockPool::Cached& block) {
  for (Target& target : targets_) {
    if (Keep(target, block) == Kept::kNoRoom) target.probe.NoRoom();
  }
}

void WriteBehind::Flush(absl::Duration patience) {
  const absl::Time until = absl::Now() + patience;
  do {
    Step(/*busy=*/false);
    for (Target& target : targets_) target.tier.Flush(until - absl::Now());
  } while (engine_.pool().HasNextCached() && absl::Now() < until);
}

}  // namespace baton::fetch
