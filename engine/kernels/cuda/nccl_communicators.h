// NcclCommunicators: those of a group of ranks in one process, which end together. An abort of one alone may
// wait for what the others' kernels hold; in one NCCL group all of them are told to stop before any is waited
// for. An abort that does not come back in time ends the process, as the thread inside NCCL can be neither
// ended nor left behind while the memory that it touches is freed. One thread.
#pragma once

#include <nccl.h>

#include <functional>
#include <string>
#include <vector>

#include "absl/time/time.h"

namespace baton::kernels::cuda {

class NcclCommunicators {
 public:
  struct Options {
    absl::Duration abort_deadline = absl::Seconds(30);
    // Called at the deadline by the thread that ends them, which then waits on. Empty: the process ends, with
    // an error.
    std::function<void(const std::string& why)> give_up = {};
  };
  explicit NcclCommunicators(std::vector<ncclComm_t> of_ranks) : NcclCommunicators(std::move(of_ranks), {}) {}
  NcclCommunicators(std::vector<ncclComm_t> of_ranks, Options options)
      : communicators_(std::move(of_ranks)), options_(std::move(options)) {}
  ~NcclCommunicators() { Abort(); }
  NcclCommunicators(const NcclCommunicators&) = delete;
  NcclCommunicators& operator=(const NcclCommunicators&) = delete;

  // Not after Abort.
  const std::vector<ncclComm_t>& communicators() const { return communicators_; }
  // Ends all of them. No graph may hold their sums any more. Idempotent.
  void Abort();

 private:
  std::vector<ncclComm_t> communicators_;  // by rank; empty: aborted
  const Options options_;
};

}  // namespace baton::kernels::cuda
