// A caller that leaves while events arrive: what it was handed is whole, and the end comes once.
#include "common/rpc/client_stream.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>

#include "absl/synchronization/notification.h"
#include "baton/v1/inference.grpc.pb.h"
#include "common/base/random.h"
#include "common/rpc/channel.h"
#include "tests/fakes/fake_inference.h"
#include "tests/seed.h"

namespace baton::rpc {
namespace {

using Stream = ClientStream<v1::GenerateRequest, v1::GenerateResponse>;

constexpr int kEvents = 40;
constexpr int kRounds = 60;

// One string for each event, long enough that taking it and overwriting it would meet.
std::string TextOf(int event) { return std::string(4000, static_cast<char>('a' + event % 26)); }

TEST(ClientStreamTest, LeavingWhileAnEventIsHandedOverLeavesItWhole) {
  const fakes::FakeInference server({.generate = [](const v1::GenerateRequest&) {
    fakes::Script script;
    for (int event = 0; event < kEvents; ++event) {
      script.steps.emplace_back().event.mutable_delta()->set_text(TextOf(event));
    }
    return script;
  }});
  const auto stub = v1::Inference::NewStub(MakeChannel(server.address()));
  const uint64_t seed = TestSeed();
  for (int round = 0; round < kRounds; ++round) {
    SCOPED_TRACE(testing::Message() << "seed " << seed << " round " << round);
    const int leave_at = static_cast<int>(UniformAt(seed, round) * kEvents);
    std::atomic<int> events = 0, torn = 0, ends = 0;
    absl::Notification leave, over;
    std::shared_ptr<Stream> stream;
    absl::Notification started;
    stream = Stream::Call({}, std::make_unique<grpc::ClientContext>(),
                          {.event =
                               [&](const v1::GenerateResponse& event) {
                                 started.WaitForNotification();
                                 const int number = events++;
                                 if (event.delta().text() != TextOf(number)) ++torn;
                                 if (number == leave_at) leave.Notify();
                                 stream->Next();
                               },
                           .done =
                               [&](const absl::Status&) {
                                 ++ends;
                                 over.Notify();
                               }},
                          [&stub](auto* context, const auto* request, auto* reactor) {
                            stub->async()->Generate(context, request, reactor);
                          });
    started.Notify();
    leave.WaitForNotification();
    stream->Cancel();
    over.WaitForNotification();
    EXPECT_EQ(torn, 0) << "of " << events;
    EXPECT_EQ(ends, 1);
  }
}

// The last channel of a process ends gRPC's threads, and must not do so on one of them.
TEST(ClientStreamTest, WhoHearsOfTheEndMayLetGoOfTheLastChannel) {
  for (int round = 0; round < 200; ++round) {
    auto stub = v1::Inference::NewStub(MakeChannel("127.0.0.1:1"));  // nobody is there
    absl::Notification over;
    Stream::Call({}, std::make_unique<grpc::ClientContext>(),
                 {.event = [](const v1::GenerateResponse&) { ADD_FAILURE() << "an answer"; },
                  .done = [&](const absl::Status&) { over.Notify(); }},
                 [&stub](auto* context, const auto* request, auto* reactor) {
                   stub->async()->Generate(context, request, reactor);
                 });
    over.WaitForNotification();
    stub.reset();
  }
}

}  // namespace
}  // namespace baton::rpc
