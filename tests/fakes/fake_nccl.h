// FakeNccl: a NCCL of one process with scripted failures. Both ends of a pair use the same one; transfers are
// copies of host memory, made when both ends have put theirs, in the order of the stream. It does what the
// real one is known to do wrong, as scripted: calls that block, frees that wait for every kernel of the
// process, ids that are never given back, calls that are in progress after they have returned, and a peer
// whose death nobody notices while the pair is idle. Any thread.
#pragma once

#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "transfer/nccl/nccl_api.h"
#include "transfer/nccl/payload.h"

namespace baton::transfer {

class FakeNccl {
 public:
  // As the ends of one process use it, which is the one that has their kernels.
  NcclApi Api(int process = 0);

  // Scripts for the next so many calls, whoever makes them:
  void FailJoins(int count) { Set(fail_joins_, count); }
  void FailTransfers(int count) { Set(fail_transfers_, count); }
  // Communicators that are joined stay busy.
  void HoldJoins(bool hold) { Set(hold_joins_, hold ? 1 : 0); }
  // Transfers are put and never done.
  void HoldTransfers(bool hold) { Set(hold_transfers_, hold ? 1 : 0); }
  // Calls do not return until this is taken back.
  void BlockIds(bool block) { Set(block_ids_, block ? 1 : 0); }
  void BlockJoins(bool block) { Set(block_joins_, block ? 1 : 0); }
  void BlockAborts(bool block) { Set(block_aborts_, block ? 1 : 0); }
  // Aborts wait for every transfer of their process whose communicator has not been told to stop: frees do.
  void AbortsWaitForKernels(bool wait) { Set(aborts_wait_, wait ? 1 : 0); }
  // After each transfer that is put, the communicator is busy for one question more.
  void StayInProgress(bool stay) { Set(in_progress_, stay ? 1 : 0); }
  // Turns over a bit of the next transfer, at this offset.
  void CorruptNext(int64_t offset) { Set(corrupt_at_, static_cast<int>(offset)); }
  // An asynchronous error on every open communicator, or on one. A peer's death is none: it leaves no sign.
  void LosePeers();
  void Lose(Communicator communicator);

  // Waits as a free of device memory does: for every transfer in progress in the process.
  void AwaitKernels(int process);

  int open() const;
  int aborts() const;
  int64_t ids() const;
  // Threads and sockets that ids hold: those whose two ends have not both joined.
  int64_t ids_listening() const;
  // Sends and receives that were put and are not done.
  size_t in_progress() const;
  // Transfers of the largest group so far.
  size_t largest_group() const;
  // The most communicators of a process that had receives in progress at once.
  size_t most_receiving(int process) const;
  // Calls that block now.
  int blocked() const;

 private:
  struct End;
  struct Part {
    End* end;
    TransferMemory memory;
  };
  struct Wire {  // what both ends of an id share
    int joined = 0;
    std::deque<Part> sends, receives;
  };
  struct End {
    std::shared_ptr<Wire> wire;
    int process = 0;
    bool lost = false;
    bool told_to_stop = false;
    bool pending = false;         // the last call is in progress
    std::vector<int64_t> groups;  // how many transfers each had
    int64_t moved = 0;            // transfers
  };

  void Set(int& value, int to) {
    absl::MutexLock lock(&mutex_);
    value = to;
  }
  static bool Take(int& count) { return count > 0 && count-- > 0; }
  static bool Settled(End& end) { return !std::exchange(end.pending, false); }
  void Block(const int& flag) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool KernelsRun(int process) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Abort(int process, std::span<const Communicator> communicators);
  NcclState Put(Communicator communicator, std::span<const TransferMemory> group,
                std::deque<Part> Wire::*parts);
  void Match(Wire& wire) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable absl::Mutex mutex_;
  std::map<NcclId, std::shared_ptr<Wire>> wires_;
  std::map<Communicator, std::unique_ptr<End>> ends_;
  int64_t ids_ = 0;
  size_t largest_group_ = 0;
  std::map<int, size_t> most_receiving_;
  int aborts_ = 0, blocked_ = 0;
  int fail_joins_ = 0, fail_transfers_ = 0, hold_joins_ = 0, hold_transfers_ = 0, corrupt_at_ = -1;
  int block_ids_ = 0, block_joins_ = 0, block_aborts_ = 0, aborts_wait_ = 0, in_progress_ = 0;
};

// Host memory that behaves as a GPU's: taking and freeing wait for every transfer of the process, and packs
// end when the test says so.
class FakeDevicePayload final : public Payload {
 public:
  // It outlives this.
  FakeDevicePayload(FakeNccl& nccl, int process) : memory_(nccl, process) {}

  absl::StatusOr<device::Memory::Buffer> Stage(int64_t bytes) override { return memory_.Allocate(bytes); }
  int64_t TrailerBytes(int64_t bytes) const override { return host_->TrailerBytes(bytes); }
  uint64_t Pack(ConstPieces pieces, std::byte* staging) override;
  bool Packed(uint64_t number) override;
  uint64_t Unpack(const std::byte* staging, int64_t bytes, Pieces pieces) override {
    return host_->Unpack(staging, bytes, pieces);
  }
  std::optional<absl::Status> Unpacked(uint64_t number) override;

  // How often the link has asked for the end of a pack.
  int64_t asked() const { return asked_; }
  // The slack of the timers of the thread that asked last, in nanoseconds.
  int timer_slack() const { return timer_slack_; }
  // From now on, packs end when this many have, in all.
  void HoldPacksAfter(uint64_t number);
  // The same of unpacks.
  void HoldUnpacksAfter(uint64_t number);
  // Times that memory was taken or freed.
  int allocations() const { return memory_.calls; }

 private:
  class Memory final : public device::Memory {
   public:
    Memory(FakeNccl& nccl, int process) : nccl_(nccl), process_(process) {}
    std::string name() const override { return "fake device memory"; }
    bool host() const override { return false; }
    absl::StatusOr<Buffer> Allocate(int64_t bytes) override;
    absl::Status Upload(const void*, std::byte*, int64_t) override { return absl::UnimplementedError(""); }
    absl::Status Download(const std::byte*, void*, int64_t) override { return absl::UnimplementedError(""); }
    std::atomic<int> calls = 0;

   private:
    void Free(std::byte* data, int64_t bytes) override;
    FakeNccl& nccl_;
    const int process_;
    absl::Mutex mutex_;
    std::map<std::byte*, Buffer> taken_ ABSL_GUARDED_BY(mutex_);
  };

  Memory memory_;
  const std::unique_ptr<Payload> host_ = MakeHostPayload();
  std::atomic<int64_t> asked_ = 0;
  std::atomic<int> timer_slack_ = 0;
  absl::Mutex mutex_;
  uint64_t packs_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t may_end_ ABSL_GUARDED_BY(mutex_) = UINT64_MAX;
  uint64_t may_unpack_ ABSL_GUARDED_BY(mutex_) = UINT64_MAX;
};

}  // namespace baton::transfer
