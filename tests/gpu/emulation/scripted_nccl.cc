// NCCL between the ranks of one process. A sum occupies its stream until all ranks
// have come to it. It is strict where NCCL hangs or gives wrong sums: a sum is captured on all ranks or on
// none, with equal sizes; an abort of the last rank waits for all graphs that hold a sum, and an abort
// outside of a group for the ranks that have not been told to stop: either ends the process here.
#include "tests/gpu/emulation/scripted_nccl.h"

#include <nccl.h>

#include <condition_variable>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "common/tensor/dtype.h"
#include "tests/gpu/emulation/runtime.h"

namespace {

struct Sum {
  int arrived = 0;
  bool done = false;
  bool captured = false;
  size_t count = 0;
  std::vector<void*> data;
};
struct Clique {
  int ranks = 0;
  int aborted = 0;
  int graphs = 0;               // captured sums that something holds
  std::map<int64_t, Sum> sums;  // by their order
};

float Get(const void* data, size_t i, ncclDataType_t type) {
  if (type == ncclFloat32) return static_cast<const float*>(data)[i];
  return baton::tensor::FromBF16(static_cast<const uint16_t*>(data)[i]);
}
void Set(void* data, size_t i, ncclDataType_t type, float value) {
  if (type == ncclFloat32) {
    static_cast<float*>(data)[i] = value;
  } else {
    static_cast<uint16_t*>(data)[i] = baton::tensor::ToBF16(value);
  }
}

std::mutex aborts_mutex;
std::condition_variable aborts_changed;
bool aborts_block = false;
int aborts_waiting = 0;

thread_local int groups = 0;                    // begun and not ended
thread_local std::vector<ncclComm_t> to_abort;  // by the group's end

}  // namespace

namespace emulation {

void BlockAborts(bool block) {
  const std::scoped_lock lock(aborts_mutex);
  aborts_block = block;
  aborts_changed.notify_all();
}

void AwaitABlockedAbort() {
  std::unique_lock lock(aborts_mutex);
  aborts_changed.wait(lock, [] { return aborts_waiting > 0; });
}

}  // namespace emulation

struct ncclComm {
  std::shared_ptr<Clique> clique;
  int64_t next = 0;  // number of the sum that its stream comes to
};

extern "C" {

const char* ncclGetErrorString(ncclResult_t) { return "an error"; }
const char* ncclGetLastError(ncclComm_t) { return ""; }
ncclResult_t ncclGroupStart() {
  ++groups;
  return ncclSuccess;
}

ncclResult_t ncclCommInitAll(ncclComm_t* communicators, int ranks, const int*) {
  const auto clique = std::make_shared<Clique>();
  clique->ranks = ranks;
  for (int r = 0; r < ranks; ++r) communicators[r] = new ncclComm{.clique = clique};
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t communicator) {
  if (groups == 0) {
    if (communicator->clique->ranks > 1) emulation::Refuse("ncclCommAbort waits for the other ranks");
    delete communicator;
    return ncclSuccess;
  }
  to_abort.push_back(communicator);
  return ncclSuccess;
}

// All are told to stop before any is waited for.
ncclResult_t ncclGroupEnd() {
  if (--groups > 0 || to_abort.empty()) return ncclSuccess;
  {
    std::unique_lock lock(aborts_mutex);
    ++aborts_waiting;
    aborts_changed.notify_all();
    aborts_changed.wait(lock, [] { return !aborts_block; });
    --aborts_waiting;
  }
  for (ncclComm_t communicator : std::exchange(to_abort, {})) {
    emulation::Exclusively([&] {
      Clique& clique = *communicator->clique;
      if (++clique.aborted == clique.ranks && clique.graphs > 0) {
        emulation::Refuse("ncclCommAbort waits for graphs that hold " + std::to_string(clique.graphs) +
                          " sums");
      }
    });
    delete communicator;
  }
  return ncclSuccess;
}

ncclResult_t ncclAllReduce(const void* send, void* receive, size_t count, ncclDataType_t type, ncclRedOp_t,
                           ncclComm_t communicator, cudaStream_t stream) {
  if (send != receive || (type != ncclFloat32 && type != ncclBfloat16))
    emulation::Refuse("sums here are in place, of float32 or bf16");
  const bool captured = emulation::Capturing(stream);
  std::shared_ptr<void> held;
  if (captured) {
    emulation::Exclusively([&] { ++communicator->clique->graphs; });
    held = std::shared_ptr<void>(nullptr, [clique = communicator->clique](void*) { --clique->graphs; });
  }
  const auto own = std::make_shared<int64_t>();
  emulation::Issue(
      stream, {.what = "a sum's begin", .run = [=, clique = communicator->clique] {
                 (void)held;
                 *own = communicator->next++;
                 Sum& sum = clique->sums[*own];
                 if (sum.arrived > 0 && (sum.captured != captured || sum.count != count)) {
                   emulation::Refuse(
                       "sum " + std::to_string(*own) +
                       (sum.captured != captured ? " is captured on some ranks only" : " has unlike sizes"));
                 }
                 sum.captured = captured;
                 sum.count = count;
                 sum.data.push_back(receive);
                 if (++sum.arrived < clique->ranks) return;
                 for (size_t i = 0; i < count; ++i) {
                   float total = 0;
                   for (const void* data : sum.data) total += Get(data, i, type);
                   for (void* data : sum.data) Set(data, i, type, total);
                 }
                 sum.done = true;
               }});
  emulation::Issue(stream, {.what = "a sum of all ranks",
                            .ready = [=, clique = communicator->clique] { return clique->sums[*own].done; }});
  return ncclSuccess;
}

}  // extern "C"
