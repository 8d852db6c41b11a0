// How a SharedStore reads its folder, and removes files there.
#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "common/base/status.h"
#include "engine/kv/tier/shared_store.h"
#include "spdlog/spdlog.h"

namespace baton::kv::tier {
namespace {

// True if `name` is `word` and two numbers of SharedStore::kDigits with a dash between.
bool IsNamed(std::string_view name, std::string_view word) {
  if (!name.starts_with(word) || name.size() != word.size() + 2 * SharedStore::kDigits + 1) return false;
  name.remove_prefix(word.size());
  for (size_t i = 0; i < name.size(); ++i) {
    if (i == SharedStore::kDigits ? name[i] != '-'
                                  : !absl::ascii_isxdigit(static_cast<unsigned char>(name[i])) ||
                                        absl::ascii_isupper(static_cast<unsigned char>(name[i]))) {
      return false;
    }
  }
  return true;
}

}  // namespace

absl::Status SharedStore::Refresh(absl::Duration most) {
  absl::MutexLock sweeping(&sweeping_);
  return Sweep(most);
}

absl::Status SharedStore::Sweep(absl::Duration most) {
  const absl::Time begin = clock_.Now();
  absl::flat_hash_set<std::string> known;
  {
    absl::MutexLock lock(&mutex_);
    for (const auto& [name, entry] : files_) known.insert(name);
  }
  const auto names = folder_->List();
  if (!names.ok()) {
    Note(names.status(), Failure::kRead);
    return names.status();
  }
  std::vector<std::string> unfinished;
  for (const std::string& name : *names) {
    if (IsNamed(name, kUnfinished)) unfinished.push_back(name);
    // Files with other names are not ours to touch.
    if (!IsNamed(name, kPublished) || known.erase(name) > 0) continue;
    if (clock_.Now() - begin > most) continue;
    std::optional<FileEntry> entry = ReadManifest(name);
    if (!entry.has_value()) continue;
    absl::MutexLock lock(&mutex_);
    Add(name, *std::move(entry));
  }
  {
    absl::MutexLock lock(&mutex_);
    for (const std::string& name : known) Forget(name);
    if (std::exchange(silent_, false)) spdlog::info("the shared folder of KV blocks answers again");
  }
  LookAtUnfinished(unfinished);
  TouchUsed();
  MakeRoom(0);
  return absl::OkStatus();
}

std::optional<SharedStore::FileEntry> SharedStore::ReadManifest(const std::string& name) {
  const auto info = folder_->Look(name);
  if (!info.ok()) return std::nullopt;
  FileEntry entry{.bytes = info->bytes, .modified = info->modified};
  const std::string ours = NameOf(0);
  if (name.compare(0, ours.size() - kDigits, ours, 0, ours.size() - kDigits) != 0) return entry;
  const auto file = folder_->Open(name);
  if (absl::IsNotFound(file.status()) || absl::IsDeadlineExceeded(file.status())) return std::nullopt;
  const int64_t slots = (info->bytes - kPage) / slot_bytes_;
  if (!file.ok() || slots < 1 || info->bytes != kPage + slots * slot_bytes_) return entry;
  PageBuffer page(kPage);
  absl::Status read = (*file)->ReadAt(0, page.bytes());
  if (absl::IsDeadlineExceeded(read)) return std::nullopt;
  std::optional<SegmentHeader> header;
  if (read.ok()) header = SegmentHeader::Read(page.bytes());
  if (!header.has_value() || header->identity != identity() || NameOf(header->number) != name) return entry;
  const auto cipher = codec_.CipherOf(header->key);
  if (!cipher.has_value()) return entry;
  read = (*file)->ReadAt(info->bytes - kPage, page.bytes());
  if (absl::IsDeadlineExceeded(read)) return std::nullopt;
  std::optional<Seal> seal;
  if (read.ok()) seal = codec_.ReadSeal(*cipher, page.bytes());
  if (!seal.has_value() || seal->segment != header->number || seal->slot + 1 != slots ||
      std::ssize(seal->earlier) != slots - 1) {
    return entry;
  }
  entry.cipher = *cipher;
  for (auto earlier = seal->earlier.rbegin(); earlier != seal->earlier.rend(); ++earlier) {
    entry.hashes.push_back(earlier->hash);
  }
  entry.hashes.push_back(seal->hash);
  return entry;
}

void SharedStore::LookAtUnfinished(const std::vector<std::string>& names) {
  std::map<std::string, Unfinished> seen;
  int64_t bytes = 0;
  const absl::Time now = clock_.Now();
  for (const std::string& name : names) {
    const auto info = folder_->Look(name);
    if (!info.ok()) continue;
    Unfinished file{.modified = info->modified, .seen = now};
    const auto before = unfinished_.find(name);
    if (before != unfinished_.end() && before->second.modified == file.modified) file = before->second;
    if (now - file.seen > options_.abandoned && folder_->Remove(name).ok()) continue;
    bytes += info->bytes;
    seen.emplace(name, file);
  }
  unfinished_ = std::move(seen);
  absl::MutexLock lock(&mutex_);
  unfinished_bytes_ = bytes;
}

void SharedStore::TouchUsed() {
  std::vector<std::string> names;
  const absl::Time now = clock_.Now();
  {
    absl::MutexLock lock(&mutex_);
    for (auto& [name, entry] : files_) {
      if (!entry.used || now - entry.touched < options_.touch) continue;
      entry.used = false;
      entry.touched = now;
      names.push_back(name);
    }
  }
  for (const std::string& name : names) (void)folder_->Touch(name);
}

void SharedStore::MakeRoom(int64_t more) {
  while (true) {
    std::string name;
    absl::Time modified;
    {
      absl::MutexLock lock(&mutex_);
      if (files_.empty() || counts_.bytes + unfinished_bytes_ + more <= options_.bytes) return;
      const auto oldest = std::min_element(files_.begin(), files_.end(), [](const auto& a, const auto& b) {
        return a.second.modified < b.second.modified;
      });
      name = oldest->first;
      modified = oldest->second.modified;
    }
    // Others may have used it since.
    const auto info = folder_->Look(name);
    if (info.ok() && info->modified > modified) {
      absl::MutexLock lock(&mutex_);
      if (const auto file = files_.find(name); file != files_.end()) file->second.modified = info->modified;
      continue;
    }
    const absl::Status removed = info.ok() ? folder_->Remove(name) : info.status();
    if (!removed.ok() && !absl::IsNotFound(removed)) {
      Note(removed, Failure::kWrite);
      return;
    }
    absl::MutexLock lock(&mutex_);
    Forget(name);
  }
}

}  // namespace baton::kv::tier
