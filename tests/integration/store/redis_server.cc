#include "tests/integration/store/redis_server.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <csignal>
#include <filesystem>

#include "absl/status/status.h"
#include "common/base/check.h"
#include "common/base/secret.h"
#include "tests/patience.h"

namespace baton::router::store {

RedisServer::RedisServer(std::vector<std::string> flags)
    : folder_(::testing::TempDir() + "/store_" + RandomHex(8)),
      socket_(folder_ + "/s"),
      flags_(std::move(flags)) {
  std::filesystem::create_directories(folder_);
  Start();
}

RedisServer::~RedisServer() {
  child_.reset();
  std::filesystem::remove_all(folder_);
}

void RedisServer::Start() {
  std::vector<std::string> flags = {"--port", "0", "--unixsocket", socket_, "--dir", folder_, "--save", ""};
  flags.insert(flags.end(), flags_.begin(), flags_.end());
  auto child = cli::Child::Spawn(BATON_REDIS_SERVER, flags);
  BATON_CHECK(child.ok()) << child.status();
  child_ = *std::move(child);
  Redis redis(options());
  absl::Status there;
  const auto is_there = [&] {
    there = redis.Run(std::vector<std::string>{"PING"}).status();
    return !absl::IsUnavailable(there);
  };
  BATON_CHECK(Await(is_there, "the store")) << there;
}

void RedisServer::Signal(int signal) { child_->Signal(signal); }

void RedisServer::AwaitEnd() {
  pollfd ended = {.fd = child_->ended_fd(), .events = POLLIN, .revents = 0};
  BATON_CHECK_EQ(poll(&ended, 1, Scaled(60'000)), 1);
  child_.reset();
}

StoreOptions RedisServer::options() const { return {.address = {.socket = socket_}}; }

Reply RedisServer::Ask(const std::vector<std::string>& command) {
  Redis redis(options());
  auto reply = redis.Run(command);
  EXPECT_TRUE(reply.ok()) << reply.status();
  return reply.ok() ? *std::move(reply) : Reply{};
}

}  // namespace baton::router::store
