#include "common/transfer/shipment.h"

#include <gtest/gtest.h>

#include <cstring>

#include "common/transfer/host_link.h"
#include "common/transfer/intake.h"

namespace baton::transfer {
namespace {

constexpr kv::KvLayout kLayout = {.layers = 3, .kv_heads = 2, .head_dim = 8};

void Fill(kv::KvStore& store, BlockId block, int seed) {
  auto bytes = store.layers(block, 0, kLayout.layers);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(seed * 31 + i);
}

TEST(ShipmentTest, WhatIsShippedIsWhatArrivesCutToSizeAndNeverOutsideTheTicket) {
  kv::KvStore from = kv::KvStore::Create(kLayout, 10).value();
  kv::KvStore to = kv::KvStore::Create(kLayout, 10).value();
  const std::vector<BlockId> here = {BlockId(9), BlockId(1), BlockId(4), BlockId(3), BlockId(7)};
  const std::vector<BlockId> there = {BlockId(0), BlockId(8), BlockId(2), BlockId(5), BlockId(6)};
  for (size_t i = 0; i < here.size(); ++i) Fill(from, here[i], static_cast<int>(i));
  const Ticket ticket = {Incarnation(1), TicketId(2), 1, std::vector<Generation>(3, Generation(4))};
  HostLinkSender sender;
  HostLinkReceiver receiver;
  Intake intake(ticket, there, to, receiver);
  intake.Request();
  // Two blocks' worth of one layer fit in a chunk.
  Shipment shipment(ticket, sender, from, 2 * kLayout.layer_bytes());
  int chunks = 0;
  const auto send = [&](v1::KvChunk chunk) {
    ++chunks;
    EXPECT_LE(static_cast<int64_t>(chunk.data().size()), 2 * kLayout.layer_bytes());
    intake.Accept(chunk, [](absl::Status status) { EXPECT_TRUE(status.ok()) << status; });
  };
  for (int layer = 0; layer < kLayout.layers; ++layer) {
    ASSERT_TRUE(shipment.Ship(here, 0, 5, layer, 1, send).ok());
  }
  EXPECT_EQ(chunks, 6) << "blocks 1 to 3 of each layer, two and one";
  EXPECT_EQ(intake.state(), Intake::State::kCommitted);
  EXPECT_EQ(shipment.shipped_bytes(), 3 * kLayout.block_bytes());
  for (int block = 1; block <= 3; ++block) {
    EXPECT_EQ(std::memcmp(from.block(here[block]), to.block(there[block]), kLayout.block_bytes()), 0)
        << block;
  }
}

}  // namespace
}  // namespace baton::transfer
