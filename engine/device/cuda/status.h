// Errors of CUDA and cuBLAS as absl::Status: no code above this room sees their codes.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <string_view>

#include "absl/status/status.h"

namespace baton::device::cuda {

// OK, or the error with what was being done. RESOURCE_EXHAUSTED: out of device memory. UNAVAILABLE: no such
// device, or a driver that is missing or too old. INTERNAL: all else; after most of these the process can
// never use the device again.
absl::Status ToStatus(cudaError_t error, std::string_view doing);
absl::Status ToStatus(cublasStatus_t error, std::string_view doing);

// For calls that fail only if the device is lost or we are wrong (launches, events, copies of our own
// memory): what it holds can't be trusted any more, and the process ends with the reason.
void CheckOk(cudaError_t error, std::string_view doing);
void CheckOk(cublasStatus_t error, std::string_view doing);

}  // namespace baton::device::cuda
