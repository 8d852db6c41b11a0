// A worker that leaves in the middle of a fetch from it: it keeps its KV until the peer has it all, as long
// as its grace allows.
#include <gtest/gtest.h>

#include <csignal>

#include "baton/v1/blocks.grpc.pb.h"
#include "common/kv/index/block_hash.h"
#include "common/rpc/client_stream.h"
#include "tests/e2e/fetch_fixture.h"

namespace baton::e2e {
namespace {

// A peer that fetches, and takes nothing before it is told to.
class SlowPeer {
 public:
  SlowPeer(const Process& holder, v1::FetchRequest request)
      : stub_(v1::Blocks::NewStub(rpc::MakeChannel(holder.grpc()))) {
    absl::MutexLock lock(&mutex_);  // until stream_ is there
    stream_ = Stream::Call(std::move(request), std::make_unique<grpc::ClientContext>(),
                           {.event = [this](const v1::FetchEvent& event) { OnEvent(event); },
                            .done =
                                [this](absl::Status status) {
                                  absl::MutexLock lock(&mutex_);
                                  ended_ = std::move(status);
                                }},
                           [this](grpc::ClientContext* context, const v1::FetchRequest* asked,
                                  auto* reactor) { stub_->async()->Fetch(context, asked, reactor); });
  }
  ~SlowPeer() {
    stream_->Cancel();
    End().IgnoreError();
  }

  // Blocks that the holder said it has.
  uint32_t AwaitFound() {
    absl::MutexLock lock(&mutex_);
    const auto found = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return found_ > 0 || ended_; };
    mutex_.Await(absl::Condition(&found));
    return found_;
  }
  void ReadOn() {
    absl::MutexLock lock(&mutex_);
    reads_ = true;
    if (std::exchange(paused_, false)) stream_->Next();
  }
  absl::Status End() {
    absl::MutexLock lock(&mutex_);
    const auto ended = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return ended_.has_value(); };
    mutex_.Await(absl::Condition(&ended));
    return *ended_;
  }
  size_t bytes() {
    absl::MutexLock lock(&mutex_);
    return bytes_;
  }

 private:
  using Stream = rpc::ClientStream<v1::FetchRequest, v1::FetchEvent>;

  void OnEvent(const v1::FetchEvent& event) {
    absl::MutexLock lock(&mutex_);
    if (event.has_found()) found_ = event.found().blocks();
    bytes_ += event.chunk().data().size();
    paused_ = !reads_;
    if (reads_) stream_->Next();
  }

  const std::unique_ptr<v1::Blocks::Stub> stub_;
  absl::Mutex mutex_;
  std::shared_ptr<Stream> stream_;
  uint32_t found_ = 0;
  size_t bytes_ = 0;
  bool reads_ = false;
  bool paused_ = false;  // an event has been dealt with, and no other asked for
  std::optional<absl::Status> ended_;
};

class LeavingHolderTest : public FetchTest {
 protected:
  // As many as a prompt can have. The holder's outbox (8 MiB) takes them in four parts, and the last mostly
  // has to wait until the peer takes some: then the holder is told to leave in the middle of it.
  static constexpr size_t kBlocks = 143;

  // All that the decode worker holds of a long prompt, which is computed there.
  v1::FetchRequest RequestForALongPrompt(const Process& decode) {
    const auto prompt = Tokens(15, kBlocks * kBlockTokens);
    const v1::DecodeRequest compute = RequestTo(decode, prompt, 1);
    const Answer answer = Run(decode, compute);
    EXPECT_TRUE(answer.status.ok()) << answer.status;
    std::vector<TokenId> ids;
    for (const int32_t id : prompt) ids.emplace_back(id);
    v1::FetchRequest request;
    *request.mutable_fingerprint() = compute.fingerprint();
    for (const kv::BlockHash& hash : kv::HashChain(engine_->RootFor(kv::TenantSalt(compute.salt())), ids)) {
      request.mutable_hashes()->append(hash.bytes());
      request.mutable_ticket()->add_generations(1);
    }
    return request;
  }
  size_t AllBytes() const { return kBlocks * static_cast<size_t>(engine_->store().layout().block_bytes()); }
};

TEST_F(LeavingHolderTest, KeepsItsKvUntilPeersHaveFetchedIt) {
  Fleet fleet({.prefill = 0, .decode = 1, .drain_grace = "600"});
  SlowPeer peer(fleet.decode(), RequestForALongPrompt(fleet.decode()));
  ASSERT_EQ(peer.AwaitFound(), kBlocks);
  fleet.decode().Signal(SIGTERM);
  ASSERT_TRUE(AwaitMetric(fleet.decode(), {"baton_draining "}, 1));
  peer.ReadOn();
  const absl::Status end = peer.End();
  EXPECT_TRUE(end.ok()) << end;
  EXPECT_EQ(peer.bytes(), AllBytes());
  EXPECT_EQ(fleet.decode().Wait().value, 0);
}

TEST_F(LeavingHolderTest, LeavesAllTheSameWhenItsGraceIsOver) {
  Fleet fleet({.prefill = 0, .decode = 1, .drain_grace = "0.05"});
  SlowPeer peer(fleet.decode(), RequestForALongPrompt(fleet.decode()));
  ASSERT_EQ(peer.AwaitFound(), kBlocks);
  fleet.decode().Signal(SIGTERM);
  EXPECT_EQ(fleet.decode().Wait().value, 0);
  peer.ReadOn();
  EXPECT_FALSE(peer.End().ok());
  EXPECT_LT(peer.bytes(), AllBytes());
}

}  // namespace
}  // namespace baton::e2e
