#include "common/base/resolver.h"

#include <fmt/format.h>
#include <netdb.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <deque>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace baton {
namespace {

Resolver::Answer Ask(const std::string& host) {
  addrinfo hints = {};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* first = nullptr;
  const int error = getaddrinfo(host.c_str(), nullptr, &hints, &first);
  if (error == EAI_NONAME || error == EAI_NODATA || error == EAI_ADDRFAMILY) {
    return absl::NotFoundError(gai_strerror(error));
  }
  if (error != 0) {
    return absl::UnavailableError(error == EAI_SYSTEM ? std::strerror(errno) : gai_strerror(error));
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owned(first, freeaddrinfo);
  std::vector<std::string> addresses;
  for (const addrinfo* one = first; one != nullptr; one = one->ai_next) {
    char text[NI_MAXHOST];
    if (getnameinfo(one->ai_addr, one->ai_addrlen, text, sizeof(text), nullptr, 0, NI_NUMERICHOST) == 0) {
      addresses.emplace_back(text);
    }
  }
  return addresses;
}

}  // namespace

struct SystemResolver::Work {
  struct Question {
    std::string host;
    std::function<void(Answer)> done;
  };
  absl::Mutex mutex;
  std::deque<Question> questions ABSL_GUARDED_BY(mutex);
  bool closed ABSL_GUARDED_BY(mutex) = false;

  void AnswerUntilClosed() {
    const auto something = [this]()
                               ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) { return closed || !questions.empty(); };
    while (true) {
      Question question;
      {
        absl::MutexLock lock(&mutex);
        mutex.Await(absl::Condition(&something));
        if (closed) return;
        question = std::move(questions.front());
        questions.pop_front();
      }
      Answer answer = Ask(question.host);
      {
        absl::MutexLock lock(&mutex);
        if (closed) return;
      }
      question.done(std::move(answer));
    }
  }
};

SystemResolver::SystemResolver() : work_(std::make_shared<Work>()) {
  std::thread([work = work_] { work->AnswerUntilClosed(); }).detach();
}

SystemResolver::~SystemResolver() {
  absl::MutexLock lock(&work_->mutex);
  work_->closed = true;
}

void SystemResolver::Resolve(const std::string& host, std::function<void(Answer)> done) {
  absl::MutexLock lock(&work_->mutex);
  work_->questions.push_back({host, std::move(done)});
}

}  // namespace baton
