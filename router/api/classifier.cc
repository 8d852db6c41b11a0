#include "router/api/classifier.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/base/check.h"
#include "protocol/client/answer_fold.h"
#include "router/api/classifier_prompt.h"

namespace baton::router {
namespace {

using moderation::Question;
using moderation::Verdict;

constexpr uint32_t kAlternatives = 10;
// Ids of tenants are dense from 0, so those of their lanes are no tenant's.
constexpr uint32_t kLane = uint32_t{1} << 31;

// One verdict on its way: the requests for its questions.
class Panel final : public moderation::Judgement {
 public:
  Panel(size_t questions, std::function<void(absl::StatusOr<Verdict>)> done)
      : verdicts_(questions), left_(questions), done_(std::move(done)) {}

  void Cancel() override {
    std::vector<std::shared_ptr<RequestDriver>> drivers;
    {
      absl::MutexLock lock(&mutex_);
      cancelled_ = true;
      drivers.swap(drivers_);
    }
    for (const auto& driver : drivers) driver->OnCancelled();
  }

  // False: it isn't wanted any more.
  bool Add(std::shared_ptr<RequestDriver> driver) {
    absl::MutexLock lock(&mutex_);
    if (!cancelled_) drivers_.push_back(std::move(driver));
    return !cancelled_;
  }

  void Answer(size_t question, absl::StatusOr<Verdict> verdict) {
    std::optional<absl::StatusOr<Verdict>> all;
    std::function<void(absl::StatusOr<Verdict>)> done;
    {
      absl::MutexLock lock(&mutex_);
      if (verdict.ok()) {
        verdicts_[question] = *std::move(verdict);
      } else if (failure_.ok()) {
        failure_ = verdict.status();
      }
      if (--left_ > 0) return;
      drivers_.clear();
      // Whoever waits for the verdict holds this, and the callback holds whoever waits.
      done = std::exchange(done_, nullptr);
      if (failure_.ok()) {
        all = moderation::Together(verdicts_);
      } else {
        all = failure_;
      }
    }
    done(*std::move(all));
  }

 private:
  absl::Mutex mutex_;
  std::vector<std::shared_ptr<RequestDriver>> drivers_ ABSL_GUARDED_BY(mutex_);
  std::vector<Verdict> verdicts_ ABSL_GUARDED_BY(mutex_);
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
  size_t left_ ABSL_GUARDED_BY(mutex_);
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  std::function<void(absl::StatusOr<Verdict>)> done_ ABSL_GUARDED_BY(mutex_);
};

// The client of a question's request: reads the classifier's answer.
class AnswerReader final : public ClientStream {
 public:
  AnswerReader(const moderation::ClassifierFormat& format, size_t question, std::shared_ptr<Panel> panel)
      : format_(format), question_(question), panel_(std::move(panel)) {}

  void SetDriver(std::shared_ptr<RequestDriver> driver) { driver_ = std::move(driver); }

  void Write(const v1::GenerateResponse& response, bool) override {
    fold_.Add(response);
    driver_->OnWritten(true);
  }

  void Finish(const absl::Status& status, const v1::GenerateResponse* last,
              const v1::RequestUsage*) override {
    if (last != nullptr) fold_.Add(*last);
    const auto driver = std::move(driver_);  // it holds this
    const auto panel = std::move(panel_);
    panel->Answer(question_, status.ok() ? Read() : absl::StatusOr<Verdict>(status));
  }

  void Abort(const absl::Status&) override {}

 private:
  absl::StatusOr<Verdict> Read() {
    if (fold_.answer().choices().empty()) return absl::InternalError("it answered nothing");
    const v1::AnswerChoice& choice = fold_.answer().choices(0);
    const std::vector<v1::StepLogprobs> steps(choice.logprobs().begin(), choice.logprobs().end());
    auto verdict = moderation::ReadVerdict(format_, format_.questions[question_], choice.text(), steps);
    if (verdict.ok()) {
      const v1::Usage& usage = choice.finished().usage();
      verdict->tokens = int64_t{usage.prompt_tokens()} + usage.completion_tokens();
    }
    return verdict;
  }

  const moderation::ClassifierFormat& format_;
  const size_t question_;
  std::shared_ptr<Panel> panel_;
  std::shared_ptr<RequestDriver> driver_;
  protocol::AnswerFold fold_;
};

}  // namespace

Tenant Classifier::LaneOf(const Tenant& tenant) {
  return {.id = admission::TenantId(tenant.id.value() | kLane),
          .name = "moderation",
          .label = "moderation",
          .salt = tenant.salt,
          .limits = {.weight = tenant.limits.weight, .concurrency = kConcurrency},
          .internal = true};
}

std::shared_ptr<moderation::Judgement> Classifier::Judge(moderation::Passage passage, const Tenant& tenant,
                                                         absl::Time deadline,
                                                         const telemetry::TraceContext& trace,
                                                         Callback done) {
  const moderation::ClassifierFormat& format = *model_.classifier;
  const absl::Time began = context_.clock->Now();
  const auto panel = std::make_shared<Panel>(
      format.questions.size(), [this, began, done = std::move(done)](absl::StatusOr<Verdict> verdict) {
        if (verdict.ok()) {
          probe_.Judged(verdict->flagged, verdict->tokens, context_.clock->Now() - began);
        } else if (!absl::IsCancelled(verdict.status())) {
          probe_.Failed();
        }
        done(std::move(verdict));
      });
  const auto lane = std::make_shared<const Tenant>(LaneOf(tenant));
  for (size_t i = 0; i < format.questions.size(); ++i) {
    v1::ChatRequest request;
    request.set_model(model_.name);
    *request.mutable_conversation() = QuestionAbout(format.questions[i], passage);
    request.mutable_sampling()->set_temperature(0);
    request.mutable_stop()->set_max_tokens(static_cast<uint32_t>(format.max_tokens));
    request.mutable_output()->set_logprobs(true);
    request.mutable_output()->set_top_logprobs(kAlternatives);
    request.mutable_output()->set_raw_text(true);
    const auto reader = std::make_shared<AnswerReader>(format, i, panel);
    auto driver = RequestDriver::Create(context_, reader, deadline, "Moderate", trace);
    reader->SetDriver(driver);
    const bool wanted = panel->Add(driver);
    driver->StartInternal(lane, std::move(request));
    if (!wanted) driver->OnCancelled();
  }
  return panel;
}

}  // namespace baton::router
