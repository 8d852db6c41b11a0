#include "engine/kernels/cuda/gemm.h"

#include <bit>
#include <vector>

#include "common/base/check.h"
#include "common/base/status.h"
#include "engine/device/cuda/status.h"

namespace baton::kernels::cuda {
namespace {

using device::cuda::CheckOk;

// NVIDIA's recommendation for Hopper; other GPUs need less.
constexpr size_t kWorkspaceBytes = size_t{32} << 20;
// Shapes beyond this many are of prompts that won't come again: start over.
constexpr size_t kMaxPlans = 1024;

cudaDataType_t TypeOf(tensor::DType dtype) {
  switch (dtype) {
    case tensor::DType::kBF16:
      return CUDA_R_16BF;
    case tensor::DType::kF16:
      return CUDA_R_16F;
    default:
      return CUDA_R_32F;
  }
}

// Bytes. Weights and activations begin at multiples of it; so do results, except for a rank's columns of the
// logits, which begin where the ranks before it end.
constexpr uint32_t kAligned = 16;
uint32_t AlignmentOf(const void* data) {
  return 1u << std::countr_zero(static_cast<uint32_t>(reinterpret_cast<uintptr_t>(data)) | kAligned);
}

}  // namespace

// cuBLASLt counts by columns: our row-major out [rows, features] is its column-major [features, rows], and
//   out = op(w) x,  op(w) = w transposed, from [depth, features],  x [depth, rows].
struct Gemm::Plan {
  cublasLtMatmulDesc_t product = nullptr;
  cublasLtMatrixLayout_t w = nullptr, x = nullptr, out = nullptr;
  std::vector<cublasLtMatmulAlgo_t> algorithms;  // the one that is said to be best comes first

  Plan() = default;
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;
  ~Plan() {
    if (w != nullptr) (void)cublasLtMatrixLayoutDestroy(w);
    if (x != nullptr) (void)cublasLtMatrixLayoutDestroy(x);
    if (out != nullptr) (void)cublasLtMatrixLayoutDestroy(out);
    if (product != nullptr) (void)cublasLtMatmulDescDestroy(product);
  }
};

absl::StatusOr<std::unique_ptr<Gemm>> Gemm::Create(cudaStream_t stream, device::Memory& memory,
                                                   int suggestions) {
  BATON_ASSIGN_OR_RETURN(device::cuda::Blas blas, device::cuda::MakeBlas());
  BATON_ASSIGN_OR_RETURN(device::Memory::Buffer workspace, memory.Allocate(kWorkspaceBytes));
  return std::unique_ptr<Gemm>(new Gemm(stream, std::move(blas), std::move(workspace), suggestions));
}

Gemm::Gemm(cudaStream_t stream, device::cuda::Blas blas, device::Memory::Buffer workspace, int suggestions)
    : stream_(stream), blas_(std::move(blas)), workspace_(std::move(workspace)), suggestions_(suggestions) {}
Gemm::~Gemm() = default;

const Gemm::Plan& Gemm::PlanFor(const Matrix& x, int64_t features, const Matrix& out) {
  const uint32_t aligned = kAligned, out_aligned = AlignmentOf(out.data);
  const Key key{x.rows,
                x.cols,
                x.stride,
                features,
                out.stride,
                static_cast<int>(x.dtype),
                static_cast<int>(out.dtype),
                out_aligned};
  if (const auto found = plans_.find(key); found != plans_.end()) return *found->second;
  if (plans_.size() >= kMaxPlans) plans_.clear();

  auto plan = std::make_unique<Plan>();
  const auto rows = static_cast<uint64_t>(x.rows), depth = static_cast<uint64_t>(x.cols);
  const auto wide = static_cast<uint64_t>(features);
  CheckOk(cublasLtMatmulDescCreate(&plan->product, CUBLAS_COMPUTE_32F, CUDA_R_32F), "describing a product");
  const cublasOperation_t transposed = CUBLAS_OP_T;
  CheckOk(cublasLtMatmulDescSetAttribute(plan->product, CUBLASLT_MATMUL_DESC_TRANSA, &transposed,
                                         sizeof transposed),
          "describing a product");
  CheckOk(cublasLtMatrixLayoutCreate(&plan->w, TypeOf(x.dtype), depth, wide, x.cols), "describing weights");
  CheckOk(cublasLtMatrixLayoutCreate(&plan->x, TypeOf(x.dtype), depth, rows, x.stride),
          "describing activations");
  CheckOk(cublasLtMatrixLayoutCreate(&plan->out, TypeOf(out.dtype), wide, rows, out.stride),
          "describing a result");

  cublasLtMatmulPreference_t preference = nullptr;
  CheckOk(cublasLtMatmulPreferenceCreate(&preference), "asking for an algorithm");
  const size_t workspace = kWorkspaceBytes;
  const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t what, const void* value, size_t size) {
    CheckOk(cublasLtMatmulPreferenceSetAttribute(preference, what, value, size), "asking for an algorithm");
  };
  prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof workspace);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &aligned, sizeof aligned);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &aligned, sizeof aligned);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &out_aligned, sizeof out_aligned);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &out_aligned, sizeof out_aligned);
  std::vector<cublasLtMatmulHeuristicResult_t> best(static_cast<size_t>(suggestions_));
  int found = 0;
  const cublasStatus_t status =
      cublasLtMatmulAlgoGetHeuristic(blas_.get(), plan->product, plan->w, plan->x, plan->out, plan->out,
                                     preference, suggestions_, best.data(), &found);
  (void)cublasLtMatmulPreferenceDestroy(preference);
  CheckOk(status, "choosing an algorithm");
  BATON_CHECK(found >= 1) << " cuBLASLt knows no algorithm for [" << rows << ", " << depth << "] x [" << depth
                          << ", " << wide << "]";
  for (int i = 0; i < found; ++i) plan->algorithms.push_back(best[static_cast<size_t>(i)].algo);
  return *plans_.emplace(key, std::move(plan)).first->second;
}

bool Gemm::RunBy(size_t suggestion, Matrix x, const void* w, int64_t features, Matrix out) {
  if (x.rows == 0) return suggestion == 0;
  const Plan& plan = PlanFor(x, features, out);
  if (suggestion >= plan.algorithms.size()) return false;
  const float one = 1, zero = 0;
  CheckOk(cublasLtMatmul(blas_.get(), plan.product, &one, w, plan.w, x.data, plan.x, &zero, out.data,
                         plan.out, out.data, plan.out, &plan.algorithms[suggestion], workspace_.get(),
                         kWorkspaceBytes, stream_),
          "multiplying");
  return true;
}

}  // namespace baton::kernels::cuda
