#include "worker/gpu_start.h"

#include <fmt/format.h>

#include <cstdlib>
#include <string>
#include <string_view>

#include "absl/strings/numbers.h"
#include "engine/kernels/kernels.h"

namespace baton::worker {
namespace {

constexpr std::string_view kCheckPrefill = "--check-prefill-attention";

}  // namespace

std::optional<int> CheckPrefillIfAsked(int argc, char** argv) {
  if (argc != 3 || argv[1] != kCheckPrefill) return std::nullopt;
  int device = 0;
  if (!absl::SimpleAtoi(argv[2], &device)) return 1;
  const absl::Status proof = kernels::ProveCudaPrefill(device);
  if (proof.ok()) return 0;
  fmt::print("{}\n", std::string(proof.message()));
  return 1;
}

void PrepareGpus(Options& options) {
  // As NCCL reads them.
  const auto set_to = [](const char* variable, std::string_view value) {
    const char* const set = std::getenv(variable);
    return set != nullptr && set == value;
  };
  options.link.rdma = !set_to("NCCL_IB_DISABLE", "1") && !set_to("NCCL_NET", "Socket");
  if (options.engine.backend != "cuda") return;
  options.engine.cuda.proof_command = {"/proc/self/exe", std::string(kCheckPrefill)};
  // An operator's own settings stay.
  (void)setenv("NCCL_RAS_ENABLE", "0", 0);
  // Unless it is told to, UCX (1.22) reads a peer's GPU memory directly only where GPUs have NVLink, and else
  // by TCP, through the host, at 0.4 GB/s.
  (void)setenv("UCX_CUDA_IPC_ENABLE_GET_ZCOPY", "on", 0);
  if (options.engine.tp > 1) (void)setenv("CUDA_MODULE_LOADING", "EAGER", 0);
}

}  // namespace baton::worker
