// The receiving end of a stream of KV: when it is over, what its owner hears, and what stays while a write
// has not ended.
#include "transfer/kv_receiver.h"

#include <gtest/gtest.h>

#include <vector>

namespace baton::transfer {
namespace {

constexpr kv::KvLayout kReceiverLayout = {.layers = 1, .kv_heads = 1, .head_dim = 8};
const std::vector<BlockId> kReceiverBlocks = {BlockId(1), BlockId(3)};

// A link whose writes end when the test says so.
class HeldLink final : public LinkReceiver {
 public:
  std::string_view name() const override { return "held"; }
  void Receive(const fleet::v1::KvChunk&, std::string_view from, Pieces, Done done) override {
    froms.emplace_back(from);
    writes.push_back(std::move(done));
  }
  void Suspect(std::string_view from) override { suspects.emplace_back(from); }
  void EndOne(absl::Status status = absl::OkStatus()) {
    Done done = std::move(writes.front());
    writes.erase(writes.begin());
    done(std::move(status));
  }
  std::vector<Done> writes;
  std::vector<std::string> froms, suspects;
};

class KvReceiverTest : public testing::Test {
 protected:
  KvReceiverTest() {
    receiver_ = std::make_unique<KvReceiver>(
        protocol::Ticket{Incarnation(7), TicketId(5), 0, {Generation(1), Generation(1)}}, kReceiverBlocks,
        store_, link_,
        KvReceiver::Callbacks{.written = [this] { ++written_; },
                              .complete =
                                  [this] {
                                    return receiver_->intake().state() == Intake::State::kCommitted
                                               ? absl::OkStatus()
                                               : absl::InternalError("blocks are missing");
                                  },
                              .decided = [this](const absl::Status& status) { decided_.push_back(status); },
                              .ended = [this](const absl::Status& status) { ended_.push_back(status); }});
    receiver_->Start<fleet::v1::KvChunk>(
        [this](const std::shared_ptr<const fleet::v1::KvChunk>& chunk) {
          if (chunk->layers() == 0) return absl::InvalidArgumentError("an empty chunk");
          receiver_->Accept(*chunk, chunk);
          return absl::OkStatus();
        },
        [this](rpc::EventCallbacks<fleet::v1::KvChunk> callbacks) {
          stream_ = std::move(callbacks);
          return std::make_unique<Call>(*this);
        },
        "prefill:1");
  }

  static fleet::v1::KvChunk Chunk(uint32_t block) {
    fleet::v1::KvChunk chunk;
    chunk.set_incarnation(7);
    chunk.set_ticket_id(5);
    chunk.set_first_block(block);
    chunk.add_generations(1);
    chunk.set_layers(1);
    return chunk;
  }

  struct Call final : rpc::EventCall {
    explicit Call(KvReceiverTest& test) : test(test) { test.open_ = true; }
    ~Call() override { test.open_ = false; }
    void Next() override { ++test.asked_; }
    KvReceiverTest& test;
  };

  kv::KvStore store_ = kv::KvStore::Create(kReceiverLayout, 4).value();
  HeldLink link_;
  rpc::EventCallbacks<fleet::v1::KvChunk> stream_;
  bool open_ = false;  // the call
  int asked_ = 0;      // for a next event
  int written_ = 0;
  std::vector<absl::Status> decided_, ended_;
  std::unique_ptr<KvReceiver> receiver_;
};

TEST_F(KvReceiverTest, EndsWhenTheStreamHasEndedAndTheLastWriteIsOver) {
  stream_.event(Chunk(0));
  stream_.event(Chunk(1));
  EXPECT_EQ(asked_, 2);
  link_.EndOne();
  EXPECT_EQ(written_, 1);
  stream_.done(absl::OkStatus());
  EXPECT_TRUE(receiver_->running()) << "a write is in progress";
  EXPECT_TRUE(ended_.empty());
  link_.EndOne();
  ASSERT_EQ(ended_.size(), 1u);
  EXPECT_TRUE(ended_[0].ok());
  EXPECT_EQ(decided_, ended_);
  EXPECT_FALSE(receiver_->running());
  EXPECT_FALSE(open_);
}

TEST_F(KvReceiverTest, AStreamThatEndsTooEarlyIsAnErrorThatSaysSo) {
  stream_.event(Chunk(0));
  link_.EndOne();
  stream_.done(absl::OkStatus());
  ASSERT_EQ(ended_.size(), 1u);
  EXPECT_EQ(ended_[0], absl::InternalError("blocks are missing"));
  EXPECT_EQ(receiver_->intake().committed_blocks(), 1);
}

TEST_F(KvReceiverTest, TheOwnerHearsOfAnErrorAfterTheLastWrite) {
  stream_.event(Chunk(0));
  stream_.done(absl::UnavailableError("gone"));
  ASSERT_EQ(decided_.size(), 1u) << "the outcome is known at once";
  EXPECT_FALSE(receiver_->running());
  EXPECT_TRUE(ended_.empty()) << "the blocks are still written";
  EXPECT_TRUE(receiver_->writing());
  link_.EndOne();
  ASSERT_EQ(ended_.size(), 1u);
  EXPECT_EQ(ended_[0], absl::UnavailableError("gone"));
  EXPECT_EQ(written_, 0);
}

TEST_F(KvReceiverTest, TheLinkHearsWhoseStreamItIsAndThatItBroke) {
  stream_.event(Chunk(0));
  EXPECT_EQ(link_.froms, std::vector<std::string>{"prefill:1"});
  link_.EndOne();
  EXPECT_TRUE(link_.suspects.empty());
  stream_.done(absl::UnavailableError("the connection broke"));
  EXPECT_EQ(link_.suspects, std::vector<std::string>{"prefill:1"});
}

TEST_F(KvReceiverTest, AStreamThatIsRefusedDoesNotMakeItsWorkerSuspect) {
  stream_.done(absl::ResourceExhaustedError("the queue is full"));
  EXPECT_TRUE(link_.suspects.empty());
}

TEST_F(KvReceiverTest, AnErrorOfTheOwnersEndsTheStream) {
  stream_.event(fleet::v1::KvChunk());
  ASSERT_EQ(ended_.size(), 1u);
  EXPECT_TRUE(absl::IsInvalidArgument(ended_[0]));
  EXPECT_FALSE(open_);
  EXPECT_EQ(asked_, 0) << "no event is asked for after the end";
  stream_.event(Chunk(0));
  EXPECT_TRUE(link_.writes.empty()) << "an event that still came is ignored";
}

TEST_F(KvReceiverTest, AWriteThatFailsEndsTheStream) {
  stream_.event(Chunk(0));
  link_.EndOne(absl::DataLossError("checksum"));
  ASSERT_EQ(ended_.size(), 1u);
  EXPECT_TRUE(absl::IsDataLoss(ended_[0]));
  EXPECT_FALSE(receiver_->refused_write());
}

TEST_F(KvReceiverTest, ALateWriteIsRefusedAndToldApart) {
  fleet::v1::KvChunk late = Chunk(0);
  late.set_incarnation(6);
  stream_.event(late);
  ASSERT_EQ(ended_.size(), 1u);
  EXPECT_TRUE(absl::IsFailedPrecondition(ended_[0]));
  EXPECT_TRUE(receiver_->refused_write());
}

TEST_F(KvReceiverTest, ReleaseIsSilentAndWaitsForTheWrite) {
  stream_.event(Chunk(0));
  receiver_->Release();
  receiver_->Release();
  ASSERT_EQ(decided_.size(), 1u);
  EXPECT_TRUE(absl::IsCancelled(decided_[0]));
  EXPECT_FALSE(open_);
  EXPECT_TRUE(receiver_->writing());
  link_.EndOne();
  EXPECT_FALSE(receiver_->writing());
  EXPECT_TRUE(ended_.empty());
  EXPECT_EQ(receiver_->intake().committed_blocks(), 0) << "what came after the release does not count";
}

TEST_F(KvReceiverTest, ReleaseAfterAnErrorKeepsItsEndToItself) {
  stream_.event(Chunk(0));
  stream_.done(absl::UnavailableError("gone"));
  receiver_->Release();
  link_.EndOne();
  EXPECT_TRUE(ended_.empty());
  EXPECT_EQ(decided_.size(), 1u);
}

}  // namespace
}  // namespace baton::transfer
