#include "decode_service/link_check.h"

#include <gtest/gtest.h>

#include "absl/synchronization/notification.h"
#include "baton/fleet/v1/decode.grpc.pb.h"
#include "common/rpc/channel.h"
#include "common/rpc/server.h"
#include "tests/patience.h"
#include "transfer/host_link.h"
#include "transfer/shipment.h"

namespace baton::decode_service {
namespace {

// A prefill worker that serves nothing but tests of links, as the test wants it.
class Peer final : public fleet::v1::Prefill::CallbackService {
 public:
  explicit Peer(const kv::KvLayout& layout) : store_(kv::KvStore::Create(layout, 1).value()) {}

  // After the first test it answers none before so many more have been asked for.
  void AnswerTogether(int tests) { answer_after_ = 1 + tests; }
  // It answers none.
  void AnswerNever() { never_ = true; }
  int64_t sent_bytes() const {
    absl::MutexLock lock(&mutex_);
    return sent_bytes_;
  }
  std::string Serve() {
    server_ = rpc::Server::Start({.listen = "127.0.0.1:0"}, {this}).value();
    return server_->address();
  }

  grpc::ServerWriteReactor<fleet::v1::KvChunk>* TestLink(grpc::CallbackServerContext*,
                                                         const fleet::v1::TestLinkRequest* request) override {
    auto stream = rpc::ServerStream<fleet::v1::KvChunk>::Create();
    absl::MutexLock lock(&mutex_);
    waiting_.emplace_back(stream, protocol::Ticket::FromProto(request->ticket()));
    if ((++tests_ == 1 || tests_ >= answer_after_) && !never_) {
      for (auto& [other, ticket] : std::exchange(waiting_, {})) Answer(*other, std::move(ticket));
    }
    return stream->reactor();
  }

 private:
  void Answer(rpc::ServerStream<fleet::v1::KvChunk>& stream, protocol::Ticket ticket)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const std::vector<BlockId> table(static_cast<size_t>(ticket.blocks()), BlockId(0));
    transfer::Shipment shipment(std::move(ticket), link_, store_, int64_t{1} << 20);
    const absl::Status shipped =
        shipment.Ship(table, 0, std::ssize(table), 0, store_.layout().layers,
                      [&](fleet::v1::KvChunk chunk) { stream.Send(std::move(chunk)); });
    sent_bytes_ += shipment.shipped_bytes();
    stream.Finish(shipped);
  }

  transfer::HostLinkSender link_;
  mutable absl::Mutex mutex_;
  kv::KvStore store_;
  int answer_after_ = 0;
  int tests_ = 0;
  bool never_ = false;
  int64_t sent_bytes_ = 0;
  std::vector<std::pair<std::shared_ptr<rpc::ServerStream<fleet::v1::KvChunk>>, protocol::Ticket>> waiting_;
  std::unique_ptr<rpc::Server> server_;
};

class LinkCheckTest : public testing::Test {
 protected:
  class Role final : public worker::Stepper {
   public:
    fleet::v1::Role role() const override { return fleet::v1::ROLE_DECODE; }
    grpc::Service& service() override { return service_; }
    bool Step() override { return false; }
    worker::RoleReport Report() override { return {}; }
    void SetTargets(const forecast::LatencyTargets&) override {}
    void Abort(const absl::Status&) override {}

   private:
    fleet::v1::Decode::CallbackService service_;
  };

  LinkCheckTest() {
    worker::Options options;
    options.engine.model_folder = BATON_SOURCE_DIR "/models/baton-tiny";
    options.engine.threads = 1;
    options.engine.kv_bytes = int64_t{16} << 20;
    options.listen = "127.0.0.1:0";
    options.metrics_listen = "";
    runtime_ = worker::WorkerRuntime::Create(options, fleet::v1::ROLE_DECODE, "decode").value();
    EXPECT_TRUE(runtime_->Serve({&role_}, false).ok());
    peer_ = std::make_unique<Peer>(runtime_->engine().store().layout());
  }
  ~LinkCheckTest() override {
    if (check_ != nullptr) check_->Stop();
    runtime_->Stop(absl::UnavailableError("the test is over"));
    check_.reset();
    EXPECT_EQ(runtime_->engine().pool().counts().held, 0);
  }
  void Begin(LinkCheckOptions options) {
    options.pause = absl::Milliseconds(1);
    check_ = std::make_unique<LinkCheck>(std::move(options), *runtime_, [this] { passed_.Notify(); });
  }

  Role role_;
  absl::Notification passed_;
  std::unique_ptr<worker::WorkerRuntime> runtime_;
  std::unique_ptr<Peer> peer_;
  std::unique_ptr<LinkCheck> check_;
};

// One stream after the other would measure the way to the peer and back: the peer answers none before the
// first, which makes the link, and four more have been asked for at once.
TEST_F(LinkCheckTest, SeveralStreamsRunAtOnceUntilEnoughHasCome) {
  constexpr int64_t kBytes = int64_t{24} << 20;
  peer_->AnswerTogether(4);
  Begin({.peers = {peer_->Serve()},
         .patience = absl::Hours(1),
         .bytes = kBytes,
         .time = absl::InfiniteDuration()});
  passed_.WaitForNotification();
  EXPECT_GE(peer_->sent_bytes(), kBytes);
}

TEST_F(LinkCheckTest, AMeasurementThatTakesLongEnoughEnds) {
  Begin({.peers = {peer_->Serve()}, .bytes = INT64_MAX, .time = absl::Milliseconds(1)});
  passed_.WaitForNotification();
}

// The first peer takes the call and sends nothing.
TEST_F(LinkCheckTest, APeerThatSendsNothingIsGivenUp) {
  Peer silent(runtime_->engine().store().layout());
  silent.AnswerNever();
  Begin({.peers = {silent.Serve(), peer_->Serve()}, .patience = absl::Milliseconds(300), .bytes = 1});
  passed_.WaitForNotification();
  check_->Stop();
}

// Which links can promise it: the host link has no transport of NCCL's.
TEST_F(LinkCheckTest, ATransportThatWasAskedForIsNotTakenOnTrust) {
  Begin({.peers = {peer_->Serve()}, .transport = "rdma", .bytes = 1});
  Await([&] { return peer_->sent_bytes() > 0; }, "bytes of the test");
  check_->Stop();
  EXPECT_FALSE(passed_.HasBeenNotified());
  absl::Status allowed;
  runtime_->loop().Run([&] { allowed = runtime_->link().CheckTransport("rdma"); });
  EXPECT_EQ(allowed.code(), absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace baton::decode_service
