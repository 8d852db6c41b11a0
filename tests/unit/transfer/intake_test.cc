#include "transfer/intake.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/digest.h"
#include "common/base/random.h"
#include "tests/fuzz/intake_operations.h"
#include "tests/seed.h"
#include "transfer/host_link.h"

namespace baton::transfer {
namespace {

using testing::HasSubstr;

const kv::KvLayout kIntakeLayout = {.layers = 2, .kv_heads = 1, .head_dim = 8};

class IntakeTest : public testing::Test {
 protected:
  IntakeTest()
      : store_(kv::KvStore::Create(kIntakeLayout, 8).value()), intake_(MakeTicket(), kBlocks, store_, link_) {
    intake_.Request();
  }

  // Covers blocks 1 to 3 of a prompt of four.
  static protocol::Ticket MakeTicket() {
    return {Incarnation(77), TicketId(5), 1, {Generation(10), Generation(11), Generation(12)}};
  }

  // One layer of one block, filled with `fill`.
  static fleet::v1::KvChunk Chunk(int block, int layer, char fill) {
    fleet::v1::KvChunk chunk;
    chunk.set_incarnation(77);
    chunk.set_ticket_id(5);
    chunk.set_first_block(block);
    chunk.add_generations(9 + block);
    chunk.set_first_layer(layer);
    chunk.set_layers(1);
    chunk.set_data(std::string(kIntakeLayout.layer(0).bytes(), fill));
    chunk.set_crc32c(Crc32c(chunk.data()));
    return chunk;
  }

  absl::Status Accept(const fleet::v1::KvChunk& chunk) {
    absl::Status result = absl::UnknownError("no answer");
    intake_.Accept(chunk, [&](absl::Status status) { result = std::move(status); });
    return result;
  }

  char ByteAt(int block, int layer) { return static_cast<char>(store_.layers(kBlocks[block], layer, 1)[3]); }

  static inline const std::vector<BlockId> kBlocks = {BlockId(6), BlockId(2), BlockId(0), BlockId(5)};
  kv::KvStore store_;
  HostLinkReceiver link_;
  Intake intake_;
};

TEST_F(IntakeTest, CommitsInOrderWhateverTheOrderOfArrival) {
  EXPECT_EQ(intake_.committed_blocks(), 1);
  EXPECT_TRUE(Accept(Chunk(3, 0, 'a')).ok());
  EXPECT_TRUE(Accept(Chunk(3, 1, 'b')).ok());
  EXPECT_EQ(intake_.committed_blocks(), 1) << "blocks 1 and 2 are still missing";
  EXPECT_TRUE(Accept(Chunk(1, 0, 'c')).ok());
  EXPECT_TRUE(Accept(Chunk(1, 1, 'd')).ok());
  EXPECT_EQ(intake_.committed_blocks(), 2);
  EXPECT_EQ(intake_.state(), Intake::State::kReceiving);
  EXPECT_TRUE(Accept(Chunk(2, 1, 'e')).ok());
  EXPECT_TRUE(Accept(Chunk(2, 0, 'f')).ok());
  EXPECT_EQ(intake_.committed_blocks(), 4);
  EXPECT_EQ(intake_.state(), Intake::State::kCommitted);
  EXPECT_EQ(ByteAt(1, 0), 'c');
  EXPECT_EQ(ByteAt(2, 1), 'e');
  EXPECT_EQ(ByteAt(3, 1), 'b');
  EXPECT_EQ(intake_.received_bytes(), 6 * kIntakeLayout.layer(0).bytes());
}

TEST_F(IntakeTest, RefusesLateWritesAndWritesNothing) {
  ASSERT_TRUE(Accept(Chunk(1, 0, 'a')).ok());
  fleet::v1::KvChunk other_incarnation = Chunk(2, 0, 'x');
  other_incarnation.set_incarnation(78);
  EXPECT_EQ(Accept(other_incarnation).code(), absl::StatusCode::kFailedPrecondition);
  fleet::v1::KvChunk other_ticket = Chunk(2, 0, 'x');
  other_ticket.set_ticket_id(4);
  EXPECT_EQ(Accept(other_ticket).code(), absl::StatusCode::kFailedPrecondition);
  fleet::v1::KvChunk other_generation = Chunk(2, 0, 'x');
  other_generation.set_generations(0, 10);
  EXPECT_THAT(Accept(other_generation).message(), HasSubstr("late write refused"));
  intake_.Release();
  EXPECT_EQ(Accept(Chunk(2, 0, 'x')).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(ByteAt(2, 0), 'x');
}

TEST_F(IntakeTest, RefusesBlocksAndLayersOutsideTheTicket) {
  EXPECT_EQ(Accept(Chunk(0, 0, 'x')).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Accept(Chunk(4, 0, 'x')).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Accept(Chunk(1, 2, 'x')).code(), absl::StatusCode::kInvalidArgument);
  fleet::v1::KvChunk no_blocks = Chunk(1, 0, 'x');
  no_blocks.clear_generations();
  EXPECT_EQ(Accept(no_blocks).code(), absl::StatusCode::kInvalidArgument);
  fleet::v1::KvChunk many_layers = Chunk(1, 1, 'x');
  many_layers.set_layers(0xFFFFFFFF);
  EXPECT_EQ(Accept(many_layers).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(intake_.received_bytes(), 0);
}

TEST_F(IntakeTest, RefusesADuplicate) {
  EXPECT_TRUE(Accept(Chunk(1, 0, 'a')).ok());
  EXPECT_THAT(Accept(Chunk(1, 0, 'b')).message(), HasSubstr("sent twice"));
  EXPECT_EQ(ByteAt(1, 0), 'a');
}

TEST_F(IntakeTest, ADamagedChunkIsAnErrorAndCommitsNothing) {
  fleet::v1::KvChunk flipped = Chunk(1, 0, 'a');
  (*flipped.mutable_data())[17] ^= 1;
  EXPECT_EQ(Accept(flipped).code(), absl::StatusCode::kDataLoss);
  fleet::v1::KvChunk cut = Chunk(1, 1, 'b');
  cut.mutable_data()->pop_back();
  EXPECT_EQ(Accept(cut).code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(intake_.committed_blocks(), 1);
  EXPECT_EQ(intake_.received_bytes(), 0);
}

// Chunks good and bad, writes that end late, releases: against a model.
TEST(IntakeOperationsTest, AnySequenceAgreesWithTheModel) {
  const uint64_t seed = TestSeed();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  uint64_t draws = 0;
  int64_t operations = 0;
  for (int round = 0; round < 3000; ++round) {
    std::vector<uint8_t> bytes(200);
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(UniformAt(seed, draws++) * 256);
    const auto done = RunIntakeOperations(bytes);
    ASSERT_TRUE(done.ok()) << "round " << round << ": " << done.status();
    operations += *done;
  }
  EXPECT_GT(operations, 10000);
}

}  // namespace
}  // namespace baton::transfer
