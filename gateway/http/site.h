// Site: what the connections of a server share. All of it on the server's thread, but for the counts.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "gateway/http/budget.h"
#include "gateway/http/call.h"
#include "gateway/http/connection.h"
#include "gateway/http/exchange.h"
#include "gateway/http/loop.h"
#include "gateway/http/server.h"

namespace baton::gateway::http {

inline constexpr const char* kNoRoom =
    "so much is held for clients, or for those of this address, that there is no room; try again";

// Read at once.
inline constexpr size_t kReadBytes = 16 << 10;

class Site {
 public:
  Site(const ServerOptions& given, Handler handle, CallHandler handle_call, CountsObserver tell)
      : options(given),
        handler(std::move(handle)),
        call_handler(std::move(handle_call)),
        observer(std::move(tell)) {}

  ServerCounts counts() const {
    return {.connections = open,
            .refused_connections = refused,
            .bad_requests = bad,
            .failed_handshakes = failed_handshakes,
            .streams = streams,
            .floods = floods,
            .refused_streams = refused_streams,
            .held_bytes = budget->held()};
  }
  void Tell() const {
    if (observer) observer(counts());
  }
  void Count(std::atomic<size_t>& count) const {
    ++count;
    Tell();
  }

  // The answer to a request that is turned away. `path`: as far as it is known, with or without a query.
  Response Refusal(int status, std::string_view path, const std::string& why) const {
    Response response = options.refusal ? options.refusal(status, path.substr(0, path.find('?')), why)
                                        : Response{.status = status,
                                                   .headers = {},
                                                   .content_type = "text/plain; charset=utf-8",
                                                   .body = why + "\n"};
    if (status == 503) response.headers.emplace_back("Retry-After", "1");
    return response;
  }

  // The budget for requests of this address that have not come whole: nobody knows yet who asks, or whether
  // anybody does. A part of the budget, and no address has all of that part.
  std::shared_ptr<Budget> UnfinishedOf(const std::string& address) {
    std::shared_ptr<Budget>& unfinished = unfinished_of_[address];
    if (unfinished == nullptr) unfinished = std::make_shared<Budget>(options.max_held_bytes / 8, unfinished_);
    return unfinished;
  }
  // It has no connection any more.
  void Forget(const std::string& address) { unfinished_of_.erase(address); }

  // A stream of HTTP/2 for this address; false: there are as many as may be. Each is closed once.
  bool OpenStream(const std::string& address) {
    size_t& of_address = streams_of_[address];
    if (streams >= options.max_streams || of_address >= options.max_streams_per_address) {
      if (of_address == 0) streams_of_.erase(address);
      Count(refused_streams);
      return false;
    }
    ++of_address;
    ++streams;
    return true;
  }
  void CloseStream(const std::string& address) {
    --streams;
    if (const auto found = streams_of_.find(address); found != streams_of_.end() && --found->second == 0) {
      streams_of_.erase(found);
    }
  }

  const ServerOptions options;
  const Handler handler;
  const CallHandler call_handler;
  const CountsObserver observer;
  const std::shared_ptr<Loop> loop = std::make_shared<Loop>();
  const std::shared_ptr<Budget> budget = std::make_shared<Budget>(options.max_held_bytes);
  Waiting waiting;
  bool leaving = false;
  std::atomic<size_t> open = 0, refused = 0, bad = 0, failed_handshakes = 0, streams = 0, floods = 0,
                      refused_streams = 0;
  // The connection is closed; the second has taken the place of the first.
  std::function<void(Connection&)> closed;
  std::function<void(Connection&, std::shared_ptr<Connection>)> became;
  // For reads that end at once.
  std::array<char, kReadBytes> scratch;

 private:
  const std::shared_ptr<Budget> unfinished_ = std::make_shared<Budget>(options.max_held_bytes / 2, budget);
  std::unordered_map<std::string, std::shared_ptr<Budget>> unfinished_of_;
  std::unordered_map<std::string, size_t> streams_of_;
};

}  // namespace baton::gateway::http
