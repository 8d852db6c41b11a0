// A worker that leaves in the middle of a fetch from it: it keeps its KV until the peer has it all, as long
// as its grace allows. What is fetched from it is leased as it was there.
#include <grpcpp/create_channel.h>
#include <gtest/gtest.h>

#include <csignal>

#include "baton/fleet/v1/blocks.grpc.pb.h"
#include "common/rpc/client_stream.h"
#include "protocol/block_hash.h"
#include "tests/e2e/fetch_fixture.h"

namespace baton::e2e {
namespace {

// A peer that fetches, and takes nothing before it is told to.
class SlowPeer {
 public:
  SlowPeer(const Process& holder, fleet::v1::FetchRequest request)
      : stub_(fleet::v1::Blocks::NewStub(NarrowChannel(holder.grpc()))) {
    absl::MutexLock lock(&mutex_);  // until stream_ is there
    stream_ = Stream::Call(std::move(request), std::make_unique<grpc::ClientContext>(),
                           {.event = [this](const fleet::v1::FetchEvent& event) { OnEvent(event); },
                            .done =
                                [this](absl::Status status) {
                                  absl::MutexLock lock(&mutex_);
                                  ended_ = std::move(status);
                                }},
                           [this](grpc::ClientContext* context, const fleet::v1::FetchRequest* asked,
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
  using Stream = rpc::ClientStream<fleet::v1::FetchRequest, fleet::v1::FetchEvent>;

  // It takes in a little more than what has been read, however fast the connection is: the rest stays with
  // the holder.
  static std::shared_ptr<grpc::Channel> NarrowChannel(const std::string& address) {
    grpc::ChannelArguments arguments;
    arguments.SetMaxReceiveMessageSize(-1);
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
    arguments.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, 65536);
    return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
  }

  void OnEvent(const fleet::v1::FetchEvent& event) {
    absl::MutexLock lock(&mutex_);
    if (event.has_found()) found_ = event.found().blocks();
    bytes_ += event.chunk().data().size();
    paused_ = !reads_;
    if (reads_) stream_->Next();
  }

  const std::unique_ptr<fleet::v1::Blocks::Stub> stub_;
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

  LeavingHolderTest() : FetchTest(tensor::DType::kF32) {}
  // One decode worker.
  static FleetOptions Holder(const std::string& drain_grace) {
    return {.prefill = 0,
            .decode = 1,
            .decode_flags = {"--key-dtype", "f32", "--value-dtype", "f32"},
            .drain_grace = drain_grace};
  }

  // All that the decode worker holds of a long prompt, which is computed there.
  fleet::v1::FetchRequest RequestForALongPrompt(const Process& decode) {
    const auto prompt = Tokens(15, kBlocks * kBlockTokens);
    const fleet::v1::DecodeRequest compute = RequestTo(decode, prompt, 1);
    const Answer answer = Run(decode, compute);
    EXPECT_TRUE(answer.status.ok()) << answer.status;
    std::vector<TokenId> ids;
    for (const int32_t id : prompt) ids.emplace_back(id);
    fleet::v1::FetchRequest request;
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
  Fleet fleet(Holder("600"));
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
  Fleet fleet(Holder("0.05"));
  SlowPeer peer(fleet.decode(), RequestForALongPrompt(fleet.decode()));
  ASSERT_EQ(peer.AwaitFound(), kBlocks);
  fleet.decode().Signal(SIGTERM);
  EXPECT_EQ(fleet.decode().Wait().value, 0);
  peer.ReadOn();
  EXPECT_FALSE(peer.End().ok());
  EXPECT_LT(peer.bytes(), AllBytes());
}

// A conversation under a mark whose worker leaves: the next turn is answered elsewhere, fetches the prefix
// while the old worker is still there, and has it leased. So it outlasts pressure there, too.
TEST_F(LeavingHolderTest, LeasesGoWithTheBlocksToTheWorkerThatFetchesThem) {
  FleetOptions options = Holder("600");
  options.decode = 2;
  options.decode_flags.insert(options.decode_flags.end(), {"--peer-fetch", "always"});
  options.kv_memory = "32MiB";  // some 340 blocks
  Fleet fleet(options);
  constexpr uint32_t kMarked = 1600;
  std::vector<int32_t> prompt = Tokens(21, kMarked);
  v1::GenerateRequest marked = TokenRequest(prompt, 2);
  marked.mutable_options()->mutable_cache()->set_ttl(v1::CACHE_TTL_1H);
  const Answer first = fleet.Generate(marked);
  ASSERT_TRUE(first.status.ok()) << first.status;
  ASSERT_EQ(first.end().usage().retained_tokens(), kMarked);
  const std::string holder_id = first.end().relay().decode_worker();
  const int at = InfoOf(fleet.decode(0)).worker_id() == holder_id ? 0 : 1;
  Process &holder = fleet.decode(at), &heir = fleet.decode(1 - at);
  // The gauge is set at the end of a turn, in which the answer was sent.
  EXPECT_TRUE(AwaitMetric(holder, {"baton_kv_leased_blocks"}, kMarked / kBlockTokens));
  EXPECT_EQ(Metric(heir, "baton_kv_leased_blocks"), 0);

  // While a slow peer fetches something else from it, it does not go.
  SlowPeer peer(holder, RequestForALongPrompt(holder));
  ASSERT_EQ(peer.AwaitFound(), kBlocks);
  holder.Signal(SIGTERM);
  ASSERT_TRUE(AwaitMetric(holder, {"baton_draining "}, 1));
  fleet.AwaitWorkers(0, 1);
  const std::vector<int32_t> more = Tokens(22, 40);
  prompt.insert(prompt.end(), more.begin(), more.end());
  const Answer second = fleet.Generate(TokenRequest(prompt, 2));  // without a mark
  ASSERT_TRUE(second.status.ok()) << second.status;
  EXPECT_EQ(second.end().relay().fetched_from(), holder_id);
  EXPECT_EQ(second.end().relay().fetched_tokens(), kMarked);
  EXPECT_EQ(second.end().usage().retained_tokens(), 0u) << "nothing of it is marked";
  peer.ReadOn();
  EXPECT_TRUE(peer.End().ok());
  EXPECT_EQ(holder.Wait().value, 0);

  // More than its cache holds, each without a mark.
  for (uint32_t i = 0; i < 4; ++i) {
    const Answer other = fleet.Generate(TokenRequest(Tokens(30 + i, 1900), 2));
    ASSERT_TRUE(other.status.ok()) << other.status;
  }
  EXPECT_TRUE(AwaitMetric(heir, {"baton_kv_leased_blocks"}, kMarked / kBlockTokens));
  const Answer third = fleet.Generate(TokenRequest(prompt, 2));
  ASSERT_TRUE(third.status.ok()) << third.status;
  EXPECT_GE(third.end().usage().decode_cached_tokens(), kMarked);
  EXPECT_EQ(third.digests, second.digests);
  EXPECT_EQ(Metric(heir, "baton_cache_lease_blocks_total{event=\"broken\""), 0);
}

}  // namespace
}  // namespace baton::e2e
