#include "engine/kv/tier/shared_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "absl/time/clock.h"
#include "common/base/check.h"
#include "common/base/random.h"
#include "common/base/status.h"
#include "spdlog/spdlog.h"

namespace baton::kv::tier {
namespace {

// A cap has at least so many runs.
constexpr int64_t kFewestRuns = 16;

int64_t RunSlots(const SharedOptions& options) {
  const int64_t bytes = std::min(options.run_bytes, options.bytes / kFewestRuns);
  return std::clamp<int64_t>((bytes - kPage) / options.identity.slot_bytes(), 1, Seal::kMostEarlier + 1);
}

std::string IdentityDigits(const Sha256Digest& digest) {
  std::string digits;
  for (size_t i = 0; i < SharedStore::kDigits / 2; ++i) digits += fmt::format("{:02x}", digest[i]);
  return digits;
}

bool Begins(std::span<const BlockHash> all, std::span<const BlockHash> with) {
  return all.size() >= with.size() && std::equal(with.begin(), with.end(), all.begin());
}

}  // namespace

SharedStore::SharedStore(std::unique_ptr<Folder> folder, const SharedOptions& options, const Clock& clock)
    : folder_(std::move(folder)),
      options_(options),
      codec_(options.identity, options.keys),
      slot_bytes_(options.identity.slot_bytes()),
      run_slots_(RunSlots(options)),
      clock_(clock) {}

absl::StatusOr<std::unique_ptr<SharedStore>> SharedStore::Open(std::unique_ptr<Folder> folder,
                                                               const SharedOptions& options,
                                                               const Clock& clock) {
  if (const int64_t least = kFewest * (options.identity.slot_bytes() + kPage); options.bytes < least) {
    return absl::ResourceExhaustedError(
        fmt::format("{} bytes of a shared folder hold fewer than {} blocks of this model, which take {}: "
                    "raise --kv-shared-size",
                    options.bytes, kFewest, least));
  }
  auto store = std::unique_ptr<SharedStore>(new SharedStore(std::move(folder), options, clock));
  // The rest of a large folder behind a slow network follows later.
  constexpr absl::Duration kFirst = absl::Seconds(5);
  BATON_RETURN_IF_ERROR(
      store->Refresh(options.refresh > absl::ZeroDuration() ? kFirst : absl::InfiniteDuration()));
  if (options.refresh > absl::ZeroDuration()) {
    store->refresher_ = std::thread([store = store.get()] { store->RefreshForever(); });
  }
  return store;
}

SharedStore::~SharedStore() {
  {
    absl::MutexLock lock(&mutex_);
    ended_ = true;
  }
  if (refresher_.joinable()) refresher_.join();
}

void SharedStore::RefreshForever() {
  // Where listing takes long it is done less often.
  constexpr double kMostShare = 0.05;
  absl::Duration took;
  while (true) {
    {
      absl::MutexLock lock(&mutex_);
      if (mutex_.AwaitWithTimeout(absl::Condition(&ended_), std::max(options_.refresh, took / kMostShare))) {
        return;
      }
    }
    const absl::Time begin = clock_.Now();
    (void)Refresh();
    took = clock_.Now() - begin;
  }
}

uint64_t SharedStore::NumberOf(const BlockHash& first) const {
  std::array<std::byte, sizeof(uint64_t)> bytes;
  if (codec_.writing() != nullptr) {
    codec_.writing()->NameRun(first, bytes);
  } else {
    std::copy_n(std::as_bytes(std::span(first.bytes())).begin(), bytes.size(), bytes.begin());
  }
  uint64_t number = 0;
  for (const std::byte byte : bytes) number = number << 8 | std::to_integer<uint64_t>(byte);
  return number;
}

std::string SharedStore::NameOf(uint64_t number) const {
  return fmt::format("{}{}-{:016x}", kPublished, IdentityDigits(codec_.digest()), number);
}

bool SharedStore::contains(const BlockHash& hash) const {
  absl::MutexLock lock(&mutex_);
  return places_.contains(hash) || building_.contains(hash);
}

int64_t SharedStore::Match(std::span<const BlockHash> chain) const {
  absl::MutexLock lock(&mutex_);
  if (silent_) return 0;
  int64_t length = 0;
  for (const BlockHash& hash : chain) {
    if (!places_.contains(hash)) break;
    ++length;
  }
  return length;
}

void SharedStore::Touch(const BlockHash& hash) {
  absl::MutexLock lock(&mutex_);
  if (const auto place = places_.find(hash); place != places_.end()) {
    files_.at(*place->second.file).used = true;
  }
}

absl::Status SharedStore::Append(const BlockHash& hash, const BlockHash& root, PageBuffer& slot) {
  if (contains(hash)) return absl::OkStatus();
  if (!run_hashes_.empty() && root != run_root_) BATON_RETURN_IF_ERROR(Settle());
  if (run_hashes_.empty()) {
    if (run_ == nullptr) run_ = std::make_unique<PageBuffer>(kPage + run_slots_ * slot_bytes_);
    run_root_ = root;
    run_number_ = NumberOf(hash);
  }
  const size_t index = run_hashes_.size();
  const auto record =
      run_->bytes().subspan(static_cast<size_t>(kPage) + index * static_cast<size_t>(slot_bytes_),
                            static_cast<size_t>(slot_bytes_));
  std::copy_n(slot.bytes().begin(), identity().block_bytes, record.begin());
  Seal seal{.hash = hash, .root = root, .sequence = index};
  seal.segment = run_number_;
  seal.slot = static_cast<uint32_t>(index);
  for (size_t before = index; before > 0; --before) {
    seal.earlier.push_back({.hash = run_hashes_[before - 1], .sequence = before - 1});
  }
  codec_.Close(std::move(seal), record);
  run_hashes_.push_back(hash);
  {
    absl::MutexLock lock(&mutex_);
    building_.insert(hash);
  }
  return std::ssize(run_hashes_) == run_slots_ ? Settle() : absl::OkStatus();
}

absl::Status SharedStore::Settle() {
  if (run_hashes_.empty()) return absl::OkStatus();
  const absl::Status published = Publish();
  run_hashes_.clear();
  if (!published.ok()) {
    Note(published, absl::IsResourceExhausted(published) ? Failure::kFull : Failure::kWrite);
  }
  absl::MutexLock lock(&mutex_);
  building_.clear();
  return published;
}

absl::Status SharedStore::Publish() {
  const int64_t bytes = kPage + std::ssize(run_hashes_) * slot_bytes_;
  const std::string name = NameOf(run_number_);
  // Another worker of the same request may have been faster.
  if (std::optional<FileEntry> there = ReadManifest(name);
      there.has_value() && Begins(there->hashes, run_hashes_)) {
    absl::MutexLock lock(&mutex_);
    Forget(name);
    Add(name, *std::move(there));
    return absl::OkStatus();
  }
  bool near;
  {
    absl::MutexLock lock(&mutex_);
    near = counts_.bytes + unfinished_bytes_ + bytes > options_.bytes - options_.bytes / 8;
  }
  {
    absl::MutexLock sweeping(&sweeping_);
    // Close to the cap it matters what the others have published meanwhile.
    if (near) BATON_RETURN_IF_ERROR(Sweep(absl::InfiniteDuration()));
    MakeRoom(bytes);
  }
  SegmentHeader header{.identity = identity(), .number = run_number_, .key = {}};
  if (codec_.writing() != nullptr) header.key = codec_.writing()->id();
  header.Write(run_->bytes().first(kPage));
  const std::string unfinished =
      fmt::format("{}{}-{:016x}", kUnfinished, IdentityDigits(codec_.digest()), RandomU64());
  // Nobody sees a half of it: it has its name when it is whole, where others look.
  absl::Status written;
  {
    const auto file = folder_->Create(unfinished, bytes);
    BATON_RETURN_IF_ERROR(file.status());
    written = (*file)->WriteAt(0, run_->bytes().first(static_cast<size_t>(bytes)));
    if (written.ok()) written = (*file)->Sync();
  }
  if (written.ok()) written = folder_->Rename(unfinished, name);
  if (!written.ok()) {
    (void)folder_->Remove(unfinished);
    return written;
  }
  const auto info = folder_->Look(name);
  absl::MutexLock lock(&mutex_);
  counts_.written += std::ssize(run_hashes_);
  Forget(name);
  Add(name, {.bytes = bytes,
             .modified = info.ok() ? info->modified : absl::Now(),
             .cipher = codec_.writing(),
             .hashes = run_hashes_});
  return absl::OkStatus();
}

int64_t SharedStore::ReadRun(std::span<const BlockHash> hashes, PageBuffer& slots) {
  const int64_t room = std::min<int64_t>(slots.size() / slot_bytes_, std::ssize(hashes));
  BATON_CHECK(room > 0);
  std::string name;
  const RecordCipher* cipher;
  uint32_t first = 0;
  int64_t count = 0;
  {
    absl::MutexLock lock(&mutex_);
    const std::string* key = nullptr;
    for (; count < room; ++count) {
      const auto found = places_.find(hashes[static_cast<size_t>(count)]);
      if (found == places_.end()) break;
      if (count == 0) {
        key = found->second.file;
        first = found->second.slot;
      } else if (found->second.file != key || found->second.slot != first + count) {
        break;
      }
    }
    if (count == 0) return 0;
    FileEntry& entry = files_.at(*key);
    name = *key;
    cipher = entry.cipher;
    entry.used = true;
  }
  const auto file = folder_->Open(name);
  if (absl::IsNotFound(file.status())) {
    absl::MutexLock lock(&mutex_);
    Forget(name);
    return 0;
  }
  absl::Status read = file.status();
  const auto bytes = slots.bytes();
  const int64_t at = kPage + first * slot_bytes_;
  if (read.ok()) read = (*file)->ReadAt(at, bytes.first(static_cast<size_t>(count * slot_bytes_)));
  if (!read.ok() && !absl::IsDeadlineExceeded(read) && file.ok() && count > 1) {
    // The fault may lie behind the first.
    count = 1;
    read = (*file)->ReadAt(at, bytes.first(static_cast<size_t>(slot_bytes_)));
  }
  if (absl::IsDataLoss(read)) {
    RemoveDamaged(name, read);
    return 0;
  }
  if (!read.ok()) {
    Note(read, Failure::kRead);
    // One that only takes too long may be read another time.
    if (!absl::IsDeadlineExceeded(read)) Drop(hashes[0], name);
    return 0;
  }
  int64_t good = 0;
  for (; good < count; ++good) {
    const BlockHash& hash = hashes[static_cast<size_t>(good)];
    const auto slot =
        bytes.subspan(static_cast<size_t>(good * slot_bytes_), static_cast<size_t>(slot_bytes_));
    if (codec_.Open(cipher, hash, slot)) continue;
    const std::optional<Seal> seal = codec_.ReadSeal(cipher, slot.last(kPage));
    if (seal.has_value() && seal->hash != hash) {
      // Published anew by another worker, with other blocks behind the first: the next look learns them.
      absl::MutexLock lock(&mutex_);
      Forget(name);
    } else {
      RemoveDamaged(name, absl::DataLossError(codec_.encrypts() ? "its tag is wrong under the key"
                                                                : "a checksum is wrong"));
    }
    break;
  }
  absl::MutexLock lock(&mutex_);
  counts_.read += good;
  return good;
}

void SharedStore::Add(const std::string& name, FileEntry entry) {
  if (std::ssize(places_) + std::ssize(entry.hashes) > kMostBlocks) entry.hashes.clear();
  const auto [file, added] = files_.emplace(name, std::move(entry));
  if (!added) return;
  counts_.bytes += file->second.bytes;
  for (size_t slot = 0; slot < file->second.hashes.size(); ++slot) {
    places_[file->second.hashes[slot]] = {.file = &file->first, .slot = static_cast<uint32_t>(slot)};
  }
}

void SharedStore::Forget(const std::string& name) {
  const auto file = files_.find(name);
  if (file == files_.end()) return;
  for (const BlockHash& hash : file->second.hashes) {
    const auto place = places_.find(hash);
    if (place == places_.end() || place->second.file != &file->first) continue;
    places_.erase(place);
    ++counts_.evicted;
  }
  counts_.bytes -= file->second.bytes;
  files_.erase(file);
}

void SharedStore::Drop(const BlockHash& hash, const std::string& name) {
  absl::MutexLock lock(&mutex_);
  const auto place = places_.find(hash);
  if (place != places_.end() && *place->second.file == name) places_.erase(place);
}

void SharedStore::RemoveDamaged(const std::string& name, const absl::Status& status) {
  Note(status, Failure::kCorrupt);
  (void)folder_->Remove(name);
  absl::MutexLock lock(&mutex_);
  Forget(name);
}

void SharedStore::Note(const absl::Status& status, Failure failure) {
  absl::MutexLock lock(&mutex_);
  ++counts_.failures[static_cast<size_t>(failure)];
  if (absl::IsDeadlineExceeded(status) && !std::exchange(silent_, true)) {
    spdlog::warn("the shared folder of KV blocks does not answer: nothing is loaded from it until it does");
  }
  if (failure == Failure::kCorrupt && !std::exchange(damage_said_, true)) {
    spdlog::warn(
        "a KV block in the shared folder is not what was written ({}): it is computed again, as are others; "
        "further ones are only counted",
        std::string(status.message()));
  }
}

BlockStore::Counts SharedStore::counts() const {
  absl::MutexLock lock(&mutex_);
  Counts counts = counts_;
  counts.blocks = std::ssize(places_);
  return counts;
}

void SharedStore::CheckTables() const {
  absl::MutexLock lock(&mutex_);
  int64_t bytes = 0;
  for (const auto& [name, entry] : files_) bytes += entry.bytes;
  BATON_CHECK_EQ(bytes, counts_.bytes);
  for (const auto& [hash, place] : places_) {
    const auto file = files_.find(*place.file);
    BATON_CHECK(file != files_.end() && &file->first == place.file) << hash.ToHex();
    BATON_CHECK(place.slot < file->second.hashes.size() && file->second.hashes[place.slot] == hash);
  }
}

}  // namespace baton::kv::tier
