// Budget: bytes that clients have the whole process hold: bodies, messages, answers that nobody takes. Held:
// one holder's share, given back at its end. Any thread for a Budget; one thread at a time for a Held.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <utility>

namespace baton::gateway::http {

class Budget {
 public:
  explicit Budget(size_t limit) : limit_(limit) {}

  size_t held() const { return held_; }
  // False, and nothing is taken: there is no room.
  bool Take(size_t bytes) {
    if (held_.fetch_add(bytes) + bytes <= limit_) return true;
    held_ -= bytes;
    return false;
  }
  // What is here already, whether there is room or not.
  void Add(size_t bytes) { held_ += bytes; }
  void Give(size_t bytes) { held_ -= bytes; }

 private:
  const size_t limit_;
  std::atomic<size_t> held_ = 0;
};

class Held {
 public:
  explicit Held(std::shared_ptr<Budget> budget) : budget_(std::move(budget)) {}
  Held(Held&& other) noexcept : budget_(std::move(other.budget_)), bytes_(std::exchange(other.bytes_, 0)) {}
  Held& operator=(Held&&) = delete;
  ~Held() {
    if (budget_ != nullptr) budget_->Give(bytes_);
  }

  // From now on it is so many bytes. False: there is no room for more, and it stays as it was.
  bool Become(size_t bytes) {
    if (bytes > bytes_ && !budget_->Take(bytes - bytes_)) return false;
    if (bytes < bytes_) budget_->Give(bytes_ - bytes);
    bytes_ = bytes;
    return true;
  }
  // The same for what is here already.
  void Be(size_t bytes) {
    if (budget_ == nullptr) return;  // moved
    budget_->Add(bytes);
    budget_->Give(bytes_);
    bytes_ = bytes;
  }

 private:
  std::shared_ptr<Budget> budget_;
  size_t bytes_ = 0;
};

}  // namespace baton::gateway::http
