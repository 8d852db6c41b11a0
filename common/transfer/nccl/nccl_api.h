// NcclApi: the dozen functions of NCCL that links use, as a table, so that tests can put a NCCL with scripted
// failures in its place. NCCL's types end here. Every function is called from one link's thread only and may
// not wait: communicators are non-blocking, and kBusy means that the answer comes by `state`.
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <string>

namespace baton::transfer {

// A communicator of two ranks; owned by whoever called `join` until `abort`.
using Communicator = void*;
using NcclId = std::array<std::byte, 128>;

enum class NcclState { kOk, kBusy, kFailed };

struct NcclApi {
  // A new id, to be brought to the peer. Empty function results (kFailed) have their reason in `last_error`.
  std::function<NcclState(NcclId& id)> make_id;
  // Begins to join the pair `id` as `rank` (0 or 1).
  std::function<NcclState(const NcclId& id, int rank, Communicator& communicator)> join;
  // How the communicator does: kBusy while it is being made, kFailed once the peer is lost.
  std::function<NcclState(Communicator communicator)> state;
  // Puts a transfer of `bytes` of device memory on the link's stream.
  std::function<NcclState(Communicator communicator, const std::byte* data, size_t bytes)> send;
  std::function<NcclState(Communicator communicator, std::byte* data, size_t bytes)> receive;
  // How many of the communicator's transfers are done, in the order in which they were put.
  std::function<NcclState(Communicator communicator, int64_t& done)> done;
  // Bytes of device memory that the communicator took, as far as is known.
  std::function<int64_t(Communicator communicator)> memory;
  // Gives the communicator and all that hangs on it up, at once, whatever its state.
  std::function<void(Communicator communicator)> abort;
  std::function<std::string(Communicator communicator)> last_error;
};

}  // namespace baton::transfer
