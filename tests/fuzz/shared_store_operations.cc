#include "tests/fuzz/shared_store_operations.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "engine/kv/tier/shared_store.h"
#include "tests/fakes/faulty_folder.h"
#include "tests/fuzz/operation_sequence.h"
#include "tests/fuzz/tier_blocks.h"

namespace baton::kv::tier {
namespace {

constexpr int64_t kBlockBytes = 100;
constexpr int kNames = 48;
constexpr int kWorkers = 3;
constexpr char kStrange[] = "kv-not-ours";

Identity IdentityOf(int model) {
  Identity identity;
  identity.fingerprint.fill(static_cast<uint8_t>(model));
  identity.block_bytes = kBlockBytes;
  return identity;
}

class Interpreter final : public OperationSequence {
 public:
  explicit Interpreter(std::span<const uint8_t> bytes) : OperationSequence(bytes, kOperations) {
    for (Worker& worker : workers_) Restart(worker);
  }

 private:
  struct Worker {
    Faults faults;
    int model = 1;
    std::vector<DiskKey> keys;
    std::unique_ptr<SharedStore> store;
  };
  // The first ones are what mostly happens.
  enum Operation {
    kAppendRun,
    kAppendMany,
    kSettle,
    kReadRun,
    kRefresh,
    kAppendMore,
    kReadMore,
    kTouch,
    kRestart,
    kDieLater,
    kFlipBit,
    kSwapSlots,
    kTruncate,
    kVanish,
    kStranger,
    kFail,
    kFull,
    kOtherModel,
    kOtherCap,
    kOtherKeys,
    kTimePasses,
    kOperations
  };

  void Restart(Worker& worker) {
    worker.store = nullptr;
    worker.faults.dead = false;
    worker.faults.changes_left = -1;
    worker.faults.bad_reads = worker.faults.bad_writes = worker.faults.flipped_reads = 0;
    const Identity identity = IdentityOf(worker.model);
    auto store = SharedStore::Open(MakeFaultyFolder(disk_.OpenFolder(), worker.faults),
                                   {.bytes = cap(),
                                    .identity = identity,
                                    .keys = worker.keys,
                                    .run_bytes = RunBytes(),
                                    .touch = absl::ZeroDuration()},
                                   clock_);
    if (!store.ok()) return Wrong("it can't be opened: " + store.status().ToString());
    worker.store = *std::move(store);
  }

  int64_t RunBytes() const { return kPage + slots_ * IdentityOf(1).slot_bytes(); }
  int64_t cap() const { return 16 * RunBytes(); }
  Worker& Some() { return workers_[Next() % kWorkers]; }

  void Append(Worker& worker, int name) {
    PageBuffer slot(worker.store->identity().slot_bytes());
    for (int64_t i = 0; i < kBlockBytes; ++i) {
      slot.bytes()[static_cast<size_t>(i)] = ByteFor(worker.model, name, i);
    }
    (void)worker.store->Append(HashFor(worker.model, name), HashFor(worker.model, name / 16), slot);
  }

  void Read(Worker& worker, int first, int count) {
    std::vector<BlockHash> hashes;
    for (int i = 0; i < count; ++i) hashes.push_back(HashFor(worker.model, (first + i) % kNames));
    const int64_t slot_bytes = worker.store->identity().slot_bytes();
    PageBuffer slots(count * slot_bytes);
    const int64_t read = worker.store->ReadRun(hashes, slots);
    if (read > count) Wrong("more than was asked for");
    for (int64_t i = 0; i < read; ++i) {
      for (int64_t at = 0; at < kBlockBytes; ++at) {
        if (slots.bytes()[static_cast<size_t>(i * slot_bytes + at)] !=
            ByteFor(worker.model, (first + static_cast<int>(i)) % kNames, at)) {
          return Wrong(fmt::format("block {} was never written so", first + i));
        }
      }
    }
  }

  std::vector<std::byte>* SomeFile() {
    if (disk_.files().empty()) return nullptr;
    return &std::next(disk_.files().begin(), static_cast<ptrdiff_t>(Next() % disk_.files().size()))
                ->second->bytes;
  }

  void Do(int operation) override {
    Worker& worker = Some();
    switch (operation) {
      case kAppendRun:
      case kAppendMore:
        for (int first = Next() % kNames, count = Next() % 8; count >= 0; --count) {
          Append(worker, (first + count) % kNames);
        }
        break;
      case kAppendMany:
        for (int first = Next() % kNames, i = 0; i < 24; ++i) Append(worker, (first + i) % kNames);
        break;
      case kSettle:
        (void)worker.store->Settle();
        break;
      case kReadRun:
      case kReadMore: {
        const int first = Next() % kNames;
        Read(worker, first, 1 + Next() % 8);
        break;
      }
      case kRefresh:
        (void)worker.store->Refresh();
        break;
      case kTouch:
        worker.store->Touch(HashFor(worker.model, Next() % kNames));
        break;
      case kRestart:
        Restart(worker);
        break;
      case kDieLater:
        worker.faults.torn_bytes = Next() * 33;
        worker.faults.changes_left = Next() % 8;
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
          SwapSlots(*file, IdentityOf(1).slot_bytes(), a, b, Next() % 2 == 0);
        }
        break;
      case kTruncate:
        if (auto* file = SomeFile(); file != nullptr) file->resize(file->size() * Next() / 256);
        break;
      case kVanish:
        if (!disk_.files().empty() && disk_.files().begin()->first != kStrange) {
          disk_.files().erase(disk_.files().begin());
        }
        break;
      case kStranger: {
        // Any bytes under the name of a file that is there, or that may come, or that no worker makes.
        const uint8_t which = Next();
        std::string name = kStrange;
        if (which % 3 == 0) name = fmt::format("{}{:016x}-{:016x}", SharedStore::kPublished, which, Next());
        if (which % 3 == 1 && !disk_.files().empty()) name = disk_.files().begin()->first;
        std::vector<std::byte> bytes(static_cast<size_t>(Next() * 100));
        std::generate(bytes.begin(), bytes.end(), [this] { return static_cast<std::byte>(Next()); });
        auto& file = disk_.files()[name];
        file = std::make_shared<MemoryDisk::Bytes>();
        file->bytes = std::move(bytes);
        strange_ = strange_ || name == kStrange;
        break;
      }
      case kFail:
        (Next() % 2 == 0 ? worker.faults.bad_reads : worker.faults.bad_writes) = Next() % 4;
        worker.faults.flipped_reads = Next() % 3;
        break;
      case kFull:
        worker.faults.full = !worker.faults.full;
        break;
      case kOtherModel:
        worker.model = 1 + Next() % 2;
        Restart(worker);
        break;
      case kOtherCap:
        slots_ = 1 + Next() % 6;
        for (Worker& one : workers_) Restart(one);
        break;
      case kOtherKeys:
        // None, one, or a new one before an old one.
        worker.keys.clear();
        for (int count = Next() % 3; count > 0; --count) {
          worker.keys.emplace_back().fill(static_cast<std::byte>(Next() % 3));
        }
        Restart(worker);
        break;
      case kTimePasses:
        clock_.Advance(absl::Minutes(Next() % 16));
        break;
    }
    if (worker.faults.dead) Restart(worker);
  }

  void Look() override {
    for (const Worker& worker : workers_) {
      if (worker.store != nullptr) worker.store->CheckTables();
    }
  }

  // All begin anew with the smallest cap, and a while later have looked: no file is left whose writer has
  // died, those that count keep to the cap, and what can be found is right.
  void ComeToAnEnd() override {
    slots_ = 1;
    for (Worker& worker : workers_) {
      worker.faults.full = false;
      Restart(worker);
    }
    if (!sound()) return;
    clock_.Advance(absl::Hours(1));
    for (Worker& worker : workers_) {
      if (!worker.store->Refresh().ok()) return Wrong("the folder can't be read");
    }
    int64_t bytes = 0;
    for (const auto& [name, file] : disk_.files()) {
      if (name.starts_with(SharedStore::kUnfinished)) Wrong(name + " has no writer");
      if (name.starts_with(SharedStore::kPublished) && name != kStrange) bytes += std::ssize(file->bytes);
    }
    if (strange_ && !disk_.files().contains(kStrange)) Wrong("a stranger's file is gone");
    if (bytes > cap()) Wrong(fmt::format("{} bytes, the cap is {}", bytes, cap()));
    for (Worker& worker : workers_) {
      for (int name = 0; name < kNames && sound(); ++name) Read(worker, name, 2);
    }
    Look();
  }

  MemoryDisk disk_;
  FakeClock clock_;
  bool strange_ = false;  // kStrange is there
  int64_t slots_ = 2;     // of a run
  std::array<Worker, kWorkers> workers_;
};

}  // namespace

absl::StatusOr<int64_t> RunSharedStoreOperations(std::span<const uint8_t> bytes) {
  return Interpreter(bytes).Run();
}

}  // namespace baton::kv::tier
