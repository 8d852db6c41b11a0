#include "decode_service/grammar_threads.h"

#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <utility>

namespace baton::decode_service {
namespace {

// Beside a thread of normal priority on the same core, about a tenth of it.
constexpr int kNiceness = 10;

// Slow work must hold up no answer where cores are short.
void LowerThreadPriority() {
  // On Linux, of this thread alone.
  (void)setpriority(PRIO_PROCESS, static_cast<id_t>(syscall(SYS_gettid)), kNiceness);
}

}  // namespace

absl::Duration ThreadCpuTime() {
  timespec now = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return absl::DurationFromTimespec(now);
}

GrammarThreads::GrammarThreads(Options options)
    : options_(std::move(options)),
      waiting_({FairLines<Work>(options_.capacity), FairLines<Work>(options_.capacity)}) {
  for (int i = 0; i < options_.swift; ++i) threads_.emplace_back([this] { Serve(Lane::kSwift); });
  for (int i = 0; i < options_.slow; ++i) {
    threads_.emplace_back([this] {
      LowerThreadPriority();
      Serve(Lane::kSlow);
    });
  }
}

bool GrammarThreads::Post(Lane lane, const std::string& salt, Work& work) {
  absl::MutexLock lock(&mutex_);
  return !stopped_ && WaitingIn(lane).Push(salt, work);
}

void GrammarThreads::Wake() {
  absl::MutexLock lock(&mutex_);
  for (const Lane lane : {Lane::kSwift, Lane::kSlow}) Awake(lane) = !WaitingIn(lane).empty();
}

bool GrammarThreads::RunOne() {
  Work work;
  {
    absl::MutexLock lock(&mutex_);
    const Lane lane = WaitingIn(Lane::kSwift).empty() ? Lane::kSlow : Lane::kSwift;
    if (WaitingIn(lane).empty()) return false;
    work = WaitingIn(lane).Pop();
  }
  work();
  return true;
}

void GrammarThreads::Serve(Lane lane) {
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
      work = WaitingIn(lane).Pop();
    }
    work();
  }
}

void GrammarThreads::Stop() {
  {
    absl::MutexLock lock(&mutex_);
    stopped_ = true;
  }
  for (std::thread& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
}

}  // namespace baton::decode_service
