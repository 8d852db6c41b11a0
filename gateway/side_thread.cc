#include "gateway/side_thread.h"

#include <spdlog/spdlog.h>

#include <exception>

namespace baton::gateway {

SideThread::SideThread() : thread_([this] { Loop(); }) {}

SideThread::~SideThread() {
  {
    absl::MutexLock lock(&mutex_);
    over_ = true;
  }
  thread_.join();
}

void SideThread::Run(const std::string& address, std::function<void()> task) {
  absl::MutexLock lock(&mutex_);
  (void)tasks_.Push(address, task);  // it has no bound of its own
}

std::function<void()> SideThread::Next() {
  absl::MutexLock lock(&mutex_);
  const auto ready = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return over_ || !tasks_.empty(); };
  mutex_.Await(absl::Condition(&ready));
  return tasks_.empty() ? nullptr : tasks_.Pop();
}

void SideThread::Loop() {
  while (const std::function<void()> task = Next()) {
    try {
      task();
    } catch (const std::exception& thrown) {
      spdlog::error("a task has thrown: {}", thrown.what());  // its client's connection is cut
    }
  }
}

}  // namespace baton::gateway
