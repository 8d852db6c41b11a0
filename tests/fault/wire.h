// Wire: one server-streaming call between two nodes of the scripted fleet, in virtual time, with what a real
// one does: one event at a time when the reader asks, an end that comes after the events, a reset when a
// process dies, silence when it hangs or the link is cut, and keepalive that ends the silence. The test
// damages it: holds it, and changes, repeats or reorders the events that wait. One thread.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace baton::fault {

// Keepalive notices a dead peer within this time (common/rpc/channel.h).
inline constexpr absl::Duration kNoticed = absl::Milliseconds(1800);
// A request takes this long to arrive.
inline constexpr absl::Duration kArrives = absl::Milliseconds(4);

// A process: what is posted runs in its next turn, unless it died since.
struct Node {
  std::string name;
  bool up = true;
  bool stopped = false;
  uint64_t life = 1;
  std::deque<std::function<void()>> mail;

  void Post(std::function<void()> work) {
    if (up) mail.push_back(std::move(work));
  }
  // Runs what came until now.
  void TakeMail() {
    for (size_t count = mail.size(); up && count > 0; --count) {
      const auto work = std::move(mail.front());
      mail.pop_front();
      work();
    }
  }
};

// One life of a node: a restarted process does not hear what was meant for the one before.
struct End {
  Node* node = nullptr;
  uint64_t life = 0;
  explicit End(Node& of) : node(&of), life(of.life) {}
  bool alive() const { return node->up && node->life == life; }
  void Post(std::function<void()> work) const {
    if (alive()) node->Post(std::move(work));
  }
};

class WireBase {
 public:
  WireBase(Node& client, Node& server) : client_(client), server_(server) {}
  virtual ~WireBase() = default;
  virtual void Tick(absl::Time now) = 0;
  // The call's deadline passes: gRPC tells both ends by itself.
  virtual void PassDeadline() = 0;

  bool joins(const Node& node) const { return client_.node == &node || server_.node == &node; }
  bool over() const { return client_over_ && server_over_; }
  // The living ends know that it is over.
  bool settled() const {
    return (client_over_ || !client_.alive() || client_.node->stopped) &&
           (server_over_ || !server_.alive() || server_.node->stopped);
  }
  void Cut() { cut_ = true; }
  void HoldUntil(absl::Time time) { held_until_ = time; }

 protected:
  End client_, server_;
  bool client_over_ = false, server_over_ = false;
  bool cut_ = false;
  absl::Time held_until_ = absl::InfinitePast();
};

template <typename Event>
class Wire final : public WireBase {
 public:
  struct Reader {
    std::function<void(Event)> event;
    std::function<void(absl::Status)> done;
  };
  using Damage = std::function<bool(std::deque<Event>&)>;

  Wire(Node& client, Node& server, Reader reader)
      : WireBase(client, server), reader_(std::make_shared<Reader>(std::move(reader))) {}

  // The server's end. Nothing is said to a caller that left.
  void SetCancelled(std::function<void()> cancelled) { cancelled_ = std::move(cancelled); }
  void Send(Event event) {
    if (!server_over_ && !end_.has_value()) outbox_.push_back(std::move(event));
  }
  void Finish(absl::Status status) {
    if (end_.has_value()) return;
    if (!status.ok() && outbox_.size() > 1) outbox_.erase(outbox_.begin() + 1, outbox_.end());
    end_ = std::move(status);
    server_over_ = true;
  }
  bool server_over() const { return server_over_; }
  size_t waiting() const { return outbox_.size(); }
  bool server_done() const { return end_.has_value(); }

  // The client's end.
  void Next() { wanted_ = true; }
  // No callback comes after this.
  void LetGo() {
    reader_->event = nullptr;
    reader_->done = nullptr;
    client_over_ = true;
  }
  // The end still comes.
  void Cancel() { cancel_ = true; }

  // Runs before each delivery until it says that it is done.
  void SetDamage(Damage damage) { damage_ = std::move(damage); }
  int delivered() const { return delivered_; }

  void PassDeadline() override {
    EndClient(absl::DeadlineExceededError("deadline"));
    EndServer();
  }

  void Tick(absl::Time now) override {
    if (over()) return;
    if (!server_.alive()) {
      server_over_ = true;
      outbox_.clear();  // whatever had not left the process dies with it
      EndClient(absl::UnavailableError("connection reset by peer"));
    }
    if (!client_.alive()) {
      client_over_ = true;
      EndServer();
      return;
    }
    if (cut_ || client_.node->stopped || server_.node->stopped) {
      if (!silent_since_.has_value()) silent_since_ = now;
      if (now - *silent_since_ < kNoticed) return;
      EndClient(absl::UnavailableError("keepalive: no answer"));
      EndServer();
      return;
    }
    silent_since_.reset();
    if (now < held_until_) return;
    if (client_over_ || cancel_) {
      EndServer();
      EndClient(absl::CancelledError("cancelled"));
      return;
    }
    if (damage_ && !outbox_.empty() && damage_(outbox_)) damage_ = nullptr;
    if (!outbox_.empty()) {
      if (!wanted_) return;
      wanted_ = false;
      ++delivered_;
      client_.Post([reader = reader_, event = std::move(outbox_.front())]() mutable {
        if (const auto take = reader->event) take(std::move(event));
      });
      outbox_.pop_front();
    } else if (end_.has_value()) {
      EndClient(*end_);
    }
  }

 private:
  void EndClient(const absl::Status& status) {
    if (std::exchange(client_over_, true)) return;
    client_.Post([reader = reader_, status] {
      if (const auto done = std::exchange(reader->done, nullptr)) done(status);
    });
  }
  void EndServer() {
    outbox_.clear();
    if (std::exchange(server_over_, true)) return;
    if (cancelled_) server_.Post(cancelled_);
  }

  const std::shared_ptr<Reader> reader_;
  std::function<void()> cancelled_;
  Damage damage_;
  std::deque<Event> outbox_;
  std::optional<absl::Status> end_;
  std::optional<absl::Time> silent_since_;
  bool wanted_ = true;
  bool cancel_ = false;
  int delivered_ = 0;
};

}  // namespace baton::fault
