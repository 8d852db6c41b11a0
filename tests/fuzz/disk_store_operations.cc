#include "tests/fuzz/disk_store_operations.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "engine/kv/tier/disk_store.h"
#include "tests/fakes/faulty_folder.h"
#include "tests/fuzz/operation_sequence.h"
#include "tests/fuzz/tier_blocks.h"

namespace baton::kv::tier {
namespace {

constexpr int64_t kBlockBytes = 100;
constexpr int kNames = 64;

class Interpreter final : public OperationSequence {
 public:
  explicit Interpreter(std::span<const uint8_t> bytes) : OperationSequence(bytes, kOperations) { Restart(); }

 private:
  // The first ones are what mostly happens.
  enum Operation {
    kAppend,
    kAppendRun,
    kRead,
    kReadRun,
    kTouch,
    kAppendMore,
    kReadMore,
    kRestart,
    kDieLater,
    kFlipBit,
    kSwapSlots,
    kTruncate,
    kFail,
    kFull,
    kOtherModel,
    kOtherCap,
    kTakeChanges,
    kOtherKeys,
    kOperations
  };

  void Restart() {
    store_ = nullptr;
    faults_.dead = false;
    faults_.changes_left = -1;
    faults_.bad_reads = faults_.bad_writes = faults_.flipped_reads = 0;
    Identity identity;
    identity.fingerprint.fill(static_cast<uint8_t>(model_));
    identity.block_bytes = kBlockBytes;
    cap_ = 16 * (kPage + slots_ * identity.slot_bytes());
    auto store = DiskStore::Open(MakeFaultyFolder(disk_.OpenFolder(), faults_),
                                 {.bytes = cap_, .identity = identity, .keys = keys_});
    if (!store.ok()) return Wrong("it can't be opened: " + store.status().ToString());
    store_ = *std::move(store);
    known_.clear();
    for (const BlockHash& hash : store_->Stored()) known_.insert(hash);
  }

  void Append(int name) {
    PageBuffer slot(store_->identity().slot_bytes());
    for (int64_t i = 0; i < kBlockBytes; ++i) slot.bytes()[static_cast<size_t>(i)] = ByteFor(model_, name, i);
    const BlockHash hash = HashFor(model_, name);
    const absl::Status written = store_->Append(hash, HashFor(model_, name % 3), slot);
    if (written.ok() != store_->contains(hash))
      Wrong(fmt::format("block {} is there, or not: {}", name, written.ToString()));
  }

  void Read(int first, int count) {
    std::vector<BlockHash> hashes;
    for (int i = 0; i < count; ++i) hashes.push_back(HashFor(model_, (first + i) % kNames));
    const int64_t slot_bytes = store_->identity().slot_bytes();
    PageBuffer slots(count * slot_bytes);
    const bool clean = !damaged_ && faults_.bad_reads == 0 && faults_.flipped_reads == 0 && !faults_.dead;
    const bool there = store_->contains(hashes[0]);
    const int64_t read = store_->ReadRun(hashes, slots);
    if (read > count) Wrong("more than was asked for");
    if (clean && there != (read > 0)) Wrong(fmt::format("block {} can't be read", first));
    for (int64_t i = 0; i < read; ++i) {
      for (int64_t at = 0; at < kBlockBytes; ++at) {
        if (slots.bytes()[static_cast<size_t>(i * slot_bytes + at)] !=
            ByteFor(model_, (first + static_cast<int>(i)) % kNames, at)) {
          return Wrong(fmt::format("block {} was never written so", first + i));
        }
      }
    }
  }

  std::vector<std::byte>* SomeFile() {
    if (disk_.files().empty()) return nullptr;
    damaged_ = true;
    return &std::next(disk_.files().begin(), static_cast<ptrdiff_t>(Next() % disk_.files().size()))
                ->second->bytes;
  }

  void Do(int operation) override {
    switch (operation) {
      case kAppend:
      case kAppendMore:
        Append(Next() % kNames);
        break;
      case kAppendRun:
        for (int first = Next() % kNames, count = Next() % 8; count > 0; --count)
          Append((first + count) % kNames);
        break;
      case kRead:
      case kReadMore:
        Read(Next() % kNames, 1);
        break;
      case kReadRun: {
        const int first = Next() % kNames;
        Read(first, 1 + Next() % 8);
        break;
      }
      case kTouch:
        store_->Touch(HashFor(model_, Next() % kNames));
        break;
      case kRestart:
        Restart();
        break;
      case kDieLater:
        faults_.torn_bytes = Next() * 33;
        faults_.changes_left = Next() % 8;
        break;
      case kFlipBit:
        if (auto* file = SomeFile(); file != nullptr) {
          const size_t at = (Next() * 256u + Next()) * 7u;
          FlipBit(*file, at, Next());
        }
        break;
      case kSwapSlots:
        if (auto* file = SomeFile(); file != nullptr) {
          const uint8_t a = Next(), b = Next();
          SwapSlots(*file, store_->identity().slot_bytes(), a, b, Next() % 2 == 0);
        }
        break;
      case kTruncate:
        if (auto* file = SomeFile(); file != nullptr) {
          file->resize(file->size() * Next() / 256);
          Restart();  // sizes are looked at when files are opened
        }
        break;
      case kFail:
        (Next() % 2 == 0 ? faults_.bad_reads : faults_.bad_writes) = Next() % 4;
        faults_.flipped_reads = Next() % 3;
        break;
      case kFull:
        faults_.full = !faults_.full;
        break;
      case kOtherModel:
        if (Next() % 4 == 0) {
          model_ = 1 + Next() % 3;
          Restart();
        }
        break;
      case kOtherCap:
        slots_ = 1 + Next() % 6;
        Restart();
        break;
      case kTakeChanges:
        TakeChanges();
        break;
      case kOtherKeys:
        // None, one, or a new one before an old one.
        if (Next() % 2 == 0) {
          keys_.clear();
          for (int count = Next() % 3; count > 0; --count)
            keys_.emplace_back().fill(static_cast<std::byte>(Next() % 3));
          Restart();
        }
        break;
    }
    if (faults_.dead) Restart();
  }

  void TakeChanges() {
    const BlockPool::Changes changes = store_->TakeChanges();
    for (const BlockHash& hash : changes.evicted) known_.erase(hash);
    for (const BlockHash& hash : changes.stored) known_.insert(hash);
    const auto stored = store_->Stored();
    if (known_ != std::set<BlockHash>(stored.begin(), stored.end())) Wrong("changes do not add up");
  }

  void Look() override {
    if (store_ == nullptr) return;
    store_->CheckTables();
    if (disk_.bytes() > cap_) Wrong(fmt::format("{} bytes, the cap is {}", disk_.bytes(), cap_));
  }

  void ComeToAnEnd() override {
    if (!sound()) return;
    Restart();
    for (int name = 0; name < kNames && sound(); ++name) Read(name, 1);
    Look();
  }

  MemoryDisk disk_;
  Faults faults_;
  int model_ = 1;
  std::vector<DiskKey> keys_;
  int64_t slots_ = 2;  // of a segment
  int64_t cap_ = 0;
  bool damaged_ = false;
  std::unique_ptr<DiskStore> store_;
  std::set<BlockHash> known_;
};

}  // namespace

absl::StatusOr<int64_t> RunDiskStoreOperations(std::span<const uint8_t> bytes) {
  return Interpreter(bytes).Run();
}

}  // namespace baton::kv::tier
