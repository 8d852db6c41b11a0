#include "router/api/executor.h"

#include <malloc.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/rpc/status.h"

namespace baton::router {
namespace {

// Minimum cost of a job, in bytes of work: parsing and answering.
constexpr size_t kMinWork = 1024;
// Weight of one job of the size of kLargeBytes in the pace.
constexpr double kPaceWeight = 0.1;
// The C library keeps what many small pieces leave behind. It gives that back once nothing has come for this
// long, or after so many bytes of large jobs: after each one, the next would fault its pages in again.
constexpr absl::Duration kTrimDelay = absl::Milliseconds(100);
constexpr size_t kTrimBytes = 16 << 20;
constexpr absl::Duration kMinRetry = absl::Milliseconds(100), kLongestRetry = absl::Seconds(60);

}  // namespace

Executor::Executor(Options options) : options_(std::move(options)) {
  for (int i = 0; i < options_.threads; ++i) threads_.emplace_back([this] { Work(); });
}

Executor::~Executor() {
  {
    absl::MutexLock lock(&mutex_);
    closed_ = true;
  }
  for (std::thread& thread : threads_) thread.join();
}

bool Executor::TrySubmit(Job job) {
  absl::MutexLock lock(&mutex_);
  if (closed_) return false;
  Held& held = held_[job.tenant];
  const auto fits = [](size_t capacity, size_t all, size_t mine, size_t more) {
    return all + more <= capacity && mine + more <= capacity - all;
  };
  const bool room = fits(options_.capacity, all_.jobs, held.jobs, 1) &&
                    fits(options_.capacity_bytes, all_.bytes, held.bytes, job.bytes);
  if (!room && all_.jobs > 0) return false;
  for (Held* one : {&held, &all_}) {
    ++one->jobs;
    one->bytes += job.bytes;
  }
  ++waiting_;
  const LineId id(job.bytes > kLargeBytes, job.tenant);
  Line& line = lines_[id];
  if (line.jobs.empty()) {
    line.had = std::max(line.had, scale_);  // time without work earns nothing
    turns_.emplace(line.had, id);
  }
  line.jobs.push_back(std::move(job));
  return true;
}

absl::Status Executor::Full() const {
  absl::MutexLock lock(&mutex_);
  const double work = static_cast<double>(all_.bytes + all_.jobs * kMinWork);
  return rpc::WithRetryDelay(
      absl::ResourceExhaustedError(absl::StrCat("too many ", options_.what, "; try again later")),
      std::clamp(absl::Seconds(seconds_per_byte_ * work / std::max(1, options_.threads)), kMinRetry,
                 kLongestRetry));
}

absl::Duration Executor::Busy() const {
  absl::MutexLock lock(&mutex_);
  return busy_;
}

Executor::Turns::const_iterator Executor::Next() const {
  const bool large_too = large_running_ < std::max(1, options_.threads - 1);
  return std::find_if(turns_.begin(), turns_.end(), [large_too](const auto& turn) {
    const bool large = turn.second.first;
    return large_too || !large;
  });
}

Executor::Job Executor::Take() {
  const auto next = Next();
  const LineId id = next->second;
  turns_.erase(next);
  Line& line = lines_.at(id);
  scale_ = std::max(scale_, line.had);
  Job job = std::move(line.jobs.front());
  line.jobs.pop_front();
  --waiting_;
  line.had += std::max(job.weight.value_or(job.bytes), kMinWork);
  if (!line.jobs.empty()) turns_.emplace(line.had, id);
  return job;
}

bool Executor::Await(absl::Duration patience) {
  const auto needed = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return MayStart() || (closed_ && waiting_ == 0);
  };
  return mutex_.AwaitWithTimeout(absl::Condition(&needed), patience);
}

void Executor::Work() {
  while (true) {
    Job job;
    bool idle = false;
    {
      absl::MutexLock lock(&mutex_);
      idle = !Await(untrimmed_ > 0 ? kTrimDelay : absl::InfiniteDuration());
      if (!idle) {
        if (!MayStart()) return;
        job = Take();
        large_running_ += job.bytes > kLargeBytes ? 1 : 0;
      }
    }
    if (!idle) Do(std::move(job));
    bool trim;
    {
      absl::MutexLock lock(&mutex_);
      trim = untrimmed_ >= (idle ? 1 : kTrimBytes);
      if (trim) untrimmed_ = 0;
    }
    if (trim) malloc_trim(0);
  }
}

void Executor::Do(Job job) {
  const size_t bytes = job.bytes;
  const bool large = bytes > kLargeBytes;
  const admission::TenantId tenant = job.tenant;
  const absl::Time began = options_.clock->Now();
  const bool wanted = job.wanted();
  if (!wanted) job.drop();
  if (!(wanted && job.work()) && options_.dropped) options_.dropped();
  const absl::Duration took = options_.clock->Now() - began;
  const double seconds = absl::ToDoubleSeconds(took);
  job = {};  // its message is gone before its bytes are
  absl::MutexLock lock(&mutex_);
  busy_ += took;
  for (Held* one : {&held_.at(tenant), &all_}) {
    --one->jobs;
    one->bytes -= bytes;
  }
  large_running_ -= large ? 1 : 0;
  untrimmed_ += large ? bytes : 0;
  if (!wanted) return;
  const double work = static_cast<double>(std::max(bytes, kMinWork));
  const double weight = kPaceWeight * std::min(1.0, work / static_cast<double>(kLargeBytes));
  seconds_per_byte_ += weight * (std::max(0.0, seconds) / work - seconds_per_byte_);
}

}  // namespace baton::router
