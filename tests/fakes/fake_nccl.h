// FakeNccl: a NCCL of one process with scripted failures. Both ends of a pair use the same one; transfers are
// copies of host memory, made when both ends have put theirs, in the order of the stream. Any thread.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <set>

#include "absl/synchronization/mutex.h"
#include "common/transfer/nccl/nccl_api.h"

namespace baton::transfer {

class FakeNccl {
 public:
  NcclApi Api();

  // Scripts for the next so many calls, whoever makes them:
  void FailJoins(int count) { Set(fail_joins_, count); }
  void FailTransfers(int count) { Set(fail_transfers_, count); }
  // Communicators that are joined stay busy.
  void HoldJoins(bool hold) { Set(hold_joins_, hold ? 1 : 0); }
  // Transfers are put and never done.
  void HoldTransfers(bool hold) { Set(hold_transfers_, hold ? 1 : 0); }
  // Turns over a bit of the next transfer, at this offset.
  void CorruptNext(int64_t offset) { Set(corrupt_at_, static_cast<int>(offset)); }
  // The asynchronous error that a dead peer leaves: on every open communicator, or on one.
  void LosePeers();
  void Lose(Communicator communicator);

  int open() const;
  int aborts() const;
  int64_t ids() const;

 private:
  struct Wire {  // what both ends of an id share
    int joined = 0;
    std::deque<std::pair<const std::byte*, size_t>> sends;
    std::deque<std::pair<std::byte*, size_t>> receives;
    int64_t matched = 0;  // transfers done
  };
  struct End {
    std::shared_ptr<Wire> wire;
    bool lost = false;
  };

  void Set(int& value, int to) {
    absl::MutexLock lock(&mutex_);
    value = to;
  }
  static bool Take(int& count) { return count > 0 && count-- > 0; }
  NcclState Put(Communicator communicator, const std::function<void(Wire&)>& put);
  void Match(Wire& wire) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable absl::Mutex mutex_;
  std::map<NcclId, std::shared_ptr<Wire>> wires_;
  std::map<Communicator, std::unique_ptr<End>> ends_;
  int64_t ids_ = 0;
  int aborts_ = 0;
  int fail_joins_ = 0, fail_transfers_ = 0, hold_joins_ = 0, hold_transfers_ = 0, corrupt_at_ = -1;
};

}  // namespace baton::transfer
