#include "transfer/shipment.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>

#include "transfer/host_link.h"
#include "transfer/intake.h"

namespace baton::transfer {
namespace {

const kv::KvLayout kShippedLayout = {.layers = 3, .kv_heads = 2, .head_dim = 8};

void Fill(kv::KvStore& store, BlockId block, int seed) {
  auto bytes = store.layers(block, 0, kShippedLayout.layers);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(seed * 31 + i);
}

TEST(ShipmentTest, WhatIsShippedIsWhatArrivesCutToSizeAndNeverOutsideTheTicket) {
  kv::KvStore from = kv::KvStore::Create(kShippedLayout, 10).value();
  kv::KvStore to = kv::KvStore::Create(kShippedLayout, 10).value();
  const std::vector<BlockId> here = {BlockId(9), BlockId(1), BlockId(4), BlockId(3), BlockId(7)};
  const std::vector<BlockId> there = {BlockId(0), BlockId(8), BlockId(2), BlockId(5), BlockId(6)};
  for (size_t i = 0; i < here.size(); ++i) Fill(from, here[i], static_cast<int>(i));
  const protocol::Ticket ticket = {Incarnation(1), TicketId(2), 1, std::vector<Generation>(3, Generation(4))};
  HostLinkSender sender;
  HostLinkReceiver receiver;
  Intake intake(ticket, there, to, receiver);
  intake.Request();
  // Two blocks' worth of one layer fit in a chunk.
  Shipment shipment(ticket, sender, from, 2 * kShippedLayout.layer(0).bytes());
  int chunks = 0;
  const auto send = [&](fleet::v1::KvChunk chunk) {
    ++chunks;
    EXPECT_LE(static_cast<int64_t>(chunk.data().size()), 2 * kShippedLayout.layer(0).bytes());
    intake.Accept(chunk, [](absl::Status status) { EXPECT_TRUE(status.ok()) << status; });
  };
  for (int layer = 0; layer < kShippedLayout.layers; ++layer) {
    ASSERT_TRUE(shipment.Ship(here, 0, 5, layer, 1, send).ok());
  }
  EXPECT_EQ(chunks, 6) << "blocks 1 to 3 of each layer, two and one";
  EXPECT_EQ(intake.state(), Intake::State::kCommitted);
  EXPECT_EQ(shipment.shipped_bytes(), 3 * kShippedLayout.block_bytes());
  for (int block = 1; block <= 3; ++block) {
    EXPECT_EQ(std::memcmp(from.block(here[block]), to.block(there[block]), kShippedLayout.block_bytes()), 0)
        << block;
  }
}

// Keys and values of different sizes, four heads to share out.
const kv::KvLayout kWhole = {.layers = 3,
                             .kv_heads = 4,
                             .head_dim = 8,
                             .key_dtype = tensor::DType::kI8,
                             .value_dtype = tensor::DType::kBF16};

// The heads of a store of `ranks` ranks, filled with the bytes that an undivided block would have.
struct Ranks {
  std::vector<std::unique_ptr<kv::KvStore>> shards;
  std::unique_ptr<kv::KvStore> joint;

  Ranks(kv::KvLayout whole, int ranks, int64_t blocks) {
    whole.kv_heads /= ranks;
    std::vector<kv::KvStore*> all;
    for (int r = 0; r < ranks; ++r) {
      shards.push_back(std::make_unique<kv::KvStore>(*kv::KvStore::Create(whole, blocks)));
      all.push_back(shards.back().get());
    }
    if (ranks > 1) joint = std::make_unique<kv::KvStore>(kv::KvStore::Joint(all, device::HostMemory()));
  }
  kv::KvStore& store() { return joint ? *joint : *shards.front(); }
  // Byte i of head h's keys (or values) of a layer.
  std::byte& At(BlockId block, int layer, int head, bool value, int64_t i) {
    kv::KvStore& shard = *shards[static_cast<size_t>(head / shards.front()->layout().kv_heads)];
    const kv::KvLayout& part = shard.layout();
    const int own = head % part.kv_heads;
    return shard.block(
        block)[(value ? part.layer(layer).value_offset(own) : part.layer(layer).key_offset(own)) + i];
  }
};

TEST(ShipmentTest, TheTwoSidesMayHaveDifferentNumbersOfRanks) {
  const auto byte = [](size_t block, int layer, int head, bool value, int64_t i) {
    return static_cast<std::byte>(block * 101 + static_cast<size_t>(layer) * 37 +
                                  static_cast<size_t>(head) * 17 + (value ? 7 : 0) +
                                  static_cast<size_t>(i) * 3);
  };
  for (const auto& [from_ranks, to_ranks] : {std::pair{1, 1}, {2, 1}, {1, 2}, {4, 2}, {2, 4}, {4, 1}}) {
    SCOPED_TRACE(testing::Message() << from_ranks << " ranks to " << to_ranks);
    Ranks from(kWhole, from_ranks, 6), to(kWhole, to_ranks, 6);
    EXPECT_EQ(from.store().layout(), kWhole);
    const std::vector<BlockId> here = {BlockId(5), BlockId(2), BlockId(0)},
                               there = {BlockId(1), BlockId(4), BlockId(3)};
    const auto for_all = [&](const auto& visit) {
      for (size_t block = 0; block < here.size(); ++block) {
        for (int layer = 0; layer < kWhole.layers; ++layer) {
          for (int head = 0; head < kWhole.kv_heads; ++head) {
            for (bool value : {false, true}) {
              const int64_t bytes =
                  value ? kWhole.layer(0).value_head_bytes() : kWhole.layer(0).key_head_bytes();
              for (int64_t i = 0; i < bytes; ++i) visit(block, layer, head, value, i);
            }
          }
        }
      }
    };
    for_all([&](size_t block, int layer, int head, bool value, int64_t i) {
      from.At(here[block], layer, head, value, i) = byte(block, layer, head, value, i);
    });
    const protocol::Ticket ticket = {Incarnation(1), TicketId(2), 0,
                                     std::vector<Generation>(3, Generation(4))};
    HostLinkSender sender;
    HostLinkReceiver receiver;
    Intake intake(ticket, there, to.store(), receiver);
    intake.Request();
    Shipment shipment(ticket, sender, from.store(), 2 * kWhole.block_bytes());
    const auto send = [&](fleet::v1::KvChunk chunk) {
      intake.Accept(chunk, [](absl::Status status) { EXPECT_TRUE(status.ok()) << status; });
    };
    ASSERT_TRUE(shipment.Ship(here, 0, 3, 0, 1, send).ok());  // the first layer alone, the others together
    ASSERT_TRUE(shipment.Ship(here, 0, 3, 1, 2, send).ok());
    EXPECT_EQ(intake.state(), Intake::State::kCommitted);
    int64_t wrong = 0;
    for_all([&](size_t block, int layer, int head, bool value, int64_t i) {
      wrong += to.At(there[block], layer, head, value, i) != byte(block, layer, head, value, i);
    });
    EXPECT_EQ(wrong, 0);
  }
}

}  // namespace
}  // namespace baton::transfer
