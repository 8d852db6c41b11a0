#include "tests/fakes/fake_nccl.h"

#include <sys/prctl.h>

#include <algorithm>
#include <cstring>

#include "common/base/check.h"

namespace baton::transfer {

NcclApi FakeNccl::Api(int process) {
  return {
      .make_id =
          [this](NcclId& id) {
            absl::MutexLock lock(&mutex_);
            Block(block_ids_);
            ++ids_;
            std::memcpy(id.data(), &ids_, sizeof ids_);
            return NcclState::kOk;
          },
      .join =
          [this, process](const NcclId& id, int rank, Communicator& communicator) {
            absl::MutexLock lock(&mutex_);
            Block(block_joins_);
            BATON_CHECK(rank == 0 || rank == 1);
            if (Take(fail_joins_)) return NcclState::kFailed;
            std::shared_ptr<Wire>& wire = wires_[id];
            if (wire == nullptr) wire = std::make_shared<Wire>();
            ++wire->joined;
            auto end = std::make_unique<End>();
            end->wire = wire;
            end->process = process;
            communicator = end.get();
            ends_.emplace(communicator, std::move(end));
            return NcclState::kBusy;
          },
      .abort = [this,
                process](std::span<const Communicator> communicators) { Abort(process, communicators); },
      .state =
          [this](Communicator communicator) {
            absl::MutexLock lock(&mutex_);
            End& end = *ends_.at(communicator);
            if (end.lost) return NcclState::kFailed;
            if (!Settled(end)) return NcclState::kBusy;
            return end.wire->joined == 2 && hold_joins_ == 0 ? NcclState::kOk : NcclState::kBusy;
          },
      .send = [this](
                  Communicator communicator,
                  std::span<const TransferMemory> group) { return Put(communicator, group, &Wire::sends); },
      .receive =
          [this](Communicator communicator, std::span<const TransferMemory> group) {
            return Put(communicator, group, &Wire::receives);
          },
      .done =
          [this](Communicator communicator, int64_t& done) {
            absl::MutexLock lock(&mutex_);
            End& end = *ends_.at(communicator);
            if (end.lost) return NcclState::kFailed;
            Match(*end.wire);
            // A group is done when all of it is. What is in progress has no place in the stream yet.
            const size_t placed = end.groups.size() - (Settled(end) ? 0 : 1);
            done = 0;
            for (size_t i = 0; i < placed && done + end.groups[i] <= end.moved; ++i) done += end.groups[i];
            return NcclState::kOk;
          },
      .memory = [](Communicator) { return int64_t{1000}; },
      .last_error = [](Communicator) { return std::string("scripted"); },
  };
}

void FakeNccl::Block(const int& flag) {
  ++blocked_;
  const auto free = [&flag] { return flag == 0; };
  mutex_.Await(absl::Condition(&free));
  --blocked_;
}

bool FakeNccl::KernelsRun(int process) const {
  const auto run = [process](const auto& parts) {
    return std::ranges::any_of(parts, [process](const auto& part) {
      return part.end->process == process && !part.end->told_to_stop;
    });
  };
  return std::ranges::any_of(
      wires_, [&](const auto& wire) { return run(wire.second->sends) || run(wire.second->receives); });
}

void FakeNccl::AwaitKernels(int process) {
  absl::MutexLock lock(&mutex_);
  ++blocked_;
  const auto none = [this, process]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return !KernelsRun(process); };
  mutex_.Await(absl::Condition(&none));
  --blocked_;
}

void FakeNccl::Abort(int process, std::span<const Communicator> communicators) {
  absl::MutexLock lock(&mutex_);
  for (const Communicator communicator : communicators) ends_.at(communicator)->told_to_stop = true;
  Block(block_aborts_);
  if (aborts_wait_ != 0) {
    ++blocked_;
    const auto none = [this, process]()
                          ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return !KernelsRun(process); };
    mutex_.Await(absl::Condition(&none));
    --blocked_;
  }
  for (const Communicator communicator : communicators) {
    const auto found = ends_.find(communicator);
    BATON_CHECK(found != ends_.end()) << " aborted twice";
    // The other end's puts stay: its kernel waits until it is aborted as well.
    const auto own = [&](const auto& part) { return part.end == found->second.get(); };
    for (const auto& part : found->second->wire->receives) {
      // Until here bytes may have landed.
      if (own(part)) std::ranges::fill(std::span(part.memory.data, part.memory.bytes), std::byte{0xEE});
    }
    std::erase_if(found->second->wire->sends, own);
    std::erase_if(found->second->wire->receives, own);
    ends_.erase(found);
    ++aborts_;
  }
}

NcclState FakeNccl::Put(Communicator communicator, std::span<const TransferMemory> group,
                        std::deque<Part> Wire::*parts) {
  absl::MutexLock lock(&mutex_);
  End& end = *ends_.at(communicator);
  if (end.lost || Take(fail_transfers_)) return NcclState::kFailed;
  if (!Settled(end)) return NcclState::kBusy;
  end.pending = in_progress_ != 0;
  end.groups.push_back(static_cast<int64_t>(group.size()));
  largest_group_ = std::max(largest_group_, group.size());
  for (const TransferMemory& memory : group) ((*end.wire).*parts).push_back({&end, memory});
  size_t receiving = 0;
  for (const auto& entry : ends_) {
    const End* const other = entry.second.get();
    receiving +=
        other->process == end.process &&
        std::ranges::any_of(other->wire->receives, [&](const Part& part) { return part.end == other; });
  }
  most_receiving_[end.process] = std::max(most_receiving_[end.process], receiving);
  Match(*end.wire);
  return NcclState::kOk;
}

void FakeNccl::Match(Wire& wire) {
  while (hold_transfers_ == 0 && !wire.sends.empty() && !wire.receives.empty()) {
    const Part sent = wire.sends.front(), received = wire.receives.front();
    if (sent.end->told_to_stop || received.end->told_to_stop) return;
    BATON_CHECK_EQ(sent.memory.bytes, received.memory.bytes) << " the ends disagree about a transfer";
    std::memcpy(received.memory.data, sent.memory.data, sent.memory.bytes);
    if (corrupt_at_ >= 0) {
      received.memory.data[corrupt_at_] ^= std::byte{4};
      corrupt_at_ = -1;
    }
    wire.sends.pop_front();
    wire.receives.pop_front();
    ++sent.end->moved;
    ++received.end->moved;
  }
}

void FakeNccl::LosePeers() {
  absl::MutexLock lock(&mutex_);
  for (auto& [communicator, end] : ends_) end->lost = true;
}

void FakeNccl::Lose(Communicator communicator) {
  absl::MutexLock lock(&mutex_);
  ends_.at(communicator)->lost = true;
}

int FakeNccl::open() const {
  absl::MutexLock lock(&mutex_);
  return static_cast<int>(ends_.size());
}
int FakeNccl::aborts() const {
  absl::MutexLock lock(&mutex_);
  return aborts_;
}
int64_t FakeNccl::ids() const {
  absl::MutexLock lock(&mutex_);
  return ids_;
}
int64_t FakeNccl::ids_listening() const {
  absl::MutexLock lock(&mutex_);
  return ids_ - std::ranges::count_if(wires_, [](const auto& wire) { return wire.second->joined == 2; });
}
size_t FakeNccl::in_progress() const {
  absl::MutexLock lock(&mutex_);
  size_t count = 0;
  for (const auto& [id, wire] : wires_) count += wire->sends.size() + wire->receives.size();
  return count;
}
size_t FakeNccl::largest_group() const {
  absl::MutexLock lock(&mutex_);
  return largest_group_;
}
size_t FakeNccl::most_receiving(int process) const {
  absl::MutexLock lock(&mutex_);
  const auto found = most_receiving_.find(process);
  return found == most_receiving_.end() ? 0 : found->second;
}
int FakeNccl::blocked() const {
  absl::MutexLock lock(&mutex_);
  return blocked_;
}

uint64_t FakeDevicePayload::Pack(ConstPieces pieces, std::byte* staging) {
  (void)host_->Pack(pieces, staging);
  absl::MutexLock lock(&mutex_);
  return ++packs_;
}

bool FakeDevicePayload::Packed(uint64_t number) {
  ++asked_;
  timer_slack_ = prctl(PR_GET_TIMERSLACK);
  absl::MutexLock lock(&mutex_);
  return number <= may_end_;
}

std::optional<absl::Status> FakeDevicePayload::Unpacked(uint64_t number) {
  absl::MutexLock lock(&mutex_);
  if (number > may_unpack_) return std::nullopt;
  return host_->Unpacked(number);
}

void FakeDevicePayload::HoldUnpacksAfter(uint64_t number) {
  absl::MutexLock lock(&mutex_);
  may_unpack_ = number;
}

void FakeDevicePayload::HoldPacksAfter(uint64_t number) {
  absl::MutexLock lock(&mutex_);
  may_end_ = number;
}

absl::StatusOr<device::Memory::Buffer> FakeDevicePayload::Memory::Allocate(int64_t bytes) {
  nccl_.AwaitKernels(process_);
  ++calls;
  auto buffer = device::HostMemory().Allocate(bytes);
  if (!buffer.ok()) return buffer.status();
  std::byte* const data = buffer->get();
  absl::MutexLock lock(&mutex_);
  taken_.emplace(data, *std::move(buffer));
  return Buffer(data, device::Memory::Release{this, bytes});
}

void FakeDevicePayload::Memory::Free(std::byte* data, int64_t) {
  nccl_.AwaitKernels(process_);
  ++calls;
  absl::MutexLock lock(&mutex_);
  taken_.erase(data);
}

}  // namespace baton::transfer
