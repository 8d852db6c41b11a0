// The host link for KV on a device: the thread that issues work waits for none of it.
#include "transfer/staged_host_link.h"

#include <gtest/gtest.h>

#include "absl/synchronization/notification.h"
#include "common/base/digest.h"
#include "common/base/mailbox.h"
#include "tests/fakes/far_memory.h"

namespace baton::transfer {
namespace {

class StagedHostLinkTest : public testing::Test {
 protected:
  std::span<const std::byte> Bytes() const { return {memory_bytes_, sizeof memory_bytes_}; }

  device::FarMemory memory_;
  std::byte memory_bytes_[64] = {};
};

TEST_F(StagedHostLinkTest, ShipWaitsForNothingAndTheChunkFollows) {
  auto sender = *StagedHostLinkSender::Create(memory_, 1024, [] {});
  memory_.Announce(3);
  memory_.HoldTakes(true);
  std::vector<std::string> sent;
  fleet::v1::KvChunk chunks[2];
  for (int i = 0; i < 2; ++i) {
    memory_bytes_[0] = static_cast<std::byte>('a' + i);
    const std::span<const std::byte> pieces[] = {Bytes().first(16), Bytes().last(16)};
    ASSERT_TRUE(sender->Ship(pieces, chunks[i]).ok());
    sender->WhenReady([&, i] { sent.push_back(chunks[i].data()); });
  }
  EXPECT_EQ(memory_.gathered_after(), 3);
  sender->WhenReady([&] { sent.push_back("finish"); });
  // A later step writes the same bytes.
  memory_bytes_[0] = std::byte{'z'};
  sender->Flush(absl::ZeroDuration());
  EXPECT_TRUE(sent.empty()) << "handed on before the device was done";
  memory_.HoldTakes(false);
  sender->Flush(absl::InfiniteDuration());
  const std::string rest(31, '\0');
  EXPECT_EQ(sent, (std::vector<std::string>{"a" + rest, "b" + rest, "finish"}));
  EXPECT_EQ(chunks[1].crc32c(), Crc32c(chunks[1].data()));
}

TEST_F(StagedHostLinkTest, IsCongestedUntilHalfOfItsRoomIsFree) {
  absl::Notification woken;
  auto sender = *StagedHostLinkSender::Create(memory_, 100, [&] { woken.Notify(); });
  memory_.HoldTakes(true);
  fleet::v1::KvChunk chunk;
  const std::span<const std::byte> pieces[] = {Bytes()};
  EXPECT_FALSE(sender->congested());
  ASSERT_TRUE(sender->Ship(pieces, chunk).ok());
  EXPECT_TRUE(sender->congested());
  EXPECT_FALSE(woken.HasBeenNotified());
  memory_.HoldTakes(false);
  woken.WaitForNotification();
  EXPECT_FALSE(sender->congested());
}

TEST_F(StagedHostLinkTest, WhatWasShippedLeavesBeforeTheSenderGoes) {
  int sent = 0;
  fleet::v1::KvChunk chunk;
  {
    auto sender = *StagedHostLinkSender::Create(memory_, 1024, [] {});
    const std::span<const std::byte> pieces[] = {Bytes()};
    ASSERT_TRUE(sender->Ship(pieces, chunk).ok());
    sender->WhenReady([&] { ++sent; });
  }
  EXPECT_EQ(sent, 1);
  EXPECT_EQ(chunk.data().size(), Bytes().size());
}

TEST_F(StagedHostLinkTest, AReceiverTellsOnTheEngineThreadOrWhenItCloses) {
  Mailbox<absl::AnyInvocable<void()>> engine(10);
  StagedHostLinkReceiver receiver(
      memory_, [&](absl::AnyInvocable<void()> task) { return engine.PostAlways(std::move(task)); });
  fleet::v1::KvChunk chunk;
  chunk.set_data(std::string(64, 'k'));
  chunk.set_crc32c(Crc32c(chunk.data()));
  const std::span<std::byte> pieces[] = {{memory_bytes_, 32}, {memory_bytes_ + 32, 32}};
  std::vector<absl::Status> told;
  const auto done = [&](absl::Status status) { told.push_back(std::move(status)); };
  receiver.Receive(chunk, "sender:1", pieces, done);
  for (auto& task : engine.WaitAndTakeAll(absl::InfiniteDuration())) {
    EXPECT_TRUE(told.empty());
    task();
  }
  ASSERT_EQ(told.size(), 1u);
  EXPECT_TRUE(told[0].ok()) << told[0];
  EXPECT_EQ(memory_bytes_[63], std::byte{'k'});

  // A wrong size is known at once; a wrong sum leaves the blocks as they are.
  receiver.Receive(chunk, "sender:1", std::span(pieces).first(1), done);
  ASSERT_EQ(told.size(), 2u);
  EXPECT_TRUE(absl::IsDataLoss(told[1]));
  engine.Close();
  fleet::v1::KvChunk damaged = chunk;
  (*damaged.mutable_data())[5] ^= 1;
  memory_bytes_[5] = std::byte{'o'};
  receiver.Receive(damaged, "sender:1", pieces, done);
  receiver.Close();
  ASSERT_EQ(told.size(), 3u);
  EXPECT_TRUE(absl::IsDataLoss(told[2]));
  EXPECT_EQ(memory_bytes_[5], std::byte{'o'});
}

}  // namespace
}  // namespace baton::transfer
