// Gemm: matrix products by cuBLASLt, with the algorithm chosen once per shape and a workspace of its own, so
// that products on one stream never wait for another's. Owner thread of the GPU's engine only.
#pragma once

#include <cublasLt.h>

#include <map>
#include <memory>
#include <tuple>

#include "absl/status/statusor.h"
#include "engine/device/cuda/handles.h"
#include "engine/kernels/kernels.h"

namespace baton::kernels::cuda {

class Gemm {
 public:
  // `memory` gives the workspace and outlives it. Of each shape, so many of the algorithms that cuBLASLt
  // suggests are kept; more than one only to compare them.
  static absl::StatusOr<std::unique_ptr<Gemm>> Create(cudaStream_t stream, device::Memory& memory,
                                                      int suggestions = 1);
  ~Gemm();

  // out [rows, features] = x [rows, depth] w^T, w row-major [features, depth]; x and w of one 16-bit dtype,
  // out of the same or float32; sums in float32. Rows and strides in values; strides and the addresses of x
  // and w divide by 16 bytes. out may begin anywhere: a rank's columns of the logits do.
  // By the first algorithm that is suggested.
  void Run(Matrix x, const void* w, int64_t features, Matrix out) { RunBy(0, x, w, features, out); }
  // By another one, counted from 0; false if there is none.
  bool RunBy(size_t suggestion, Matrix x, const void* w, int64_t features, Matrix out);

 private:
  struct Plan;
  using Key = std::tuple<int64_t, int64_t, int64_t, int64_t, int64_t, int, int, uint32_t>;
  Gemm(cudaStream_t stream, device::cuda::Blas blas, device::Memory::Buffer workspace, int suggestions);
  const Plan& PlanFor(const Matrix& x, int64_t features, const Matrix& out);

  const cudaStream_t stream_;
  const device::cuda::Blas blas_;
  const device::Memory::Buffer workspace_;
  const int suggestions_;
  std::map<Key, std::unique_ptr<Plan>> plans_;
};

}  // namespace baton::kernels::cuda
