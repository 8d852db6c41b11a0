// NcclApi: the dozen functions of NCCL that links use, as a table, so that tests can put a NCCL with scripted
// failures in its place. NCCL's types end here. Three of them may block for seconds, whatever NCCL's
// documentation says of non-blocking communicators: `make_id` and `join` load libraries and allocate, and
// `abort` waits for threads, streams and frees, and so even for kernels of other communicators. They are
// called from threads of their own, several at a time, and never under a lock. The others return at once,
// kBusy if the answer is not known yet; per communicator they are called by one thread at a time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

namespace baton::transfer {

// A communicator of two ranks; owned by whoever called `join` until `abort`.
using Communicator = void*;
using NcclId = std::array<std::byte, 128>;

enum class NcclState { kOk, kBusy, kFailed };

// Device memory of one transfer.
struct TransferMemory {
  std::byte* data;
  size_t bytes;
};

struct NcclApi {
  // May block. A new id, to be brought to the peer. It costs a thread and a listening socket until both ranks
  // have joined, and for the life of the process if one never does. kFailed: `last_error` says why.
  std::function<NcclState(NcclId& id)> make_id;
  // May block. Begins to join the pair `id` as `rank` (0 or 1).
  std::function<NcclState(const NcclId& id, int rank, Communicator& communicator)> join;
  // May block. Gives communicators and all that hangs on them up, whatever their state. All of them are told
  // to stop before anything is waited for.
  std::function<void(std::span<const Communicator> communicators)> abort;

  // How the communicator does: kBusy while it is being made or a call is in progress, kFailed once a transfer
  // has failed. The death of a peer is not noticed while nothing is in progress.
  std::function<NcclState(Communicator communicator)> state;
  // Puts a group of transfers on the communicator's stream: one launch, whose transfers run in their order
  // and are done together. The ends may group the same transfers in different ways. kBusy: none was put.
  std::function<NcclState(Communicator communicator, std::span<const TransferMemory> group)> send;
  std::function<NcclState(Communicator communicator, std::span<const TransferMemory> group)> receive;
  // How many of the communicator's transfers are done, in the order in which they were put.
  std::function<NcclState(Communicator communicator, int64_t& done)> done;
  // Bytes of device memory that the communicator took, as far as is known.
  std::function<int64_t(Communicator communicator)> memory;
  // The text of the communicator's last failure, or of the last one without a communicator (null).
  std::function<std::string(Communicator communicator)> last_error;
};

}  // namespace baton::transfer
