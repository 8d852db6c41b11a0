// NcclLog: what NCCL says about itself while it runs. It has no call that tells what carries a pair's bytes,
// and takes TCP without a word where it finds nothing better; but it logs a line for every channel that it
// connects. So its log is led into memory from its first call on, and read here. Warnings are passed on, and
// everything if the operator asked for it (NCCL_DEBUG). One per process; one thread at a time.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace baton::transfer {

class NcclLog {
 public:
  // Sets NCCL's environment: before anything in the process calls NCCL, and before there are threads.
  // FAILED_PRECONDITION: the operator leads the log to a file of his own (NCCL_DEBUG_FILE).
  static absl::StatusOr<std::unique_ptr<NcclLog>> Open();
  ~NcclLog();
  NcclLog(const NcclLog&) = delete;
  NcclLog& operator=(const NcclLog&) = delete;

  // Reads what is new. Returns the lines that are for the operator.
  std::vector<std::string> Read();
  // Channels that NCCL has connected, by what carries them ("P2P/CUMEM", "NET/IB/GDRDMA", "NET/Socket",
  // "SHM"): those of all communicators, in both directions.
  const std::map<std::string, int64_t>& channels() const { return channels_; }
  // Counts from here: what there is by now belongs to communicators that are not of interest.
  void Restart();

  // The transport of a channel that a line of the log names; empty if it names none.
  static std::string TransportOf(std::string_view line);
  // True if the transport is as the operator asked: "any", "p2p" (from GPU to GPU, by NVLink or PCIe), "rdma"
  // (that, or a network adapter that writes by itself: no TCP, and no memory of the host's in between).
  static bool Allowed(std::string_view asked, std::string_view transport);

 private:
  NcclLog(int file, bool all) : file_(file), all_(all) {}

  const int file_;
  const bool all_;  // the operator wants every line
  int64_t read_ = 0;
  std::string rest_;  // of a line that is not complete
  std::map<std::string, int64_t> channels_;
};

}  // namespace baton::transfer
