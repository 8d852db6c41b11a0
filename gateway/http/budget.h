// Budget: bytes that clients have the process hold: bodies, messages, answers that nobody takes or that are
// not whole. It may be a part of a greater one, which counts them as well. Held: one holder's share, given
// back at its end. Any thread for a Budget; one thread at a time for a Held.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <utility>

namespace baton::gateway::http {

class Budget {
 public:
  explicit Budget(size_t limit, std::shared_ptr<Budget> whole = nullptr)
      : limit_(limit), whole_(std::move(whole)) {}

  size_t held() const { return held_; }
  // False, and nothing is taken: there is no room.
  bool Take(size_t bytes) {
    if (held_.fetch_add(bytes) + bytes <= limit_ && (whole_ == nullptr || whole_->Take(bytes))) return true;
    held_ -= bytes;
    return false;
  }
  // Adds bytes that are here already, whether there is room or not.
  void Add(size_t bytes) {
    held_ += bytes;
    if (whole_ != nullptr) whole_->Add(bytes);
  }
  void Give(size_t bytes) {
    held_ -= bytes;
    if (whole_ != nullptr) whole_->Give(bytes);
  }

 private:
  const size_t limit_;
  const std::shared_ptr<Budget> whole_;
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
  // They are another budget's from now on, whether there is room or not.
  void MoveTo(std::shared_ptr<Budget> other) {
    other->Add(bytes_);
    std::exchange(budget_, std::move(other))->Give(bytes_);
  }

 private:
  std::shared_ptr<Budget> budget_;
  size_t bytes_ = 0;
};

}  // namespace baton::gateway::http
