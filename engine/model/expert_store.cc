#include "engine/model/expert_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <string>
#include <utility>

#include "common/base/check.h"
#include "common/base/digest.h"
#include "common/base/status.h"

namespace baton::model {
namespace {

constexpr int kAttempts = 3;

int64_t WholePages(int64_t bytes) { return (bytes + kFarPage - 1) / kFarPage * kFarPage; }

int64_t NanosecondsSince(std::chrono::steady_clock::time_point begin) {
  const auto passed = std::chrono::steady_clock::now() - begin;
  return std::chrono::duration_cast<std::chrono::nanoseconds>(passed).count();
}

}  // namespace

absl::StatusOr<std::unique_ptr<ExpertStore>> ExpertStore::Create(std::unique_ptr<FarMemory> far,
                                                                 ExpertIndex index, int64_t capacity,
                                                                 int readers) {
  int64_t slot_bytes = kFarPage;
  for (const auto& [id, extent] : index) slot_bytes = std::max(slot_bytes, WholePages(extent.bytes));
  const int64_t slots = std::min(capacity / slot_bytes, static_cast<int64_t>(index.size()));
  if (slots < 1) {
    return absl::InvalidArgumentError(
        fmt::format("{} bytes for experts have no room for one, which takes {}: raise --expert-memory",
                    capacity, slot_bytes));
  }
  BATON_ASSIGN_OR_RETURN(device::Memory::Buffer memory, device::HostMemory().Allocate(slots * slot_bytes));
  return std::unique_ptr<ExpertStore>(new ExpertStore(std::move(far), std::move(index), slot_bytes, slots,
                                                      std::move(memory), std::max(1, readers)));
}

ExpertStore::ExpertStore(std::unique_ptr<FarMemory> far, ExpertIndex index, int64_t slot_bytes, int64_t slots,
                         device::Memory::Buffer memory, int readers)
    : far_(std::move(far)),
      index_(std::move(index)),
      slot_bytes_(slot_bytes),
      slots_(slots),
      memory_(std::move(memory)) {
  for (int i = 0; i < readers; ++i) readers_.emplace_back([this] { ReadAsAsked(); });
}

ExpertStore::~ExpertStore() {
  {
    const absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  for (std::thread& reader : readers_) reader.join();
}

ExpertStore::Slots::iterator ExpertStore::Room() {
  if (const int64_t used = std::ssize(used_); used < slots_) {
    used_.emplace_front().bytes = memory_.get() + used * slot_bytes_;
    resident_bytes_.store((used + 1) * slot_bytes_, std::memory_order_relaxed);
    return used_.begin();
  }
  // The held ones are in front, and there are no more of them than slots.
  const auto slot = std::prev(used_.end());
  BATON_CHECK(!slot->held) << " more experts held than there are slots";
  if (!slot->empty) at_.erase(slot->id);
  slot->empty = true;
  used_.splice(used_.begin(), used_, slot);
  return slot;
}

absl::Status ExpertStore::Read(ExpertId id, Slot& slot) {
  const ExpertExtent& extent = index_.at(id);
  const int64_t bytes = WholePages(extent.bytes);
  absl::Status status;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    if (attempt > 0) retries_.fetch_add(1, std::memory_order_relaxed);
    status = far_->Read(extent.offset, {slot.bytes, static_cast<size_t>(bytes)});
    if (!status.ok()) continue;
    bytes_read_.fetch_add(bytes, std::memory_order_relaxed);
    const std::span<const std::byte> image(slot.bytes, static_cast<size_t>(extent.bytes));
    if (Crc32c(image) == extent.crc) return absl::OkStatus();
    status = absl::DataLossError("its checksum is not that of its bytes");
  }
  return absl::Status(status.code(),
                      fmt::format("expert {} of layer {} can't be read from {}: {}; pack the experts again "
                                  "(baton model pack), or look after the disk",
                                  id.expert, id.layer, far_->name(), std::string(status.message())));
}

void ExpertStore::ReadAsAsked() {
  while (true) {
    Job* job = nullptr;
    {
      const absl::MutexLock lock(&mutex_);
      mutex_.Await(absl::Condition(this, &ExpertStore::Asked));
      if (stopping_) return;
      job = &jobs_[next_++];
    }
    absl::Status status = Read(job->slot->id, *job->slot);
    const absl::MutexLock lock(&mutex_);
    job->status = std::move(status);
    job->done = true;
    if (++read_ == jobs_.size()) {
      read_ns_.fetch_add(NanosecondsSince(asked_), std::memory_order_relaxed);
    }
  }
}

std::span<const ExpertStore::Held> ExpertStore::Begin(std::span<const ExpertId> experts) {
  BATON_CHECK(held_.empty()) << " experts are held already";
  experts = experts.first(std::min(experts.size(), static_cast<size_t>(slots_)));
  const auto hold = [&](size_t which, Slot& slot) {
    BATON_CHECK(!slot.held) << " an expert twice";
    slot.held = true;
    held_.push_back({which, {slot.bytes, static_cast<size_t>(index_.at(experts[which]).bytes)}});
  };
  // Resident experts are held first, so that no miss evicts them.
  std::vector<size_t> missing;
  for (size_t i = 0; i < experts.size(); ++i) {
    const auto found = at_.find(experts[i]);
    if (found == at_.end()) {
      BATON_CHECK(index_.contains(experts[i])) << " expert " << experts[i].expert;
      missing.push_back(i);
      continue;
    }
    hold(i, *found->second);
    used_.splice(used_.begin(), used_, found->second);
  }
  there_ = hit_ = held_.size();
  std::vector<Job> jobs;
  for (const size_t i : missing) {
    const Slots::iterator room = Room();
    room->id = experts[i];
    hold(i, *room);
    jobs.push_back({.slot = room, .status = {}, .done = false});
  }
  hits_.fetch_add(static_cast<int64_t>(hit_), std::memory_order_relaxed);
  misses_.fetch_add(std::ssize(jobs), std::memory_order_relaxed);
  const absl::MutexLock lock(&mutex_);
  jobs_ = std::move(jobs);
  next_ = read_ = 0;
  asked_ = std::chrono::steady_clock::now();
  return held_;
}

absl::StatusOr<size_t> ExpertStore::Await(size_t count) {
  BATON_CHECK(count <= held_.size()) << " that many are not held";
  const absl::MutexLock lock(&mutex_);
  for (; there_ < held_.size(); ++there_) {
    const Job& job = jobs_[there_ - hit_];
    if (!job.done) {
      if (there_ >= count) break;
      const auto begin = std::chrono::steady_clock::now();
      mutex_.Await(absl::Condition(&job.done));
      stall_ns_.fetch_add(NanosecondsSince(begin), std::memory_order_relaxed);
    }
    if (!job.status.ok()) return job.status;
  }
  return there_;
}

void ExpertStore::Release() {
  {
    const absl::MutexLock lock(&mutex_);
    for (const Job& job : jobs_) {
      mutex_.Await(absl::Condition(&job.done));
      if (!job.status.ok()) continue;
      job.slot->empty = false;
      BATON_CHECK(at_.emplace(job.slot->id, job.slot).second) << " an expert twice";
    }
    jobs_.clear();
    next_ = read_ = 0;
  }
  resident_.store(std::ssize(at_), std::memory_order_relaxed);
  for (Slot& slot : used_) {
    if (!slot.held) break;
    slot.held = false;
  }
  held_.clear();
  there_ = hit_ = 0;
}

absl::StatusOr<std::vector<std::span<const std::byte>>> ExpertStore::Hold(std::span<const ExpertId> experts) {
  const std::span<const Held> held = Begin(experts);
  std::vector<std::span<const std::byte>> images(held.size());
  for (const Held& one : held) images[one.which] = one.image;
  if (const absl::StatusOr<size_t> there = Await(held.size()); !there.ok()) {
    Release();
    return there.status();
  }
  return images;
}

absl::Status ExpertStore::ReadAll() {
  std::vector<ExpertId> ids;
  for (const auto& [id, extent] : index_) ids.push_back(id);
  for (std::span<const ExpertId> rest = ids; !rest.empty();) {
    BATON_ASSIGN_OR_RETURN(const auto held, Hold(rest));
    Release();
    rest = rest.subspan(held.size());
  }
  hits_ = misses_ = stall_ns_ = read_ns_ = 0;
  return absl::OkStatus();
}

ExpertStore::Stats ExpertStore::stats() const {
  const auto get = [](const std::atomic<int64_t>& value) { return value.load(std::memory_order_relaxed); };
  return {.hits = get(hits_),
          .misses = get(misses_),
          .bytes_read = get(bytes_read_),
          .read_seconds = static_cast<double>(get(read_ns_)) * 1e-9,
          .retries = get(retries_),
          .stall_seconds = static_cast<double>(get(stall_ns_)) * 1e-9,
          .resident = get(resident_),
          .resident_bytes = get(resident_bytes_)};
}

void ExpertStore::CheckInvariants() const {
  BATON_CHECK(std::ssize(used_) <= slots_);
  BATON_CHECK_EQ(resident_bytes_.load(), std::ssize(used_) * slot_bytes_);
  size_t full = 0;
  bool held = true;
  for (const Slot& slot : used_) {
    BATON_CHECK(held || !slot.held) << " a held expert behind one that may go";
    held = slot.held;
    if (slot.empty) continue;
    ++full;
    const auto at = at_.find(slot.id);
    BATON_CHECK(at != at_.end() && &*at->second == &slot) << " expert " << slot.id.expert;
  }
  BATON_CHECK_EQ(full, at_.size());
}

}  // namespace baton::model
