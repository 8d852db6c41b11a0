// A watcher over real sockets: whom it asks when, and how long it keeps those that are silent.
#include "router/fleet/watcher.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "common/telemetry/metrics.h"
#include "tests/fakes/fake_worker.h"
#include "tests/patience.h"

namespace baton::router::fleet {
namespace {

using fakes::FakeWorker;
using ::testing::HasSubstr;

class WatcherTest : public ::testing::Test {
 protected:
  size_t up() const { return fleet_.view()->decode.size(); }

  telemetry::Metrics metrics_;
  Probe probe_{metrics_};
  static constexpr forecast::LatencyTargets kTargets = {.ttft = 0.7, .tpot = 0.03, .tail_share = 0.25};
  Fleet fleet_{{.router_id = "me", .targets = kTargets}, probe_};
  // On a loaded machine a living process may be silent for seconds.
  Watcher watcher_{fleet_, {.interval = absl::Seconds(60), .timeout = Scaled(absl::Seconds(60))}};
};

TEST_F(WatcherTest, AWorkerIsToldTheTargets) {
  auto worker = FakeWorker::Start({.id = "w"}).value();
  watcher_.Follow(std::vector{worker->address()}, {});
  Await([&] { return up() == 1; }, "the worker in the fleet");
  const baton::fleet::v1::LatencyTargets told = worker->counts().targets;
  EXPECT_EQ(told.ttft_seconds(), kTargets.ttft);
  EXPECT_EQ(told.tpot_seconds(), kTargets.tpot);
  EXPECT_EQ(told.tail_share(), kTargets.tail_share);
}

TEST_F(WatcherTest, AWorkerThatIsSilentOnItsSecondWatchIsDown) {
  auto worker = FakeWorker::Start({.id = "w"}).value();
  watcher_.Follow(std::vector{worker->address()}, {});
  Await([&] { return up() == 1; }, "the worker in the fleet");
  worker->SetSilent(true);
  worker->BreakWatches();
  Await([&] { return up() == 0; }, "the worker out of the fleet");
  EXPECT_EQ(worker->counts().watches, 2);
  EXPECT_THAT(std::string(fleet_.NoDecodeWorker().message()), HasSubstr("broken"));
}

TEST_F(WatcherTest, AWorkerThatWasDownIsFoundAgain) {
  auto worker = FakeWorker::Start({.id = "w"}).value();
  const std::string address = worker->address();
  watcher_.Follow(std::vector{address}, {});
  Await([&] { return up() == 1; }, "the worker in the fleet");
  worker->Kill();
  Await([&] { return up() == 0; }, "the worker out of the fleet");
  auto again = FakeWorker::Start({.id = "again", .incarnation = 2, .listen = address}).value();
  Await([&] { return up() == 1; }, "the new worker in the fleet");
  EXPECT_EQ(fleet_.view()->decode[0]->identity().id, "again");
}

// A listener at all addresses of 127/8, which accepts and says nothing.
class SilentListener {
 public:
  SilentListener() : listener_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in at = {.sin_family = AF_INET, .sin_port = 0, .sin_addr = {htonl(INADDR_ANY)}, .sin_zero = {}};
    socklen_t size = sizeof(at);
    EXPECT_EQ(bind(listener_, reinterpret_cast<sockaddr*>(&at), size), 0);
    EXPECT_EQ(listen(listener_, 1024), 0);
    EXPECT_EQ(getsockname(listener_, reinterpret_cast<sockaddr*>(&at), &size), 0);
    port_ = ntohs(at.sin_port);
  }
  ~SilentListener() {
    for (const int one : taken_) close(one);
    close(listener_);
  }

  std::vector<std::string> Addresses(int count) const {
    std::vector<std::string> all;
    for (int i = 0; i < count; ++i) all.push_back(fmt::format("127.1.{}.{}:{}", i / 200, 1 + i % 200, port_));
    return all;
  }

  // Takes one connection, if there is one within 10 ms.
  void Take() {
    pollfd ready = {.fd = listener_, .events = POLLIN, .revents = 0};
    if (poll(&ready, 1, 10) == 1) taken_.push_back(accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC));
  }
  size_t taken() const { return taken_.size(); }
  bool AnyHasGone() const {
    std::vector<pollfd> all;
    for (const int one : taken_) all.push_back({.fd = one, .events = POLLRDHUP, .revents = 0});
    return poll(all.data(), all.size(), 0) > 0;
  }

 private:
  const int listener_;
  int port_ = 0;
  std::vector<int> taken_;
};

TEST_F(WatcherTest, ManySilentAddressesAreAskedAFewAtATimeAndALivingOneIsFound) {
  SilentListener listener;
  auto worker = FakeWorker::Start({.id = "w"}).value();
  std::vector<std::string> addresses = listener.Addresses(200);
  addresses.push_back(worker->address());
  watcher_.Follow(addresses, {});
  // Until the first of them is given up, no other takes its place.
  while (!listener.AnyHasGone()) {
    listener.Take();
    ASSERT_LE(listener.taken(), Watcher::kMostDials + 1);  // one may have gone since the look
  }
  Await(
      [&] {
        listener.Take();
        return up() == 1;
      },
      "the living worker, the last of the list");
}

}  // namespace
}  // namespace baton::router::fleet
