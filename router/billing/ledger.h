// Ledger: takes the records of ended requests, writes them to the audit log and adds them up in the ledger's
// file, on a thread of its own. A client may be told of its request's end once the record is written, so what
// a client has seen is in the ledger, even if the router is killed at the next moment.
//
// A disk that fails delays nobody: callers are released at once, the sums of what is not written yet wait in
// memory (they are as many as there are tenants, keys and models, not requests) and are written when the disk
// takes them again; audit lines wait up to kMaxAuditBytes, beyond which they are lost and counted. A disk
// that hangs holds a caller for kPatience at most.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "router/billing/audit_log.h"
#include "router/billing/ledger_probe.h"
#include "router/billing/ledger_store.h"
#include "router/billing/usage_record.h"

namespace baton::router::billing {

class Ledger {
 public:
  struct Options {
    std::string ledger_file;  // empty: no sums, or those of `store`
    std::string audit_file;   // empty: no lines
  };
  static constexpr absl::Duration kPatience = absl::Milliseconds(250);
  static constexpr size_t kMaxAuditBytes = 16 << 20;
  // Answers that calls go on with (UsageRecord.answer) wait one by one; when the disk takes none for long,
  // those beyond so many are added to the sums as their calls have them.
  static constexpr size_t kMaxUses = 10'000;

  // A file that can't be used now is an error: nobody should find that out from a bill. `probe` outlives it.
  // `store`: where the sums go if no file is named; null: nowhere.
  static absl::StatusOr<std::unique_ptr<Ledger>> Open(const Options& options, LedgerProbe& probe,
                                                      std::unique_ptr<LedgerStore> store = nullptr);
  // Writes what is left.
  ~Ledger();

  // Any thread; never waits. `written` runs once, on the ledger's thread or on this one: when the record is
  // written, or when that has failed or takes too long. It must not wait.
  void Record(UsageRecord record, std::function<void()> written);

 private:
  // Records that are written at once. Nothing is added to a batch that has been tried, so that trying it
  // again can't count anything twice.
  struct Batch {
    int64_t number = 0;
    LedgerSheet sheet;
    std::vector<AnswerUse> uses;
    int64_t requests = 0;
  };
  struct Waiting {
    int64_t record = 0;  // its number
    absl::Time since;
    std::function<void()> written;
  };

  Ledger(std::unique_ptr<LedgerStore> store, std::unique_ptr<AuditLog> audit, LedgerProbe& probe);
  // The writer's thread.
  void Write();
  bool SomethingToDo() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Moves what has come to tried_ and unwritten_lines_.
  void Collect() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // True: all that was collected is written.
  bool WriteCollected();
  // The watch's thread: releases those who have waited too long.
  void ReleaseLate();
  bool SomebodyWaits() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Takes those out who wait for records below `record`, or have waited since before `since`.
  std::vector<Waiting> TakeWaiting(int64_t record, absl::Time since) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::unique_ptr<LedgerStore> store_;  // the writer's; null: no sums are kept
  const std::unique_ptr<AuditLog> audit_;     // the writer's; null: no lines are kept
  LedgerProbe& probe_;
  const std::string writer_;
  const MonotonicClock clock_;

  absl::Mutex mutex_;
  LedgerSheet sheet_ ABSL_GUARDED_BY(mutex_);
  std::vector<AnswerUse> uses_ ABSL_GUARDED_BY(mutex_);
  int64_t requests_ ABSL_GUARDED_BY(mutex_) = 0;  // in sheet_
  std::string lines_ ABSL_GUARDED_BY(mutex_);
  int64_t records_ ABSL_GUARDED_BY(mutex_) = 0;  // that have come
  std::deque<Waiting> waiting_ ABSL_GUARDED_BY(mutex_);
  // The disk has failed, or hangs: nobody waits for it.
  bool failing_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;

  // The writer's.
  Batch tried_;          // number 0: none
  int64_t batches_ = 0;  // that were made
  std::string unwritten_lines_;

  std::thread writer_thread_, watch_thread_;
};

}  // namespace baton::router::billing
