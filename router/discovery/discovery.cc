#include "router/discovery/discovery.h"

#include <spdlog/spdlog.h>

#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/base/status.h"
#include "text/config/json_fields.h"

namespace baton::router::discovery {

// Input that others post to the thread.
struct Discovery::Inbox {
  struct Answered {
    std::string host;
    Resolver::Answer answer;
  };
  struct Mail {
    std::vector<Answered> answers;
    std::optional<Lists> file;
    bool hurry = false;
  };
  absl::Mutex mutex;
  Mail mail ABSL_GUARDED_BY(mutex);
  bool any ABSL_GUARDED_BY(mutex) = false;
  bool stopping ABSL_GUARDED_BY(mutex) = false;

  std::optional<Mail> Take() {
    absl::MutexLock lock(&mutex);
    if (!std::exchange(any, false)) return std::nullopt;
    return std::exchange(mail, {});
  }
  bool HasMail() {
    absl::MutexLock lock(&mutex);
    return any && !stopping;
  }
  // False once nothing is left to step.
  bool AwaitMail(absl::Duration longest) {
    absl::MutexLock lock(&mutex);
    const auto wake = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) { return any || stopping; };
    mutex.AwaitWithTimeout(absl::Condition(&wake), longest);
    return !stopping;
  }
};

absl::StatusOr<std::unique_ptr<Discovery>> Discovery::Open(const Options& options,
                                                           std::shared_ptr<Resolver> resolver,
                                                           const Clock& clock, OnFound on_found) {
  if (options.decode.empty() && options.fleet_file.empty()) {
    return absl::InvalidArgumentError(
        "no decode worker is named: give --decode HOST:PORT, --decode dns:///NAME:PORT or --fleet-file FILE");
  }
  Lists given;
  BATON_ASSIGN_OR_RETURN(given.decode, ParseEntries(options.decode, "--decode"));
  BATON_ASSIGN_OR_RETURN(given.prefill, ParseEntries(options.prefill, "--prefill"));
  if (resolver == nullptr) resolver = std::make_shared<SystemResolver>();
  std::unique_ptr<Discovery> discovery(
      new Discovery(options, std::move(given), std::move(resolver), clock, std::move(on_found)));
  if (!options.fleet_file.empty()) {
    discovery->file_.emplace(options.fleet_file);
    BATON_RETURN_IF_ERROR(discovery->Reload());
  }
  return discovery;
}

Discovery::Discovery(const Options& options, Lists given, std::shared_ptr<Resolver> resolver,
                     const Clock& clock, OnFound on_found)
    : options_(options),
      resolver_(std::move(resolver)),
      clock_(clock),
      on_found_(std::move(on_found)),
      inbox_(std::make_shared<Inbox>()),
      roster_(std::move(given), options.resolve_every) {}

Discovery::~Discovery() { Stop(); }

void Discovery::Start() {
  Step();
  thread_ = std::thread([this] { StepUntilStopped(); });
  if (!file_.has_value()) return;
  file_->Watch(options_.look_every, [this] {
    if (absl::Status status = Reload(); !status.ok()) {
      spdlog::error("the fleet stays as it was: {}", std::string(status.message()));
    }
  });
}

void Discovery::Stop() {
  file_.reset();
  {
    absl::MutexLock lock(&inbox_->mutex);
    inbox_->stopping = true;
  }
  if (thread_.joinable()) thread_.join();
}

void Discovery::StepUntilStopped() {
  while (inbox_->AwaitMail(roster_.next_due() - clock_.Now())) Step();
}

void Discovery::Hurry() {
  absl::MutexLock lock(&inbox_->mutex);
  inbox_->mail.hurry = inbox_->any = true;
}

absl::Status Discovery::Reload() {
  BATON_ASSIGN_OR_RETURN(const std::string text,
                         model::ReadTextFile(options_.fleet_file, kMaxFleetFileBytes));
  BATON_ASSIGN_OR_RETURN(Lists lists, ParseFleetFile(text, options_.fleet_file));
  spdlog::info("{}: {} decode and {} prefill entries", options_.fleet_file, lists.decode.size(),
               lists.prefill.size());
  absl::MutexLock lock(&inbox_->mutex);
  inbox_->mail.file = std::move(lists);
  inbox_->any = true;
  return absl::OkStatus();
}

void Discovery::Step() {
  do {
    if (std::optional<Inbox::Mail> mail = inbox_->Take(); mail.has_value()) {
      if (mail->file.has_value()) roster_.SetFile(*std::move(mail->file));
      for (const Inbox::Answered& one : mail->answers) {
        const auto news = roster_.OnAnswer(one.host, one.answer, clock_.Now());
        if (!news.has_value()) continue;
        spdlog::log(news->trouble ? spdlog::level::warn : spdlog::level::info, "{}", news->text);
      }
      if (mail->hurry) roster_.Hurry();
    }
    for (const std::string& host : roster_.TakeDue(clock_.Now())) {
      resolver_->Resolve(host, [inbox = inbox_, host](Resolver::Answer answer) {
        absl::MutexLock lock(&inbox->mutex);
        inbox->mail.answers.push_back({host, std::move(answer)});
        inbox->any = true;
      });
    }
    Found found = roster_.found();
    if (said_ == found) continue;
    said_ = std::move(found);
    on_found_(*said_);
  } while (inbox_->HasMail());
}

}  // namespace baton::router::discovery
