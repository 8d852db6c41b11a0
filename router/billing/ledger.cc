#include "router/billing/ledger.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/time/clock.h"
#include "common/base/random.h"
#include "common/base/status.h"
#include "router/billing/sqlite_ledger.h"

namespace baton::router::billing {
namespace {

// Between two writings: what comes in this time is written together.
constexpr absl::Duration kPause = absl::Milliseconds(2);
// Before what has failed is tried again.
constexpr absl::Duration kRetryAfter = absl::Seconds(1);

std::string DayOf(absl::Time time) { return absl::FormatTime("%Y-%m-%d", time, absl::UTCTimeZone()); }

LedgerKey KeyOf(const UsageRecord& record) {
  return {.day = DayOf(record.ended),
          .tenant = record.tenant,
          .key = record.key,
          .model = record.model,
          .currency = record.currency};
}

AnswerUse UseOf(const UsageRecord& record) {
  AnswerUse use{.answer = record.answer->name, .key = KeyOf(record), .prompt = {}, .rest = {}};
  use.prompt.tokens = record.answer->tokens;
  use.prompt.tokens.completion = use.prompt.tokens.thinking = 0;
  use.prompt.AddCost(record.answer->prompt_picos);
  use.rest.tokens.completion = record.answer->tokens.completion;
  use.rest.tokens.thinking = record.answer->tokens.thinking;
  use.rest.AddCost(record.answer->rest_picos);
  use.rest.failed = record.code == absl::StatusCode::kOk || record.answer->whole ? 0 : 1;
  return use;
}

LedgerSums SumsOf(const UsageRecord& record) {
  LedgerSums sums;
  sums.requests = 1;
  sums.failed = record.code == absl::StatusCode::kOk ? 0 : 1;
  sums.tokens = record.tokens;
  sums.AddCost(record.picos);
  return sums;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Ledger>> Ledger::Open(const Options& options, LedgerProbe& probe,
                                                     std::unique_ptr<LedgerStore> store) {
  std::unique_ptr<AuditLog> audit;
  if (!options.ledger_file.empty()) {
    BATON_ASSIGN_OR_RETURN(store, SqliteLedger::Open(options.ledger_file));
  }
  if (!options.audit_file.empty()) {
    BATON_ASSIGN_OR_RETURN(audit, AuditLog::Open(options.audit_file));
  }
  return std::unique_ptr<Ledger>(new Ledger(std::move(store), std::move(audit), probe));
}

Ledger::Ledger(std::unique_ptr<LedgerStore> store, std::unique_ptr<AuditLog> audit, LedgerProbe& probe)
    : store_(std::move(store)),
      audit_(std::move(audit)),
      probe_(probe),
      writer_(fmt::format("{:016x}", RandomU64())),
      writer_thread_([this] { Write(); }),
      watch_thread_([this] { ReleaseLate(); }) {}

Ledger::~Ledger() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  writer_thread_.join();
  watch_thread_.join();
}

void Ledger::Record(UsageRecord record, std::function<void()> written) {
  const std::string line = audit_ == nullptr ? std::string() : AuditLine(record);
  {
    absl::MutexLock lock(&mutex_);
    if (store_ != nullptr && record.counted) {
      if (record.answer.has_value() && uses_.size() < kMaxUses) {
        uses_.push_back(UseOf(record));
      } else {
        sheet_[KeyOf(record)].Add(SumsOf(record));
      }
      ++requests_;
    }
    if (lines_.size() + line.size() <= kMaxAuditBytes) {
      lines_ += line;
    } else {
      probe_.LinesLost(1);
    }
    if (!failing_) {
      waiting_.push_back({.record = records_++, .since = clock_.Now(), .written = std::move(written)});
      return;
    }
  }
  written();
}

bool Ledger::SomethingToDo() const {
  return stopping_ || !waiting_.empty() || !sheet_.empty() || !uses_.empty() || !lines_.empty();
}

bool Ledger::SomebodyWaits() const { return stopping_ || !waiting_.empty(); }

std::vector<Ledger::Waiting> Ledger::TakeWaiting(int64_t record, absl::Time since) {
  std::vector<Waiting> taken;
  while (!waiting_.empty() && (waiting_.front().record < record || waiting_.front().since < since)) {
    taken.push_back(std::move(waiting_.front()));
    waiting_.pop_front();
  }
  return taken;
}

void Ledger::Collect() {
  if (tried_.number == 0 && (!sheet_.empty() || !uses_.empty())) {
    tried_ = {.number = ++batches_,
              .sheet = std::exchange(sheet_, {}),
              .uses = std::exchange(uses_, {}),
              .requests = std::exchange(requests_, 0)};
  }
  const size_t room = kMaxAuditBytes - std::min(kMaxAuditBytes, unwritten_lines_.size());
  if (lines_.size() <= room) {
    unwritten_lines_ += std::exchange(lines_, {});
  }
}

bool Ledger::WriteCollected() {
  absl::Status status;
  if (tried_.number != 0) {
    status = store_->Add(writer_, tried_.number, DayOf(absl::Now()), tried_.sheet, tried_.uses);
    if (status.ok()) {
      probe_.Written(tried_.requests);
      tried_ = {};
    }
  }
  if (!unwritten_lines_.empty()) {
    const absl::Status appended = audit_->Append(unwritten_lines_);
    if (appended.ok()) unwritten_lines_.clear();
    status.Update(appended);
  }
  if (status.ok()) return true;
  spdlog::error("what requests used could not be written, and is tried again: {}",
                std::string(status.message()));
  return false;
}

void Ledger::Write() {
  bool written = true, last = false;
  while (!last) {
    int64_t through = 0;
    {
      absl::MutexLock lock(&mutex_);
      if (written) {
        mutex_.Await(absl::Condition(this, &Ledger::SomethingToDo));
      } else {
        mutex_.AwaitWithTimeout(absl::Condition(&stopping_), kRetryAfter);
      }
      last = stopping_;
      Collect();
      through = records_;
    }
    written = WriteCollected();
    std::vector<Waiting> released;
    {
      absl::MutexLock lock(&mutex_);
      released = TakeWaiting(through, absl::InfinitePast());
      failing_ = !written;
      probe_.Failing(failing_);
      probe_.Unwritten(requests_ + tried_.requests);
    }
    for (Waiting& one : released) one.written();
    absl::MutexLock lock(&mutex_);
    // Records may have come during the last batch's first attempt.
    last = last && (!written || (sheet_.empty() && uses_.empty() && lines_.empty() && waiting_.empty()));
    if (!last && written) mutex_.AwaitWithTimeout(absl::Condition(&stopping_), kPause);
  }
}

void Ledger::ReleaseLate() {
  while (true) {
    std::vector<Waiting> released;
    {
      absl::MutexLock lock(&mutex_);
      mutex_.Await(absl::Condition(this, &Ledger::SomebodyWaits));
      if (stopping_) return;
      mutex_.AwaitWithTimeout(absl::Condition(&stopping_), kPatience / 2);
      released = TakeWaiting(0, clock_.Now() - kPatience);
      if (!released.empty()) {
        failing_ = true;
        probe_.Failing(true);
      }
    }
    for (Waiting& one : released) one.written();
  }
}

}  // namespace baton::router::billing
