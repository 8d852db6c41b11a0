#include "tests/fakes/fake_nccl.h"

#include <cstring>

#include "common/base/check.h"

namespace baton::transfer {

NcclApi FakeNccl::Api() {
  return {
      .make_id =
          [this](NcclId& id) {
            absl::MutexLock lock(&mutex_);
            ++ids_;
            std::memcpy(id.data(), &ids_, sizeof ids_);
            return NcclState::kOk;
          },
      .join =
          [this](const NcclId& id, int rank, Communicator& communicator) {
            absl::MutexLock lock(&mutex_);
            BATON_CHECK(rank == 0 || rank == 1);
            if (Take(fail_joins_)) return NcclState::kFailed;
            std::shared_ptr<Wire>& wire = wires_[id];
            if (wire == nullptr) wire = std::make_shared<Wire>();
            ++wire->joined;
            auto end = std::make_unique<End>();
            end->wire = wire;
            communicator = end.get();
            ends_.emplace(communicator, std::move(end));
            return NcclState::kBusy;
          },
      .state =
          [this](Communicator communicator) {
            absl::MutexLock lock(&mutex_);
            const End& end = *ends_.at(communicator);
            if (end.lost) return NcclState::kFailed;
            return end.wire->joined == 2 && hold_joins_ == 0 ? NcclState::kOk : NcclState::kBusy;
          },
      .send =
          [this](Communicator communicator, const std::byte* data, size_t bytes) {
            return Put(communicator, [&](Wire& wire) { wire.sends.emplace_back(data, bytes); });
          },
      .receive =
          [this](Communicator communicator, std::byte* data, size_t bytes) {
            return Put(communicator, [&](Wire& wire) { wire.receives.emplace_back(data, bytes); });
          },
      .done =
          [this](Communicator communicator, int64_t& done) {
            absl::MutexLock lock(&mutex_);
            const End& end = *ends_.at(communicator);
            if (end.lost) return NcclState::kFailed;
            Match(*end.wire);
            done = end.wire->matched;
            return NcclState::kOk;
          },
      .memory = [](Communicator) { return int64_t{1000}; },
      .abort =
          [this](Communicator communicator) {
            absl::MutexLock lock(&mutex_);
            // Of a transfer that the other end put, nothing may be touched any more.
            ends_.at(communicator)->wire->sends.clear();
            ends_.at(communicator)->wire->receives.clear();
            BATON_CHECK(ends_.erase(communicator) == 1) << " aborted twice";
            ++aborts_;
          },
      .last_error = [](Communicator) { return std::string("scripted"); },
  };
}

NcclState FakeNccl::Put(Communicator communicator, const std::function<void(Wire&)>& put) {
  absl::MutexLock lock(&mutex_);
  End& end = *ends_.at(communicator);
  if (end.lost || Take(fail_transfers_)) return NcclState::kFailed;
  put(*end.wire);
  Match(*end.wire);
  return NcclState::kOk;
}

void FakeNccl::Match(Wire& wire) {
  while (hold_transfers_ == 0 && !wire.sends.empty() && !wire.receives.empty()) {
    const auto [from, size] = wire.sends.front();
    const auto [to, room] = wire.receives.front();
    BATON_CHECK_EQ(size, room) << " the ends disagree about a transfer";
    std::memcpy(to, from, size);
    if (corrupt_at_ >= 0) {
      to[static_cast<size_t>(corrupt_at_)] ^= std::byte{4};
      corrupt_at_ = -1;
    }
    wire.sends.pop_front();
    wire.receives.pop_front();
    ++wire.matched;
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

}  // namespace baton::transfer
