// Launchers of the kernels that check payloads. Called by CudaPayload alone.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace baton::transfer {

// A checksum is made for every so many bytes of a payload.
inline constexpr int64_t kSegmentBytes = 256;

// CRC32C of every segment of `bytes`: written to `crcs`, or compared with them, with *wrong set to 1 if one
// differs. bytes is a multiple of 4.
void WriteCrcs(const std::byte* data, int64_t bytes, uint32_t* crcs, cudaStream_t stream);
void CompareCrcs(const std::byte* data, int64_t bytes, const uint32_t* crcs, uint32_t* wrong,
                 cudaStream_t stream);

}  // namespace baton::transfer
