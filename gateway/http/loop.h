// Loop: the server's thread, as exchanges and calls see it, which may outlive the server: what they post then
// is dropped. Any thread.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <functional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace baton::gateway::http {

class Loop {
 public:
  boost::asio::io_context& context() { return context_; }

  void Post(std::function<void()> what) {
    absl::MutexLock lock(&mutex_);
    if (!stopped_) boost::asio::post(context_, std::move(what));
  }

  // Once the context has run dry: what came meanwhile is the last that runs.
  void Stop() {
    {
      absl::MutexLock lock(&mutex_);
      stopped_ = true;
    }
    context_.restart();
    context_.poll();
  }

 private:
  boost::asio::io_context context_{1};
  absl::Mutex mutex_;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace baton::gateway::http
