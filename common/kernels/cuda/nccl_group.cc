// All-reduce over NCCL for the ranks of one process: one communicator per GPU, made together, used on each
// rank's own compute stream, so that sums take their place among its kernels and are captured with them.
// Apart from the links between workers, whose communicators live and die with their peers.
#include <fmt/format.h>
#include <nccl.h>

#include <barrier>

#include "common/base/check.h"
#include "common/base/status.h"
#include "common/kernels/collective.h"
#include "common/kernels/cuda/cuda_kernels.h"

namespace baton::kernels {
namespace {

absl::Status ToStatus(ncclResult_t result, std::string_view doing) {
  if (result == ncclSuccess) return absl::OkStatus();
  return absl::UnavailableError(
      fmt::format("{}: {} ({})", doing, ncclGetErrorString(result), ncclGetLastError(nullptr)));
}

class NcclMember final : public Collective {
 public:
  NcclMember(ncclComm_t communicator, cudaStream_t stream, int rank, std::shared_ptr<std::barrier<>> barrier,
             int ranks)
      : communicator_(communicator),
        stream_(stream),
        rank_(rank),
        ranks_(ranks),
        barrier_(std::move(barrier)) {}
  // Never destroyed in an orderly way: that waits for all ranks, which end one after the other.
  ~NcclMember() override { (void)ncclCommAbort(communicator_); }

  int rank() const override { return rank_; }
  int ranks() const override { return ranks_; }

  void AllReduce(Matrix matrix) override {
    const ncclDataType_t type = matrix.dtype == tensor::DType::kF32    ? ncclFloat32
                                : matrix.dtype == tensor::DType::kBF16 ? ncclBfloat16
                                                                       : ncclFloat16;
    // Rows and what lies between them: one call for the whole matrix.
    const auto values = static_cast<size_t>(matrix.rows * matrix.stride);
    const absl::Status sent = ToStatus(
        ncclAllReduce(matrix.data, matrix.data, values, type, ncclSum, communicator_, stream_), "all-reduce");
    BATON_CHECK(sent.ok()) << " " << sent.ToString();  // a rank that can't go on leaves the others waiting
  }
  void Barrier() override { barrier_->arrive_and_wait(); }

 private:
  const ncclComm_t communicator_;
  const cudaStream_t stream_;
  const int rank_;
  const int ranks_;
  const std::shared_ptr<std::barrier<>> barrier_;
};

}  // namespace

absl::StatusOr<std::vector<std::unique_ptr<Collective>>> MakeCudaGroup(std::span<Kernels* const> ranks) {
  std::vector<int> devices;
  for (Kernels* kernels : ranks) devices.push_back(static_cast<cuda::CudaKernels*>(kernels)->device());
  std::vector<ncclComm_t> communicators(ranks.size());
  BATON_RETURN_IF_ERROR(
      ToStatus(ncclCommInitAll(communicators.data(), static_cast<int>(ranks.size()), devices.data()),
               fmt::format("joining {} GPUs by NCCL", ranks.size())));
  const auto barrier = std::make_shared<std::barrier<>>(static_cast<std::ptrdiff_t>(ranks.size()));
  std::vector<std::unique_ptr<Collective>> members;
  for (size_t r = 0; r < ranks.size(); ++r) {
    members.push_back(
        std::make_unique<NcclMember>(communicators[r], static_cast<cuda::CudaKernels*>(ranks[r])->stream(),
                                     static_cast<int>(r), barrier, static_cast<int>(ranks.size())));
  }
  return members;
}

}  // namespace baton::kernels
