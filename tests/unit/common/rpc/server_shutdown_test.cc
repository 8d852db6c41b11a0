// A server that shuts down while others still use it: a router's fleet reports until its watcher has ended.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "absl/time/time.h"
#include "common/rpc/server.h"

namespace baton::rpc {
namespace {

TEST(ServerShutdownTest, MayMeetWhoSaysThatItServes) {
  for (int round = 0; round < 50; ++round) {
    auto server = Server::Start({.health_listen = "127.0.0.1:0"}, {});
    ASSERT_TRUE(server.ok()) << server.status();
    std::atomic<bool> begun = false;
    std::atomic<bool> done = false;
    std::thread fleet([&] {
      for (bool serving = false; !done; serving = !serving) {
        (*server)->SetServing(serving);
        begun = true;
        begun.notify_one();
      }
    });
    begun.wait(false);
    (*server)->Shutdown(absl::ZeroDuration());
    done = true;
    fleet.join();
  }
}

TEST(ServerShutdownTest, MayBeAskedForByTwo) {
  for (int round = 0; round < 50; ++round) {
    auto server = Server::Start({}, {});
    ASSERT_TRUE(server.ok()) << server.status();
    std::thread other([&] { (*server)->Shutdown(absl::ZeroDuration()); });
    (*server)->Shutdown(absl::ZeroDuration());
    other.join();
    (*server)->SetServing(true);
  }
}

}  // namespace
}  // namespace baton::rpc
