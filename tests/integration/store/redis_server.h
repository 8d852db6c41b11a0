// RedisServer: a real server of the Redis protocol on a socket file of its own. It dies with the object.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/serve/child.h"
#include "router/store/redis.h"

namespace baton::router::store {

class RedisServer {
 public:
  // Started, and answers. Further flags, as redis-server takes them.
  explicit RedisServer(std::vector<std::string> flags = {});
  ~RedisServer();

  // SIGKILL, or SIGSTOP and SIGCONT.
  void Signal(int signal);
  // Waits for its end.
  void AwaitEnd();
  // Again on the same address, with nothing in it.
  void Start();

  StoreOptions options() const;
  std::string url() const { return "unix://" + socket_; }
  // Returns a command's reply; the test fails if it fails.
  Reply Ask(const std::vector<std::string>& command);

 private:
  const std::string folder_;
  const std::string socket_;
  const std::vector<std::string> flags_;
  std::optional<cli::Child> child_;
};

}  // namespace baton::router::store
