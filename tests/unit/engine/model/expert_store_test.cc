// The store of experts over a far memory that is scripted: what is read when, what goes, and what faults
// become. Every expert that is held has its own bytes, whatever happened before.
#include "engine/model/expert_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <functional>
#include <mutex>
#include <random>
#include <set>
#include <utility>

#include "common/base/digest.h"
#include "tests/patience.h"

namespace baton::model {
namespace {

using testing::HasSubstr;

// Experts of random bytes. `script` may change what a read gives.
class FakeFar final : public FarMemory {
 public:
  using Script = std::function<absl::Status(int64_t offset, std::span<std::byte> to)>;

  FakeFar(std::vector<std::byte> bytes, Script& script) : bytes_(std::move(bytes)), script_(script) {}
  std::string name() const override { return "a far place"; }
  absl::Status Read(int64_t offset, std::span<std::byte> to) override {
    std::ranges::copy(std::span(bytes_).subspan(static_cast<size_t>(offset), to.size()), to.begin());
    return script_ == nullptr ? absl::OkStatus() : script_(offset, to);
  }

 private:
  const std::vector<std::byte> bytes_;
  Script& script_;
};

class ExpertStoreTest : public testing::Test {
 protected:
  static constexpr int kLayers = 3, kExperts = 8;

  ExpertStoreTest() {
    for (int layer = 0; layer < kLayers; ++layer) {
      for (int expert = 0; expert < kExperts; ++expert) {
        const auto size = std::uniform_int_distribution<int64_t>(1, 3 * kFarPage)(random_);
        ExpertExtent extent = {.offset = std::ssize(bytes_), .bytes = size};
        for (int64_t i = 0; i < size; ++i) bytes_.push_back(static_cast<std::byte>(random_() & 0xff));
        extent.crc = Crc32c(std::span<const std::byte>(bytes_).last(static_cast<size_t>(size)));
        bytes_.resize((bytes_.size() + kFarPage - 1) / kFarPage * kFarPage);
        index_[{layer, expert}] = extent;
      }
    }
  }
  std::unique_ptr<ExpertStore> Make(int64_t capacity, int readers = 2) {
    auto store = ExpertStore::Create(std::make_unique<FakeFar>(bytes_, script_), index_, capacity, readers);
    EXPECT_TRUE(store.ok()) << store.status();
    return *std::move(store);
  }
  void ExpectBytes(std::span<const ExpertId> ids, std::span<const std::span<const std::byte>> images) const {
    for (size_t i = 0; i < images.size(); ++i) {
      const ExpertExtent& extent = index_.at(ids[i]);
      ASSERT_EQ(std::ssize(images[i]), extent.bytes);
      ASSERT_EQ(std::memcmp(images[i].data(), bytes_.data() + extent.offset, images[i].size()), 0)
          << "expert " << ids[i].expert << " of layer " << ids[i].layer;
      ASSERT_EQ(reinterpret_cast<uintptr_t>(images[i].data()) % kFarPage, 0u);
    }
  }

  static constexpr uint64_t kSeed = 41;
  static constexpr int64_t kSlot = 3 * kFarPage;
  std::mt19937_64 random_{kSeed};
  std::vector<std::byte> bytes_;
  ExpertIndex index_;
  FakeFar::Script script_;
};

// Conservation under random use and random faults: bytes within the capacity, right bytes for whatever is
// held, nothing that is held goes, hits where a model of LRU has them.
TEST_F(ExpertStoreTest, HoldsWhatItSaysWithinItsCapacityUnderRandomUseAndFaults) {
  SCOPED_TRACE(testing::Message() << "seed " << kSeed);
  std::mutex mutex;
  int faults = 0;  // in a thousand
  script_ = [&](int64_t, std::span<std::byte> to) -> absl::Status {
    const std::lock_guard lock(mutex);
    const auto draw = static_cast<int>(random_() % 1000);
    if (draw < faults / 2) return absl::UnavailableError("an error of input and output");
    if (draw < faults) to[random_() % to.size()] ^= std::byte{16};
    return absl::OkStatus();
  };
  const int rounds = kSanitized ? 300 : 3000;
  for (const int slots : {1, 2, 5, 13, kLayers * kExperts, 100}) {
    for (const int rate : {0, 20, 500}) {
      SCOPED_TRACE(testing::Message() << slots << " slots, " << rate << " faults in a thousand");
      faults = rate;
      const auto store = Make(slots * kSlot + kFarPage, 1 + slots % 3);
      ASSERT_EQ(store->slots(), std::min(slots, kLayers * kExperts));
      std::vector<ExpertId> recent;  // the last used first
      for (int round = 0; round < rounds / 6; ++round) {
        const auto layer = static_cast<int32_t>(random_() % kLayers);
        std::vector<ExpertId> ids;
        for (int32_t e = 0; e < kExperts; ++e) {
          if (random_() % 3 == 0) ids.push_back({layer, e});
        }
        const ExpertStore::Stats before = store->stats();
        const auto held = store->Hold(ids);
        store->CheckInvariants();
        const ExpertStore::Stats after = store->stats();
        ASSERT_LE(after.resident_bytes, slots * kSlot + kFarPage);
        ASSERT_LE(after.resident, store->slots());
        if (!held.ok()) {
          ASSERT_GT(rate, 0) << held.status();
          recent.clear();
          continue;
        }
        ASSERT_EQ(held->size(), std::min(ids.size(), static_cast<size_t>(store->slots())));
        ExpectBytes(ids, *held);
        if (rate == 0) {
          // Hits come to the front one by one, then misses.
          int64_t hits = 0;
          std::vector<ExpertId> missed;
          const std::vector<ExpertId> earlier = recent;
          for (size_t i = 0; i < held->size(); ++i) {
            if (std::ranges::find(earlier, ids[i]) == earlier.end()) {
              missed.push_back(ids[i]);
              continue;
            }
            ++hits;
            std::erase(recent, ids[i]);
            recent.insert(recent.begin(), ids[i]);
          }
          for (const ExpertId& id : missed) recent.insert(recent.begin(), id);
          recent.resize(std::min(recent.size(), static_cast<size_t>(store->slots())));
          ASSERT_EQ(after.hits - before.hits, hits);
          ASSERT_EQ(after.misses - before.misses, std::ssize(*held) - hits);
        }
        store->Release();
        store->CheckInvariants();
      }
    }
  }
}

TEST_F(ExpertStoreTest, MissesOfAStepAreReadTogether) {
  std::mutex mutex;
  std::condition_variable both;
  int begun = 0;
  // A read ends once the other has begun.
  script_ = [&](int64_t, std::span<std::byte>) -> absl::Status {
    std::unique_lock lock(mutex);
    ++begun;
    both.notify_all();
    return both.wait_for(lock, Scaled(std::chrono::seconds(20)), [&] { return begun >= 2; })
               ? absl::OkStatus()
               : absl::DeadlineExceededError("one after the other");
  };
  const auto store = Make(4 * kSlot, 2);
  const std::vector<ExpertId> ids = {{0, 3}, {0, 5}};
  const auto held = store->Hold(ids);
  ASSERT_TRUE(held.ok()) << held.status();
  ExpectBytes(ids, *held);
  EXPECT_GT(store->stats().read_seconds, 0);
}

// Loaded experts are given at once, while the others are read; held ones stay, and an error of one read
// leaves those that came.
TEST_F(ExpertStoreTest, GivesExpertsAsTheyCome) {
  const auto store = Make(4 * kSlot, 2);
  const std::vector<ExpertId> first = {{0, 2}, {0, 6}};
  ASSERT_TRUE(store->Hold(first).ok());
  store->Release();
  std::mutex mutex;
  std::condition_variable changed;
  std::set<int64_t> let;  // offsets
  bool fail = false;
  script_ = [&](int64_t offset, std::span<std::byte>) -> absl::Status {
    std::unique_lock lock(mutex);
    if (!changed.wait_for(lock, Scaled(std::chrono::seconds(20)), [&] { return let.contains(offset); })) {
      return absl::DeadlineExceededError("not let");
    }
    return fail && offset == index_.at({0, 4}).offset ? absl::UnavailableError("gone") : absl::OkStatus();
  };
  const auto allow = [&](ExpertId id) {
    const std::lock_guard lock(mutex);
    let.insert(index_.at(id).offset);
    changed.notify_all();
  };
  const std::vector<ExpertId> ids = {{0, 1}, {0, 2}, {0, 4}, {0, 6}, {0, 7}};
  const std::span<const ExpertStore::Held> held = store->Begin(ids);
  ASSERT_EQ(held.size(), 4u);
  std::vector<size_t> order;
  for (const ExpertStore::Held& one : held) order.push_back(one.which);
  EXPECT_THAT(order, testing::ElementsAre(1, 3, 0, 2));
  const auto expect_there = [&](size_t count) {
    for (const ExpertStore::Held& one : held.first(count)) {
      ExpectBytes(std::span(&ids[one.which], 1), std::span(&one.image, 1));
    }
  };
  EXPECT_EQ(*store->Await(1), 2u);
  expect_there(2);
  allow({0, 1});
  EXPECT_EQ(*store->Await(3), 3u);
  expect_there(3);
  allow({0, 4});
  EXPECT_EQ(*store->Await(4), 4u);
  expect_there(4);
  store->CheckInvariants();
  store->Release();
  store->CheckInvariants();

  // One of two reads fails: the other one's expert stays.
  const std::vector<ExpertId> others = {{1, 0}, {1, 1}, {1, 2}, {1, 3}};
  for (const ExpertId& id : others) allow(id);
  ASSERT_TRUE(store->Hold(others).ok());
  store->Release();
  fail = true;
  allow({0, 5});
  const std::vector<ExpertId> two = {{0, 4}, {0, 5}};
  EXPECT_EQ(store->Begin(two).size(), 2u);
  EXPECT_EQ(store->Await(2).status().code(), absl::StatusCode::kUnavailable);
  store->Release();
  store->CheckInvariants();
  const int64_t hits = store->stats().hits;
  const std::vector<ExpertId> five = {{0, 5}};
  ASSERT_TRUE(store->Hold(five).ok());
  EXPECT_EQ(store->stats().hits, hits + 1);
}

TEST_F(ExpertStoreTest, AReadThatFailsOnceIsRepeatedAndOneThatFailsAlwaysIsAnErrorThatPasses) {
  const auto store = Make(4 * kSlot);
  const std::vector<ExpertId> ids = {{1, 2}};
  int times = 0, failing = 1;
  bool flip = true;
  script_ = [&](int64_t, std::span<std::byte> to) -> absl::Status {
    if (times++ >= failing) return absl::OkStatus();
    if (!flip) return absl::DataLossError("the file ends too early");
    to[0] ^= std::byte{1};
    return absl::OkStatus();
  };
  auto held = store->Hold(ids);
  ASSERT_TRUE(held.ok()) << held.status();
  ExpectBytes(ids, *held);
  EXPECT_EQ(store->stats().retries, 1);
  store->Release();

  const std::vector<ExpertId> others = {{1, 2}, {1, 4}};
  for (const bool flipped : {true, false}) {
    times = 0, failing = 100, flip = flipped;
    held = store->Hold(others);
    EXPECT_EQ(held.status().code(), absl::StatusCode::kDataLoss);
    EXPECT_THAT(std::string(held.status().message()),
                HasSubstr("expert 4 of layer 1 can't be read from a far place"));
    store->CheckInvariants();
  }
  failing = 0;
  held = store->Hold(others);
  ASSERT_TRUE(held.ok()) << held.status();
  ExpectBytes(others, *held);
}

TEST_F(ExpertStoreTest, ReadingAllFindsDamageAndLeavesWhatHasRoom) {
  int64_t reads = 0;
  script_ = [&](int64_t, std::span<std::byte>) {
    ++reads;
    return absl::OkStatus();
  };
  for (const int slots : {1, 5, kLayers * kExperts}) {
    reads = 0;
    const auto store = Make(slots * kSlot, 1);
    ASSERT_TRUE(store->ReadAll().ok());
    store->CheckInvariants();
    EXPECT_EQ(reads, kLayers * kExperts);
    const ExpertStore::Stats stats = store->stats();
    EXPECT_EQ(stats.resident, slots);
    EXPECT_EQ(stats.hits + stats.misses, 0);
    EXPECT_EQ(stats.stall_seconds, 0);
    const std::vector<ExpertId> last = {{kLayers - 1, kExperts - 1}};
    const auto held = store->Hold(last);
    ASSERT_TRUE(held.ok()) << held.status();
    ExpectBytes(last, *held);
    EXPECT_EQ(store->stats().hits, 1);
  }
  const int64_t damaged = index_.at({2, 1}).offset;
  script_ = [&](int64_t offset, std::span<std::byte> to) {
    if (offset == damaged) to[0] ^= std::byte{128};
    return absl::OkStatus();
  };
  const absl::Status status = Make(5 * kSlot)->ReadAll();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), HasSubstr("expert 1 of layer 2 can't be read from"));
}

TEST_F(ExpertStoreTest, RefusesMemoryThatHasNoRoomForOne) {
  const auto store = ExpertStore::Create(std::make_unique<FakeFar>(bytes_, script_), index_, kSlot - 1, 1);
  EXPECT_EQ(store.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(store.status().message()), HasSubstr("raise --expert-memory"));
}

}  // namespace
}  // namespace baton::model
