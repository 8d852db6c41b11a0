// Connection: one client as the server sees it, and Waiting: those connections that wait for their clients.
// On the server's thread.
#pragma once

#include <list>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>

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

}  // namespace baton::gateway::http
