// Packing of payloads on the GPU: gather and scatter in 16-byte accesses, and a CRC32C (Castagnoli, RFC 3720
// appendix B.4) for every 256 bytes, four bytes a step by four tables in shared memory (slicing-by-4, Kounavis
// and Berry 2005).
#include <cstdio>
#include <cstdlib>

#include "common/transfer/nccl/payload_launch.h"

namespace baton::transfer {
namespace {

constexpr int kThreads = 256;
constexpr uint32_t kPolynomial = 0x82F63B78u;  // reflected
constexpr int64_t kBytesPerBlock = 16 * 1024;

__global__ void __launch_bounds__(kThreads) CopyKernel(PieceTable table, std::byte* staging, bool to_staging, const uint32_t* unless) {
  if (unless != nullptr && *unless != 0) return;
  const PieceTable::Piece piece = table.pieces[blockIdx.x];
  auto* data = reinterpret_cast<uint4*>(piece.data);
  auto* staged = reinterpret_cast<uint4*>(staging + piece.at);
  const int64_t words = piece.bytes / 16;
  for (int64_t i = static_cast<int64_t>(blockIdx.y) * kThreads + threadIdx.x; i < words;
       i += static_cast<int64_t>(gridDim.y) * kThreads) {
    if (to_staging) {
      staged[i] = data[i];
    } else {
      data[i] = staged[i];
    }
  }
}

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
    crc = tables[3][crc & 0xFF] ^ tables[2][(crc >> 8) & 0xFF] ^ tables[1][(crc >> 16) & 0xFF] ^ tables[0][crc >> 24];
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

void CopyPieces(const PieceTable& table, std::byte* staging, bool to_staging, const uint32_t* unless,
                cudaStream_t stream) {
  if (table.count == 0) return;
  int64_t longest = 1;
  for (int i = 0; i < table.count; ++i) longest = table.pieces[i].bytes > longest ? table.pieces[i].bytes : longest;
  const dim3 grid(static_cast<unsigned>(table.count),
                  static_cast<unsigned>((longest + kBytesPerBlock - 1) / kBytesPerBlock));
  CopyKernel<<<grid, kThreads, 0, stream>>>(table, staging, to_staging, unless);
  Check("piece copy");
}

void WriteCrcs(const std::byte* data, int64_t bytes, uint32_t* crcs, cudaStream_t stream) {
  CrcKernel<false><<<CrcBlocks(bytes), kThreads, 0, stream>>>(data, bytes, crcs, nullptr);
  Check("checksums");
}

void CompareCrcs(const std::byte* data, int64_t bytes, const uint32_t* crcs, uint32_t* wrong, cudaStream_t stream) {
  CrcKernel<true><<<CrcBlocks(bytes), kThreads, 0, stream>>>(data, bytes, const_cast<uint32_t*>(crcs), wrong);
  Check("checksums");
}

}  // namespace baton::transfer
