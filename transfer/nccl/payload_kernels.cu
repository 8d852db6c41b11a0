// Checksums of payloads on the GPU: a CRC32C (Castagnoli, RFC 3720 appendix B.4) for every 256 bytes, four
// bytes a step by four tables in shared memory (slicing-by-4, Kounavis and Berry 2005).
#include <cstdio>
#include <cstdlib>

#include "transfer/nccl/payload_launch.h"

namespace baton::transfer {
namespace {

constexpr int kThreads = 256;
constexpr uint32_t kPolynomial = 0x82F63B78u;  // reflected

template <bool kCompare>
__global__ void __launch_bounds__(kThreads)
    CrcKernel(const std::byte* data, int64_t bytes, uint32_t* crcs, uint32_t* wrong) {
  __shared__ uint32_t tables[4][256];
  static_assert(kThreads == 256);
  uint32_t entry = threadIdx.x;
  for (int bit = 0; bit < 8; ++bit) entry = (entry >> 1) ^ ((entry & 1) != 0 ? kPolynomial : 0);
  tables[0][threadIdx.x] = entry;
  __syncthreads();
  for (int t = 1; t < 4; ++t) {
    entry = (entry >> 8) ^ tables[0][entry & 0xFF];
    tables[t][threadIdx.x] = entry;
  }
  __syncthreads();
  const int64_t segment = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const int64_t begin = segment * kSegmentBytes;
  if (begin >= bytes) return;
  const int64_t end = begin + kSegmentBytes < bytes ? begin + kSegmentBytes : bytes;
  uint32_t crc = 0xFFFFFFFFu;
  for (int64_t i = begin; i < end; i += 4) {
    crc ^= *reinterpret_cast<const uint32_t*>(data + i);
    crc = tables[3][crc & 0xFF] ^ tables[2][(crc >> 8) & 0xFF] ^ tables[1][(crc >> 16) & 0xFF] ^
          tables[0][crc >> 24];
  }
  crc = ~crc;
  if (kCompare) {
    if (crcs[segment] != crc) *wrong = 1;  // every thread that writes it writes the same
  } else {
    crcs[segment] = crc;
  }
}

void Check(const char* what) {
  const cudaError_t error = cudaGetLastError();
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "launching %s: %s\n", what, cudaGetErrorString(error));
  std::abort();
}

unsigned CrcBlocks(int64_t bytes) {
  const int64_t segments = (bytes + kSegmentBytes - 1) / kSegmentBytes;
  return static_cast<unsigned>((segments + kThreads - 1) / kThreads);
}

}  // namespace

void WriteCrcs(const std::byte* data, int64_t bytes, uint32_t* crcs, cudaStream_t stream) {
  CrcKernel<false><<<CrcBlocks(bytes), kThreads, 0, stream>>>(data, bytes, crcs, nullptr);
  Check("checksums");
}

void CompareCrcs(const std::byte* data, int64_t bytes, const uint32_t* crcs, uint32_t* wrong,
                 cudaStream_t stream) {
  CrcKernel<true><<<CrcBlocks(bytes), kThreads, 0, stream>>>(data, bytes, const_cast<uint32_t*>(crcs), wrong);
  Check("checksums");
}

}  // namespace baton::transfer
