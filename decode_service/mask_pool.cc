#include "decode_service/mask_pool.h"

#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <utility>

namespace baton::decode_service {
namespace {

// Beside a thread of normal priority on the same core, about a tenth of it.
constexpr int kNiceness = 10;

}  // namespace

void LowerThreadPriority() {
  // On Linux, of this thread alone.
  (void)setpriority(PRIO_PROCESS, static_cast<id_t>(syscall(SYS_gettid)), kNiceness);
}

MaskPool::MaskPool(Options options) : options_(std::move(options)) {
  for (int i = 0; i < options_.swift; ++i) threads_.emplace_back([this] { Serve(Lane::kSwift); });
  for (int i = 0; i < options_.slow; ++i) {
    threads_.emplace_back([this] {
      LowerThreadPriority();
      Serve(Lane::kSlow);
    });
  }
}

bool MaskPool::Post(Lane lane, Work& work) {
  absl::MutexLock lock(&mutex_);
  if (stopped_) return false;
  WaitingIn(lane).push_back(std::move(work));
  return true;
}

void MaskPool::Wake() {
  absl::MutexLock lock(&mutex_);
  for (const Lane lane : {Lane::kSwift, Lane::kSlow}) Awake(lane) = !WaitingIn(lane).empty();
}

bool MaskPool::RunOne() {
  Work work;
  {
    absl::MutexLock lock(&mutex_);
    const Lane lane = WaitingIn(Lane::kSwift).empty() ? Lane::kSlow : Lane::kSwift;
    if (WaitingIn(lane).empty()) return false;
    work = std::move(WaitingIn(lane).front());
    WaitingIn(lane).pop_front();
  }
  work();
  return true;
}

void MaskPool::Serve(Lane lane) {
  while (true) {
    Work work;
    {
      absl::MutexLock lock(&mutex_);
      const auto needed = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
        return stopped_ || (Awake(lane) && !WaitingIn(lane).empty());
      };
      if (WaitingIn(lane).empty()) Awake(lane) = false;
      mutex_.Await(absl::Condition(&needed));
      if (stopped_) return;
      work = std::move(WaitingIn(lane).front());
      WaitingIn(lane).pop_front();
    }
    work();
  }
}

void MaskPool::Stop() {
  {
    absl::MutexLock lock(&mutex_);
    stopped_ = true;
  }
  for (std::thread& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
}

}  // namespace baton::decode_service
