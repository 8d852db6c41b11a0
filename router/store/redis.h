// Redis: one connection to a server of the Redis protocol (Redis, Valkey), by hiredis. It is made when it is
// needed, and again after it has failed. One thread; calls wait for the server, for a bounded time.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "router/store/store_address.h"

struct redisContext;
struct redisReply;

namespace baton::router::store {

struct StoreOptions {
  StoreAddress address;
  std::string password_file;  // read for each connection; empty: none is needed
  // Limit for connecting, and for each answer.
  absl::Duration patience = absl::Milliseconds(500);
};

// A command's result: a number, a text or a list. Nothing of these: nil.
struct Reply {
  int64_t number = 0;
  std::string text;
  std::vector<Reply> list;
};

// A program that the server runs as a whole or not at all.
struct Script {
  std::string_view code;  // Lua 5.1
  // How many of its arguments are names of keys: they come first.
  int keys = 0;
};

class Redis {
 public:
  explicit Redis(StoreOptions options);
  ~Redis();

  // UNAVAILABLE: there is no server, it is not ready, or it took too long, and then what the command does may
  // have been done. PERMISSION_DENIED: it wants another password or user. RESOURCE_EXHAUSTED: its memory is
  // full.
  absl::StatusOr<Reply> Run(std::span<const std::string> command);
  absl::StatusOr<Reply> Run(const Script& script, std::span<const std::string> arguments);

 private:
  struct Closer {
    void operator()(redisContext* context) const;
    void operator()(redisReply* reply) const;
  };
  absl::Status Connect();
  absl::StatusOr<Reply> Send(std::span<const std::string> command);
  absl::Status Failure(std::string_view doing) const;

  const StoreOptions options_;
  std::unique_ptr<redisContext, Closer> context_;  // null: not connected
};

}  // namespace baton::router::store
