// Gemm on the emulated runtime, in the place of cuBLASLt: float32 sums in order, rounded once.
#include "engine/kernels/cuda/gemm.h"
#include "tests/gpu/emulation/runtime.h"

namespace baton::kernels::cuda {

struct Gemm::Plan {};

Gemm::Gemm(cudaStream_t stream, device::cuda::Blas blas, device::Memory::Buffer workspace, int suggestions)
    : stream_(stream), blas_(std::move(blas)), workspace_(std::move(workspace)), suggestions_(suggestions) {}
Gemm::~Gemm() = default;

absl::StatusOr<std::unique_ptr<Gemm>> Gemm::Create(cudaStream_t stream, device::Memory&, int suggestions) {
  return std::unique_ptr<Gemm>(new Gemm(stream, nullptr, nullptr, suggestions));
}

bool Gemm::RunBy(size_t suggestion, Matrix x, const void* w, int64_t features, Matrix out) {
  if (suggestion > 0) return false;
  emulation::Issue(stream_, {.what = "a product", .run = [=] {
                               const auto* weights = static_cast<const uint16_t*>(w);
                               for (int64_t r = 0; r < x.rows; ++r) {
                                 const auto* row = reinterpret_cast<const uint16_t*>(x.bytes(r));
                                 std::vector<float> values;
                                 for (int64_t i = 0; i < x.cols; ++i)
                                   values.push_back(tensor::ValueAt(row, x.dtype, i));
                                 for (int64_t o = 0; o < features; ++o) {
                                   float sum = 0;
                                   for (int64_t i = 0; i < x.cols; ++i) {
                                     sum += values[static_cast<size_t>(i)] *
                                            tensor::FromBF16(weights[o * x.cols + i]);
                                   }
                                   if (out.dtype == tensor::DType::kF32) {
                                     out.row(r)[o] = sum;
                                   } else {
                                     reinterpret_cast<uint16_t*>(out.bytes(r))[o] = tensor::ToBF16(sum);
                                   }
                                 }
                               }
                             }});
  return true;
}

}  // namespace baton::kernels::cuda
