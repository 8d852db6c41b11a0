// Promises of every link, as tests that run against each implementation: a file that has a link instantiates
// LinkContractTest with it (link_contract_test.cc; on the emulated GPUs, tests/gpu/emulation).
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "absl/synchronization/notification.h"
#include "engine/device/memory.h"
#include "transfer/link.h"

namespace baton::transfer {

struct LinkPair {
  std::shared_ptr<LinkSender> sender;
  std::shared_ptr<LinkReceiver> receiver;
  // Runs what the receiver has posted to the engine thread, waiting for something if there is nothing.
  std::function<void()> run_engine = [] {};
  // The address of the sender's streams.
  std::string from = "sender:1";
  // Where KV lies on either side: pieces in the memory of each rank by turns, and of so many bytes or a
  // multiple of it.
  std::vector<device::Memory*> sends_from = {&device::HostMemory()}, receives_into = {&device::HostMemory()};
  size_t unit = 1;
};

struct LinkCase {
  const char* name;
  std::function<LinkPair()> make;
};

// Pieces of these sizes, side by side in each of the memories.
class LinkPieces {
 public:
  LinkPieces(const std::vector<device::Memory*>& memories, const std::vector<size_t>& sizes) {
    std::vector<size_t> used(memories.size());
    for (size_t i = 0; i < sizes.size(); ++i) used[i % memories.size()] += sizes[i];
    for (size_t m = 0; m < memories.size(); ++m) {
      auto buffer = memories[m]->Allocate(static_cast<int64_t>(std::max<size_t>(used[m], 1)));
      EXPECT_TRUE(buffer.ok()) << buffer.status();
      buffers_.push_back(*std::move(buffer));
    }
    std::ranges::fill(used, 0);
    for (size_t i = 0; i < sizes.size(); ++i) {
      const size_t m = i % memories.size();
      pieces_.emplace_back(buffers_[m].get() + used[m], sizes[i]);
      memories_.push_back(memories[m]);
      used[m] += sizes[i];
    }
  }
  // All their bytes, one piece after the other.
  void Write(std::span<const std::byte> bytes) {
    for (size_t i = 0; i < pieces_.size(); ++i) {
      const auto size = static_cast<int64_t>(pieces_[i].size());
      EXPECT_TRUE(memories_[i]->Upload(bytes.data(), pieces_[i].data(), size).ok());
      bytes = bytes.subspan(pieces_[i].size());
    }
  }
  std::vector<std::byte> Read() {
    std::vector<std::byte> bytes;
    for (size_t i = 0; i < pieces_.size(); ++i) {
      const size_t at = bytes.size();
      bytes.resize(at + pieces_[i].size());
      const auto size = static_cast<int64_t>(pieces_[i].size());
      EXPECT_TRUE(memories_[i]->Download(pieces_[i].data(), bytes.data() + at, size).ok());
    }
    return bytes;
  }
  std::vector<std::span<const std::byte>> from() const { return {pieces_.begin(), pieces_.end()}; }
  const std::vector<std::span<std::byte>>& to() const { return pieces_; }

 private:
  std::vector<device::Memory::Buffer> buffers_;
  std::vector<std::span<std::byte>> pieces_;
  std::vector<device::Memory*> memories_;  // of each piece
};

class LinkContractTest : public testing::TestWithParam<LinkCase> {
 protected:
  void SetUp() override {
    if (link_.sender == nullptr) GTEST_SKIP() << "this build has no " << GetParam().name;
  }

  // Ships `source` in pieces of `sizes` and receives it into pieces of the same sizes, which hold `target`
  // before and after. shipped: called when Ship has returned, on_the_way: when the message may leave.
  absl::Status Transfer(
      const std::vector<std::byte>& source, const std::vector<size_t>& sizes, std::vector<std::byte>& target,
      const std::function<void(fleet::v1::KvChunk&)>& on_the_way,
      const std::function<void(LinkPieces&)>& shipped = [](LinkPieces&) {}) {
    LinkPieces from(link_.sends_from, sizes), to(link_.receives_into, sizes);
    from.Write(source);
    to.Write(target);
    fleet::v1::KvChunk chunk;
    chunk.set_incarnation(2);  // the receiver's
    if (absl::Status status = link_.sender->Ship(from.from(), chunk); !status.ok()) return status;
    shipped(from);
    absl::Notification ready;
    link_.sender->WhenReady([&] { ready.Notify(); });
    ready.WaitForNotification();
    on_the_way(chunk);
    absl::Status received = absl::UnknownError("done was not called");
    int calls = 0;
    link_.receiver->Receive(chunk, link_.from, to.to(), [&](absl::Status status) {
      ++calls;
      received = std::move(status);
    });
    while (calls == 0) link_.run_engine();
    EXPECT_EQ(calls, 1);
    target = to.Read();
    return received;
  }

  LinkPair link_ = GetParam().make();
};

TEST_P(LinkContractTest, BothEndsNameTheSamePath) {
  EXPECT_EQ(link_.sender->name(), link_.receiver->name());
  EXPECT_EQ(link_.sender->pairing(), link_.receiver->pairing());
  EXPECT_FALSE(link_.sender->name().empty());
}

TEST_P(LinkContractTest, CarriesEveryByteOfRandomPieces) {
  const uint32_t seed = 20;
  std::mt19937 random(seed);
  for (int round = 0; round < 50; ++round) {
    std::vector<size_t> sizes(1 + random() % 8);
    size_t total = 0;
    for (size_t& size : sizes) {
      size = 1 + random() % 5000;
      total += size = (size + link_.unit - 1) / link_.unit * link_.unit;
    }
    std::vector<std::byte> source(total), target(total);
    for (std::byte& byte : source) byte = static_cast<std::byte>(random());
    ASSERT_TRUE(Transfer(source, sizes, target, [](fleet::v1::KvChunk&) {}).ok()) << "seed " << seed;
    ASSERT_EQ(source, target) << "seed " << seed << " round " << round;
  }
}

// Later writes into the pieces, as a memory is written, do not leave.
TEST_P(LinkContractTest, TakesItsCopyBeforeShipReturns) {
  const std::vector<std::byte> source(64, std::byte{1});
  std::vector<std::byte> target(64);
  ASSERT_TRUE(Transfer(
                  source, {64}, target, [](fleet::v1::KvChunk&) {},
                  [](LinkPieces& from) { from.Write(std::vector<std::byte>(64, std::byte{9})); })
                  .ok());
  EXPECT_EQ(target, source);
}

TEST_P(LinkContractTest, AFlippedBitIsDataLossAndNothingIsWritten) {
  const std::vector<std::byte> source(256, std::byte{3});
  std::vector<std::byte> target(256, std::byte{7});
  const std::vector<size_t> sizes =
      link_.unit == 1 ? std::vector<size_t>{100, 156} : std::vector<size_t>{96, 160};
  const absl::Status status = Transfer(source, sizes, target, [](fleet::v1::KvChunk& chunk) {
    if (!chunk.data().empty()) {
      (*chunk.mutable_data())[200] ^= 4;
    } else {
      chunk.set_crc32c(chunk.crc32c() ^ 4);
    }
  });
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(target, std::vector<std::byte>(256, std::byte{7}));
}

}  // namespace baton::transfer
