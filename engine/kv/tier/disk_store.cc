#include "engine/kv/tier/disk_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "common/base/check.h"
#include "common/base/status.h"
#include "spdlog/spdlog.h"

namespace baton::kv::tier {
namespace {

// A cap has at least so many segments, and at most: each has a file open.
constexpr int64_t kFewestSegments = 16, kMostSegments = 256;
// Writes that fail in a row before a segment is given up.
constexpr int kPatience = 3;

int64_t SegmentSlots(const StoreOptions& options) {
  const int64_t most = std::max(DiskStore::kMostSegmentBytes, options.bytes / kMostSegments);
  const int64_t bytes = std::min(most, options.bytes / kFewestSegments);
  return std::max<int64_t>(1, (bytes - kPage) / options.identity.slot_bytes());
}

}  // namespace

DiskStore::DiskStore(std::unique_ptr<Folder> folder, const StoreOptions& options)
    : folder_(std::move(folder)),
      identity_(options.identity),
      codec_(options.identity, options.keys),
      most_bytes_(options.bytes),
      slot_bytes_(options.identity.slot_bytes()),
      segment_slots_(SegmentSlots(options)) {}

absl::StatusOr<std::unique_ptr<DiskStore>> DiskStore::Open(std::unique_ptr<Folder> folder,
                                                           const StoreOptions& options) {
  BATON_CHECK(options.identity.block_bytes > 0);
  if (const int64_t least = kFewest * (options.identity.slot_bytes() + kPage); options.bytes < least) {
    return absl::ResourceExhaustedError(fmt::format(
        "{} bytes of disk hold fewer than {} blocks of this model, which take {}: raise --kv-disk-size",
        options.bytes, kFewest, least));
  }
  auto store = std::unique_ptr<DiskStore>(new DiskStore(std::move(folder), options));
  BATON_RETURN_IF_ERROR(store->Scan());
  return store;
}

bool DiskStore::contains(const BlockHash& hash) const {
  absl::MutexLock lock(&mutex_);
  return places_.contains(hash);
}

int64_t DiskStore::Match(std::span<const BlockHash> chain) const {
  absl::MutexLock lock(&mutex_);
  int64_t length = 0;
  for (const BlockHash& hash : chain) {
    if (!places_.contains(hash)) break;
    ++length;
  }
  return length;
}

void DiskStore::Touch(const BlockHash& hash) {
  absl::MutexLock lock(&mutex_);
  if (const auto place = places_.find(hash); place != places_.end()) place->second.used_again = true;
}

absl::Status DiskStore::Append(const BlockHash& hash, const BlockHash& root, PageBuffer& slot) {
  if (contains(hash)) return absl::OkStatus();
  absl::Status written = EnsureActive();
  if (absl::IsResourceExhausted(written)) {
    // Others have filled the disk: what is oldest here makes room for what is new.
    {
      absl::MutexLock lock(&mutex_);
      Count(Failure::kFull);
      if (segments_.empty()) return written;
      DropOldest();
    }
    written = EnsureActive();
  }
  if (written.ok()) written = WriteSlot(hash, root, slot, /*used_again=*/false);
  if (written.ok()) {
    failed_writes_ = 0;
    return written;
  }
  absl::MutexLock lock(&mutex_);
  Count(absl::IsResourceExhausted(written) ? Failure::kFull : Failure::kWrite);
  if (++failed_writes_ >= kPatience) {
    failed_writes_ = 0;
    active_ = 0;  // the next one begins a file of its own
  }
  return written;
}

absl::Status DiskStore::EnsureActive() {
  bool full;
  {
    absl::MutexLock lock(&mutex_);
    if (active_ != 0) {
      const Segment& segment = segments_.at(active_);
      if (segment.used < segment.slots) return absl::OkStatus();
    }
    const int64_t segment_bytes = OffsetOf(segment_slots_);
    // Only after a restart in the middle of a change, or under a smaller cap.
    while (counts_.bytes + segment_bytes > most_bytes_) DropOldest();
    full = counts_.bytes + 2 * segment_bytes > most_bytes_;
  }
  BATON_RETURN_IF_ERROR(CreateActive());
  if (full) RecycleOldest();
  return absl::OkStatus();
}

absl::Status DiskStore::CreateActive() {
  const uint64_t number = next_segment_++;
  Segment segment{.name = NameOf(number),
                  .file = nullptr,
                  .cipher = codec_.writing(),
                  .slots = segment_slots_,
                  .used = 0,
                  .hashes = std::vector<BlockHash>(static_cast<size_t>(segment_slots_))};
  BATON_ASSIGN_OR_RETURN(segment.file, folder_->Create(segment.name, OffsetOf(segment_slots_)));
  PageBuffer page(kPage);
  SegmentHeader header{.identity = identity_, .number = number, .key = {}};
  if (segment.cipher != nullptr) header.key = segment.cipher->id();
  header.Write(page.bytes());
  if (absl::Status written = segment.file->WriteAt(0, page.bytes()); !written.ok()) {
    (void)folder_->Remove(segment.name);
    return written;
  }
  absl::MutexLock lock(&mutex_);
  counts_.bytes += segment.file->size();
  segments_.emplace(number, std::move(segment));
  active_ = number;
  return absl::OkStatus();
}

absl::Status DiskStore::WriteSlot(const BlockHash& hash, const BlockHash& root, PageBuffer& slot,
                                  bool used_again) {
  BATON_CHECK(slot.size() >= slot_bytes_);
  const auto bytes = slot.bytes().first(static_cast<size_t>(slot_bytes_));
  const uint64_t sequence = next_sequence_++;
  Seal seal{.hash = hash, .root = root, .sequence = sequence};
  std::shared_ptr<File> file;
  {
    absl::MutexLock lock(&mutex_);
    Segment& segment = segments_.at(active_);
    file = segment.file;
    seal.segment = active_;
    seal.slot = static_cast<uint32_t>(segment.used++);
    seal.earlier.reserve(Seal::kMostEarlier);
    for (size_t before = seal.slot; before > 0 && seal.earlier.size() < Seal::kMostEarlier; --before) {
      const auto place = places_.find(segment.hashes[before - 1]);
      seal.earlier.push_back(place == places_.end()
                                 ? Seal::Earlier{}
                                 : Seal::Earlier{.hash = place->first, .sequence = place->second.sequence});
    }
  }
  const int64_t at = OffsetOf(seal.slot);
  const uint32_t index = seal.slot;
  codec_.Close(std::move(seal), bytes);
  BATON_RETURN_IF_ERROR(file->WriteAt(at, bytes));
  absl::MutexLock lock(&mutex_);
  Place& place = places_[hash];
  if (place.segment == 0) {
    NoteChange(hash, /*stored=*/true);
  } else {
    segments_.at(place.segment).hashes[place.slot] = BlockHash();
  }
  place = {.segment = active_, .slot = index, .used_again = used_again, .sequence = sequence};
  segments_.at(active_).hashes[index] = hash;
  ++counts_.written;
  return absl::OkStatus();
}

void DiskStore::RecycleOldest() {
  std::shared_ptr<File> file;
  const RecordCipher* cipher;
  std::vector<std::pair<BlockHash, int64_t>> kept;
  {
    absl::MutexLock lock(&mutex_);
    const auto& [number, oldest] = *segments_.begin();
    if (number == active_) return;
    file = oldest.file;
    cipher = oldest.cipher;
    for (int64_t slot = 0; slot < oldest.slots && std::ssize(kept) < segment_slots_ / 2; ++slot) {
      const auto place = places_.find(oldest.hashes[static_cast<size_t>(slot)]);
      if (place != places_.end() && place->second.used_again) kept.emplace_back(place->first, slot);
    }
  }
  PageBuffer slot(slot_bytes_);
  for (const auto& [hash, index] : kept) {
    BlockHash root;
    if (!file->ReadAt(OffsetOf(index), slot.bytes()).ok() ||
        !codec_.Open(cipher, hash, slot.bytes(), &root)) {
      continue;
    }
    // It has had its chance until it is used again.
    if (!WriteSlot(hash, root, slot, /*used_again=*/false).ok()) break;
    absl::MutexLock lock(&mutex_);
    ++counts_.second_chances;
  }
  absl::MutexLock lock(&mutex_);
  DropOldest();
}

void DiskStore::DropOldest() {
  const auto oldest = segments_.begin();
  BATON_CHECK(oldest != segments_.end());
  for (const BlockHash& hash : oldest->second.hashes) {
    const auto place = places_.find(hash);
    if (place == places_.end() || place->second.segment != oldest->first) continue;
    places_.erase(place);
    NoteChange(hash, /*stored=*/false);
    ++counts_.evicted;
  }
  counts_.bytes -= oldest->second.file->size();
  if (oldest->first == active_) active_ = 0;
  // One that can't be removed is dropped at the next start; until then the cap is exceeded by it.
  if (!folder_->Remove(oldest->second.name).ok()) Count(Failure::kWrite);
  segments_.erase(oldest);
}

int64_t DiskStore::ReadRun(std::span<const BlockHash> hashes, PageBuffer& slots) {
  const int64_t room = slots.size() / slot_bytes_;
  BATON_CHECK(room > 0);
  std::shared_ptr<File> file;
  const RecordCipher* cipher;
  Place first;
  int64_t count = 0;
  {
    absl::MutexLock lock(&mutex_);
    while (count < std::min<int64_t>(room, std::ssize(hashes))) {
      const auto found = places_.find(hashes[static_cast<size_t>(count)]);
      if (found == places_.end()) break;
      if (count == 0) {
        first = found->second;
      } else if (found->second.segment != first.segment || found->second.slot != first.slot + count) {
        break;
      }
      ++count;
    }
    if (count == 0) return 0;
    const Segment& segment = segments_.at(first.segment);
    file = segment.file;
    cipher = segment.cipher;
  }
  const auto bytes = slots.bytes();
  if (!file->ReadAt(OffsetOf(first.slot), bytes.first(static_cast<size_t>(count * slot_bytes_))).ok()) {
    // The fault may lie behind the first.
    if (count > 1) {
      count = 1;
      if (file->ReadAt(OffsetOf(first.slot), bytes.first(static_cast<size_t>(slot_bytes_))).ok()) {
        absl::MutexLock lock(&mutex_);
        Count(Failure::kRead);
      } else {
        count = 0;
      }
    } else {
      count = 0;
    }
    if (count == 0) {
      Drop(hashes[0], first, Failure::kRead);
      return 0;
    }
  }
  int64_t good = 0;
  for (; good < count; ++good) {
    const auto slot =
        bytes.subspan(static_cast<size_t>(good * slot_bytes_), static_cast<size_t>(slot_bytes_));
    if (!codec_.Open(cipher, hashes[static_cast<size_t>(good)], slot)) {
      Place place = first;
      place.slot += static_cast<uint32_t>(good);
      Drop(hashes[static_cast<size_t>(good)], place, Failure::kCorrupt);
      break;
    }
  }
  absl::MutexLock lock(&mutex_);
  counts_.read += good;
  for (int64_t i = 0; i < good; ++i) {
    const auto place = places_.find(hashes[static_cast<size_t>(i)]);
    if (place != places_.end()) place->second.used_again = true;
  }
  return good;
}

void DiskStore::Drop(const BlockHash& hash, const Place& place, Failure failure) {
  absl::MutexLock lock(&mutex_);
  Count(failure);
  if (failure == Failure::kCorrupt && !std::exchange(damage_said_, true)) {
    spdlog::warn(
        "a KV block on disk is not what was written ({}): it is computed again, as are others; further ones "
        "are only counted",
        !codec_.encrypts() ? "a checksum is wrong" : "its tag is wrong under the key");
  }
  const auto found = places_.find(hash);
  // It may have moved meanwhile.
  if (found == places_.end() || found->second.segment != place.segment || found->second.slot != place.slot) {
    return;
  }
  segments_.at(place.segment).hashes[place.slot] = BlockHash();
  places_.erase(found);
  NoteChange(hash, /*stored=*/false);
}

void DiskStore::NoteChange(const BlockHash& hash, bool stored) {
  if (changes_lost_) return;
  changes_[hash] = stored;
  if (changes_.size() > BlockPool::kMaxPendingChanges) {
    changes_.clear();
    changes_lost_ = true;
  }
}

BlockPool::Changes DiskStore::TakeChanges() {
  absl::MutexLock lock(&mutex_);
  BlockPool::Changes taken{.reset = std::exchange(changes_lost_, false), .stored = {}, .evicted = {}};
  for (const auto& [hash, stored] : changes_) (stored ? taken.stored : taken.evicted).push_back(hash);
  changes_.clear();
  return taken;
}

std::vector<BlockHash> DiskStore::Stored() const {
  absl::MutexLock lock(&mutex_);
  std::vector<BlockHash> hashes;
  hashes.reserve(places_.size());
  for (const auto& [hash, place] : places_) hashes.push_back(hash);
  return hashes;
}

DiskStore::Counts DiskStore::counts() const {
  absl::MutexLock lock(&mutex_);
  Counts counts = counts_;
  counts.blocks = std::ssize(places_);
  return counts;
}

void DiskStore::CheckTables() const {
  absl::MutexLock lock(&mutex_);
  int64_t bytes = 0, blocks = 0;
  for (const auto& [number, segment] : segments_) {
    bytes += segment.file->size();
    BATON_CHECK_EQ(std::ssize(segment.hashes), segment.slots);
    BATON_CHECK(segment.used <= segment.slots);
    for (size_t slot = 0; slot < segment.hashes.size(); ++slot) {
      const BlockHash& hash = segment.hashes[slot];
      if (hash == BlockHash()) continue;
      const auto place = places_.find(hash);
      BATON_CHECK(place != places_.end() && place->second.segment == number && place->second.slot == slot)
          << hash.ToHex();
      BATON_CHECK(static_cast<int64_t>(slot) < segment.used);
      ++blocks;
    }
  }
  BATON_CHECK_EQ(blocks, std::ssize(places_));
  BATON_CHECK_EQ(bytes, counts_.bytes);
  BATON_CHECK(bytes <= most_bytes_) << bytes << " bytes";
}

}  // namespace baton::kv::tier
