#include "transfer/nccl/real_nccl.h"

#include <nccl.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <span>

#include "common/base/check.h"
#include "common/base/status.h"
#include "engine/device/cuda/handles.h"
#include "engine/device/cuda/status.h"

namespace baton::transfer {
namespace {

static_assert(sizeof(ncclUniqueId) == sizeof(NcclId));

// The object behind a Communicator.
struct Open {
  device::cuda::Stream stream;
  ncclComm_t communicator = nullptr;
  int rank = 0;
  // A non-blocking call may still be in progress after it returned: until NCCL says that it is not, nothing
  // else may be asked of the communicator, and the call's place in the stream is not known.
  bool pending = false;
  // Groups in progress, in order: the event behind each, and its transfers.
  std::deque<std::pair<device::cuda::Event, int64_t>> marks;
  int64_t put_last = 0;  // transfers of the group that was put last
  int64_t done = 0;
  // Device memory: free before it joined, and what it had taken when its first transfer was done, because
  // NCCL allocates most of it then. Whatever else was allocated in between is in it.
  size_t free_before = 0;
  int64_t taken = 0;
};

Open& Of(Communicator communicator) { return *static_cast<Open*>(communicator); }

NcclState StateOf(ncclResult_t result) {
  if (result == ncclSuccess) return NcclState::kOk;
  return result == ncclInProgress ? NcclState::kBusy : NcclState::kFailed;
}

size_t FreeMemory() {
  size_t free = 0, total = 0;
  return cudaMemGetInfo(&free, &total) == cudaSuccess ? free : 0;
}

}  // namespace

struct RealNccl::Impl {
  RealNcclOptions options;

  // The communicator's own word, and that of the peer's end.
  static NcclState Ask(const Open& open) {
    ncclResult_t result = ncclInProgress;
    if (ncclCommGetAsyncError(open.communicator, &result) != ncclSuccess) return NcclState::kFailed;
    return StateOf(result);
  }

  // Marks the end of the group that was put last.
  NcclState Mark(Open& open) {
    if (!device::cuda::Use(options.device).ok()) return NcclState::kFailed;
    auto mark = device::cuda::MakeEvent();
    if (!mark.ok() || cudaEventRecord(mark->get(), open.stream.get()) != cudaSuccess)
      return NcclState::kFailed;
    open.marks.emplace_back(*std::move(mark), open.put_last);
    open.pending = false;
    return NcclState::kOk;
  }

  // Calls `one` for each transfer, in a group.
  template <typename One>
  NcclState Put(Open& open, std::span<const TransferMemory> group, One one) {
    if (const NcclState state = Settle(open); state != NcclState::kOk) return state;
    open.put_last = std::ssize(group);
    if (ncclGroupStart() != ncclSuccess) return NcclState::kFailed;
    ncclResult_t called = ncclSuccess;
    for (const TransferMemory& memory : group) {
      const ncclResult_t result = one(memory);
      if (StateOf(result) == NcclState::kFailed) called = result;
    }
    const ncclResult_t ended = ncclGroupEnd();
    switch (StateOf(called == ncclSuccess ? ended : called)) {
      case NcclState::kFailed:
        return NcclState::kFailed;
      case NcclState::kBusy:
        open.pending = true;
        return NcclState::kOk;  // it is NCCL's now; Settle marks it
      case NcclState::kOk:
        return Mark(open);
    }
    return NcclState::kFailed;
  }

  // Returns the state of the last call; once it has ended, marks its place in the stream.
  NcclState Settle(Open& open) {
    if (!open.pending) return NcclState::kOk;
    const NcclState state = Ask(open);
    return state == NcclState::kOk ? Mark(open) : state;
  }
};

absl::StatusOr<std::unique_ptr<RealNccl>> RealNccl::Create(const RealNcclOptions& options) {
  BATON_RETURN_IF_ERROR(device::cuda::Use(options.device));
  auto impl = std::make_unique<Impl>();
  impl->options = options;
  return std::unique_ptr<RealNccl>(new RealNccl(std::move(impl)));
}

RealNccl::RealNccl(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
RealNccl::~RealNccl() = default;

int RealNccl::version() const {
  int version = 0;
  return ncclGetVersion(&version) == ncclSuccess ? version : 0;
}

NcclApi RealNccl::Api() {
  Impl* const impl = impl_.get();
  return {
      .make_id =
          [](NcclId& id) {
            ncclUniqueId made;
            const NcclState state = StateOf(ncclGetUniqueId(&made));
            std::memcpy(id.data(), &made, sizeof made);
            return state;
          },
      .join =
          [impl](const NcclId& id, int rank, Communicator& communicator) {
            if (!device::cuda::Use(impl->options.device).ok()) return NcclState::kFailed;
            ncclUniqueId bytes;
            std::memcpy(&bytes, id.data(), sizeof bytes);
            ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
            config.blocking = 0;
            config.minCTAs = 1;
            config.maxCTAs = impl->options.channels;
            // Two ranks send and receive: no reductions in the network, and no multicast memory beyond the
            // least.
            config.collnetEnable = 0;
            config.nvlsCTAs = 1;
            config.commName = "baton-pair";
            auto stream = device::cuda::MakeStream(true);
            if (!stream.ok()) return NcclState::kFailed;
            auto open = std::make_unique<Open>();
            open->stream = *std::move(stream);
            open->rank = rank;
            open->free_before = FreeMemory();
            const NcclState state =
                StateOf(ncclCommInitRankConfig(&open->communicator, 2, bytes, rank, &config));
            if (state == NcclState::kFailed) {
              if (open->communicator != nullptr) (void)ncclCommAbort(open->communicator);
              return NcclState::kFailed;
            }
            communicator = open.release();
            return state;
          },
      .abort =
          [impl](std::span<const Communicator> communicators) {
            (void)device::cuda::Use(impl->options.device);
            // Within a group every communicator's flag is set at its own call, and all waiting is the group's
            // end: the kernels of all of them leave before the first free waits for them.
            (void)ncclGroupStart();
            for (const Communicator communicator : communicators) {
              (void)ncclCommAbort(Of(communicator).communicator);
            }
            (void)ncclGroupEnd();
            for (const Communicator communicator : communicators) delete &Of(communicator);
          },
      .state = [](Communicator communicator) { return Impl::Ask(Of(communicator)); },
      .send =
          [impl](Communicator communicator, std::span<const TransferMemory> group) {
            Open& open = Of(communicator);
            return impl->Put(open, group, [&](const TransferMemory& memory) {
              return ncclSend(memory.data, memory.bytes, ncclUint8, 1 - open.rank, open.communicator,
                              open.stream.get());
            });
          },
      .receive =
          [impl](Communicator communicator, std::span<const TransferMemory> group) {
            Open& open = Of(communicator);
            return impl->Put(open, group, [&](const TransferMemory& memory) {
              return ncclRecv(memory.data, memory.bytes, ncclUint8, 1 - open.rank, open.communicator,
                              open.stream.get());
            });
          },
      .done =
          [impl](Communicator communicator, int64_t& done) {
            Open& open = Of(communicator);
            if (impl->Settle(open) == NcclState::kFailed) return NcclState::kFailed;
            while (!open.marks.empty()) {
              const cudaError_t mark = cudaEventQuery(open.marks.front().first.get());
              if (mark == cudaErrorNotReady) break;
              if (mark != cudaSuccess) return NcclState::kFailed;
              const bool first = open.done == 0;
              open.done += open.marks.front().second;
              open.marks.pop_front();
              if (!first) continue;
              open.taken = std::max<int64_t>(
                  0, static_cast<int64_t>(open.free_before) - static_cast<int64_t>(FreeMemory()));
            }
            done = open.done;
            return NcclState::kOk;
          },
      .memory = [](Communicator communicator) { return Of(communicator).taken; },
      .last_error =
          [](Communicator communicator) {
            const char* text =
                ncclGetLastError(communicator == nullptr ? nullptr : Of(communicator).communicator);
            return std::string(text == nullptr ? "unknown" : text);
          },
  };
}

}  // namespace baton::transfer
