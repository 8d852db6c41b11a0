// A server-streaming call from the caller to the thread that does the work and back, over a real server: who
// hears what when a request is refused, when the mailbox is full, and when the caller goes away. The loop is
// a list of tasks that the test runs.
#include "common/rpc/served_calls.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "baton/fleet/v1/blocks.grpc.pb.h"
#include "common/rpc/peer_calls.h"
#include "common/rpc/server.h"

namespace baton::rpc {
namespace {

class TaskList {
 public:
  using Task = absl::AnyInvocable<void()>;
  bool TryPost(Task task) { return !full && PostAlways(std::move(task)); }
  bool PostAlways(Task task) {
    absl::MutexLock lock(&mutex_);
    tasks_.push_back(std::move(task));
    return true;
  }
  // Runs tasks until `done`, which only tasks make true.
  void RunUntil(const std::function<bool()>& done) {
    while (!done()) {
      std::vector<Task> tasks;
      {
        absl::MutexLock lock(&mutex_);
        const auto any = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return !tasks_.empty(); };
        mutex_.Await(absl::Condition(&any));
        tasks.swap(tasks_);
      }
      for (Task& task : tasks) task();
    }
  }
  bool full = false;  // set while no call is made

 private:
  absl::Mutex mutex_;
  std::vector<Task> tasks_ ABSL_GUARDED_BY(mutex_);
};

struct Work : EventSink<fleet::v1::FetchEvent> {
  std::string request_id;
};

class BlocksStandIn final : public fleet::v1::Blocks::CallbackService {
 public:
  BlocksStandIn(const PeerCheck& peers, TaskList& loop) : calls_(peers, loop, 64) {}

  grpc::ServerWriteReactor<fleet::v1::FetchEvent>* Fetch(grpc::CallbackServerContext* context,
                                                         const fleet::v1::FetchRequest* request) override {
    return calls_.Serve<Work>(
        *context,
        [&](EventSink<fleet::v1::FetchEvent> sink) -> absl::StatusOr<Work> {
          if (request->request_id().empty()) return absl::InvalidArgumentError("request_id: empty");
          return Work{std::move(sink), request->request_id()};
        },
        [this](Work work) {
          if (work.request_id == "refused") return absl::ResourceExhaustedError("no room");
          running = std::move(work);
          return absl::OkStatus();
        },
        [this] { ++cancelled; }, [] { return absl::UnavailableError("full"); });
  }

  std::optional<Work> running;
  int cancelled = 0;

 private:
  const ServedCalls<fleet::v1::FetchEvent, TaskList> calls_;
};

class ServedCallsTest : public testing::Test {
 protected:
  ServedCallsTest() { server_ = Server::Start({}, {&service_}).value(); }
  ~ServedCallsTest() override {
    call_.reset();
    server_->Shutdown(absl::ZeroDuration());
  }

  void Ask(const std::string& request_id) {
    fleet::v1::FetchRequest request;
    request.set_request_id(request_id);
    call_ = client_.Call(server_->address(), std::move(request), absl::InfiniteFuture(),
                         {.event =
                              [this](const fleet::v1::FetchEvent& event) {
                                found_.push_back(event.found().blocks());
                                call_->Next();
                              },
                          .done = [this](absl::Status status) { ended_ = std::move(status); }});
  }
  static fleet::v1::FetchEvent Found(uint32_t blocks) {
    fleet::v1::FetchEvent event;
    event.mutable_found()->set_blocks(blocks);
    return event;
  }
  absl::Status End() {
    loop_.RunUntil([this] { return ended_.has_value(); });
    return *ended_;
  }
  void Begin() {
    Ask("a");
    loop_.RunUntil([this] { return service_.running.has_value(); });
  }

  // The same list of tasks for both ends: all in the test's thread.
  TaskList loop_;
  const std::shared_ptr<const Security> security_ = Security::Load({}).value();
  const PeerCheck peers_{security_, [] {}};
  BlocksStandIn service_{peers_, loop_};
  std::unique_ptr<Server> server_;
  PeerCalls<fleet::v1::Blocks, fleet::v1::FetchRequest, fleet::v1::FetchEvent> client_{
      &fleet::v1::Blocks::StubInterface::async_interface::Fetch, PeerOptions{.security = *security_},
      [this](TaskList::Task task) { loop_.PostAlways(std::move(task)); }};
  std::unique_ptr<EventCall> call_;
  std::vector<uint32_t> found_;
  std::optional<absl::Status> ended_;
};

TEST_F(ServedCallsTest, EventsAndTheEndReachTheCallerInOrder) {
  Begin();
  for (uint32_t i = 1; i <= 3; ++i) service_.running->send(Found(i));
  service_.running->finish(absl::OkStatus());
  EXPECT_TRUE(End().ok());
  EXPECT_EQ(found_, (std::vector<uint32_t>{1, 2, 3}));
  EXPECT_EQ(service_.cancelled, 0);
}

TEST_F(ServedCallsTest, ARequestThatIsNotParsedIsNeverWork) {
  Ask("");
  EXPECT_EQ(End(), absl::InvalidArgumentError("request_id: empty"));
  EXPECT_FALSE(service_.running.has_value());
}

TEST_F(ServedCallsTest, WorkMayBeRefused) {
  Ask("refused");
  EXPECT_EQ(End(), absl::ResourceExhaustedError("no room"));
}

TEST_F(ServedCallsTest, AFullMailboxRefuses) {
  loop_.full = true;
  Ask("a");
  EXPECT_EQ(End(), absl::UnavailableError("full"));
  EXPECT_FALSE(service_.running.has_value());
}

TEST_F(ServedCallsTest, ACallerThatGoesAwayIsHeardOfOnce) {
  Begin();
  call_.reset();
  loop_.RunUntil([this] { return service_.cancelled > 0; });
  service_.running->send(Found(1));
  service_.running->finish(absl::OkStatus());
  EXPECT_EQ(service_.cancelled, 1);
  EXPECT_FALSE(ended_.has_value()) << "a call that was released calls nobody";
}

// The caller asks for no next event, so what is sent piles up.
TEST_F(ServedCallsTest, ACallerThatTakesNothingCongests) {
  Begin();
  EXPECT_FALSE(service_.running->congested());
  fleet::v1::FetchEvent large;
  large.mutable_chunk()->set_data(std::string(8 << 20, 'x'));
  service_.running->send(large);
  service_.running->send(large);
  EXPECT_TRUE(service_.running->congested());
}

}  // namespace
}  // namespace baton::rpc
