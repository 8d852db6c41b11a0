#include "engine/device/cuda/status.h"

#include <fmt/format.h>

#include "common/base/check.h"

namespace baton::device::cuda {

absl::Status ToStatus(cudaError_t error, std::string_view doing) {
  if (error == cudaSuccess) return absl::OkStatus();
  const std::string message =
      fmt::format("{}: {} ({})", doing, cudaGetErrorString(error), cudaGetErrorName(error));
  switch (error) {
    case cudaErrorMemoryAllocation:
      return absl::ResourceExhaustedError(message);
    case cudaErrorNoDevice:
    case cudaErrorInvalidDevice:
    case cudaErrorInsufficientDriver:
    case cudaErrorSystemDriverMismatch:
    case cudaErrorSystemNotReady:
    case cudaErrorDevicesUnavailable:
      return absl::UnavailableError(message);
    default:
      return absl::InternalError(message);
  }
}

absl::Status ToStatus(cublasStatus_t error, std::string_view doing) {
  if (error == CUBLAS_STATUS_SUCCESS) return absl::OkStatus();
  const std::string message = fmt::format("{}: {}", doing, cublasLtGetStatusString(error));
  return error == CUBLAS_STATUS_ALLOC_FAILED ? absl::ResourceExhaustedError(message)
                                             : absl::InternalError(message);
}

void CheckOk(cudaError_t error, std::string_view doing) {
  BATON_CHECK(error == cudaSuccess) << " " << ToStatus(error, doing).ToString();
}

void CheckOk(cublasStatus_t error, std::string_view doing) {
  BATON_CHECK(error == CUBLAS_STATUS_SUCCESS) << " " << ToStatus(error, doing).ToString();
}

}  // namespace baton::device::cuda
