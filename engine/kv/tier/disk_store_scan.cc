// The scan of a DiskStore's folder when it is opened.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/strip.h"
#include "common/base/status.h"
#include "engine/kv/tier/disk_store.h"

namespace baton::kv::tier {
namespace {

constexpr char kPrefix[] = "segment-";

}  // namespace

std::string DiskStore::NameOf(uint64_t number) { return fmt::format("{}{:012}", kPrefix, number); }

absl::Status DiskStore::Scan() {
  absl::MutexLock lock(&mutex_);
  BATON_ASSIGN_OR_RETURN(const std::vector<std::string> names, folder_->List());
  PageBuffer page(kPage);
  for (const std::string& name : names) {
    absl::string_view digits = name;
    uint64_t number = 0;
    // Files with other names are not ours to touch.
    if (!absl::ConsumePrefix(&digits, kPrefix) || !absl::SimpleAtoi(digits, &number) ||
        name != NameOf(number)) {
      continue;
    }
    next_segment_ = std::max(next_segment_, number + 1);
    auto file = folder_->Open(name);
    std::optional<SegmentHeader> header;
    if (file.ok() && (*file)->ReadAt(0, page.bytes()).ok()) header = SegmentHeader::Read(page.bytes());
    if (!header.has_value() || header->identity != identity_ || header->number != number) {
      ++found_.foreign_segments;
      BATON_RETURN_IF_ERROR(folder_->Remove(name));
      continue;
    }
    const auto cipher = codec_.CipherOf(header->key);
    if (!cipher.has_value()) {
      ++found_.other_key_segments;
      BATON_RETURN_IF_ERROR(folder_->Remove(name));
      continue;
    }
    Segment& segment = segments_[number];
    segment.name = name;
    segment.file = *std::move(file);
    segment.cipher = *cipher;
    segment.slots = std::max<int64_t>(0, (segment.file->size() - kPage) / slot_bytes_);
    segment.hashes.resize(static_cast<size_t>(segment.slots));
    counts_.bytes += segment.file->size();
  }
  // In the order in which they were written, so that the later one of two records counts.
  for (auto& [number, segment] : segments_) ScanSegment(number, segment);
  while (counts_.bytes > most_bytes_) DropOldest();
  if (!segments_.empty() && segments_.rbegin()->second.slots == segment_slots_ &&
      segments_.rbegin()->second.cipher == codec_.writing()) {
    active_ = segments_.rbegin()->first;
  }
  found_.blocks = std::ssize(places_);
  counts_.evicted = 0;
  changes_.clear();
  changes_lost_ = false;
  return absl::OkStatus();
}

void DiskStore::ScanSegment(uint64_t number, Segment& segment) {
  PageBuffer page(kPage);
  // From the last slot down, as a seal tells of the slots before it.
  std::vector<Seal::Earlier> told;
  size_t next = 0;
  for (int64_t slot = segment.slots - 1; slot >= 0; --slot) {
    Seal::Earlier record;
    if (next < told.size()) {
      record = told[next++];
      if (record.hash == BlockHash()) continue;
    } else {
      std::optional<Seal> seal;
      if (segment.file->ReadAt(OffsetOf(slot + 1) - kPage, page.bytes()).ok()) {
        seal = codec_.ReadSeal(segment.cipher, page.bytes());
      }
      if (!seal.has_value()) {
        // Behind the last seal is what was never written, and perhaps one slot that is torn.
        if (segment.used > 0) ++found_.unsealed_slots;
        continue;
      }
      record = {.hash = seal->hash, .sequence = seal->sequence};
      if (seal->segment == number && seal->slot == slot) {
        told = std::move(seal->earlier);
        next = 0;
      }
    }
    segment.used = std::max(segment.used, slot + 1);
    next_sequence_ = std::max(next_sequence_, record.sequence + 1);
    Place& place = places_[record.hash];
    if (place.segment != 0 && place.sequence > record.sequence) continue;
    if (place.segment != 0) segments_.at(place.segment).hashes[place.slot] = BlockHash();
    place = {.segment = number, .slot = static_cast<uint32_t>(slot), .sequence = record.sequence};
    segment.hashes[static_cast<size_t>(slot)] = record.hash;
  }
}

}  // namespace baton::kv::tier
