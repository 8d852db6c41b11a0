// Mailbox: how other threads send messages to an owner thread. Bounded by count; a full mailbox refuses the
// post (TryPost returns false) unless the message is one that must not be lost (PostAlways: releases and
// cancels, whose number is bounded by what was admitted).
#pragma once

#include <cstddef>
#include <deque>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace baton {

template <typename Message>
class Mailbox {
 public:
  explicit Mailbox(size_t capacity) : capacity_(capacity) {}

  // Any thread. False when full or closed.
  [[nodiscard]] bool TryPost(Message message) {
    absl::MutexLock lock(&mutex_);
    if (closed_ || messages_.size() >= capacity_) return false;
    messages_.push_back(std::move(message));
    return true;
  }

  // Any thread. It exceeds the capacity if needed; false only when closed.
  bool PostAlways(Message message) {
    absl::MutexLock lock(&mutex_);
    if (closed_) return false;
    messages_.push_back(std::move(message));
    return true;
  }

  // Owner thread: everything posted so far, at once, without waiting.
  std::vector<Message> TakeAll() {
    absl::MutexLock lock(&mutex_);
    return Drain();
  }

  // Owner thread: waits until there is a message, the mailbox is closed, or `timeout` is over.
  std::vector<Message> WaitAndTakeAll(absl::Duration timeout) {
    absl::MutexLock lock(&mutex_);
    mutex_.AwaitWithTimeout(absl::Condition(this, &Mailbox::HasNews), timeout);
    return Drain();
  }

  // Any thread. Messages inside can still be taken; no more go in.
  void Close() {
    absl::MutexLock lock(&mutex_);
    closed_ = true;
  }

  bool closed() const {
    absl::MutexLock lock(&mutex_);
    return closed_;
  }

 private:
  bool HasNews() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return closed_ || !messages_.empty(); }
  std::vector<Message> Drain() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    std::vector<Message> taken(std::make_move_iterator(messages_.begin()),
                               std::make_move_iterator(messages_.end()));
    messages_.clear();
    return taken;
  }

  const size_t capacity_;
  mutable absl::Mutex mutex_;
  std::deque<Message> messages_ ABSL_GUARDED_BY(mutex_);
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace baton
