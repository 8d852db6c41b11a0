#include "gateway/side_thread.h"

#include <spdlog/spdlog.h>

#include <exception>
#include <utility>

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
  auto& tasks = tasks_[address];
  if (tasks.empty()) turns_.push_back(address);
  tasks.push_back(std::move(task));
}

std::function<void()> SideThread::Next() {
  absl::MutexLock lock(&mutex_);
  const auto ready = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return over_ || !turns_.empty(); };
  mutex_.Await(absl::Condition(&ready));
  if (turns_.empty()) return nullptr;
  std::string address = std::move(turns_.front());
  turns_.pop_front();
  const auto found = tasks_.find(address);
  std::function<void()> task = std::move(found->second.front());
  found->second.pop_front();
  if (found->second.empty()) {
    tasks_.erase(found);
  } else {
    turns_.push_back(std::move(address));
  }
  return task;
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
