// Site: what the connections of a server share, and the connection as the server sees it. All of it on the
// server's thread, but for the counts.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "gateway/http/budget.h"
#include "gateway/http/call.h"
#include "gateway/http/exchange.h"
#include "gateway/http/loop.h"
#include "gateway/http/server.h"

namespace baton::gateway::http {

class Connection;

// Connections whose clients have not said yet what they want: silent ones, those in the middle of a request,
// and those that rest after an answer. In the order in which they began to; where there is no room for
// another, the first gives way. On the server's thread.
class Waiting {
 public:
  using Place = std::list<Connection*>::iterator;

  // The one that has waited longest: of this address, or of all. Null: none waits.
  Connection* First() const { return all_.empty() ? nullptr : all_.front(); }
  Connection* FirstOf(const std::string& address) const;

  // It waits from now on.
  void Enter(Connection& connection);
  // It waits no more. Nothing happens if it did not.
  void Leave(Connection& connection);
  // `after` is what `before` has become: it has its place.
  void Become(Connection& before, Connection& after);

 private:
  std::list<Connection*> all_;
  std::unordered_map<std::string, std::list<Connection*>> by_address_;
};

// One client. It leaves the site when it is closed, and starts nothing any more.
class Connection {
 public:
  explicit Connection(std::string address) : address_(std::move(address)) {}
  virtual ~Connection() = default;

  const std::string& address() const { return address_; }
  // The server is on its way out: what is idle ends at once, what answers afterwards.
  virtual void Leave() = 0;
  virtual void Close() = 0;

 private:
  friend class Waiting;
  struct Places {
    Waiting::Place in_all, of_address;
  };

  const std::string address_;
  std::optional<Places> places_;  // nothing: it does not wait
};

inline Connection* Waiting::FirstOf(const std::string& address) const {
  const auto found = by_address_.find(address);
  return found == by_address_.end() ? nullptr : found->second.front();
}

inline void Waiting::Enter(Connection& connection) {
  Leave(connection);
  auto& of_address = by_address_[connection.address()];
  connection.places_ = {all_.insert(all_.end(), &connection),
                        of_address.insert(of_address.end(), &connection)};
}

inline void Waiting::Leave(Connection& connection) {
  if (!connection.places_.has_value()) return;
  const auto found = by_address_.find(connection.address());
  all_.erase(connection.places_->in_all);
  found->second.erase(connection.places_->of_address);
  if (found->second.empty()) by_address_.erase(found);
  connection.places_.reset();
}

inline void Waiting::Become(Connection& before, Connection& after) {
  if (!before.places_.has_value()) return;
  after.places_ = std::exchange(before.places_, std::nullopt);
  *after.places_->in_all = *after.places_->of_address = &after;
}

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
