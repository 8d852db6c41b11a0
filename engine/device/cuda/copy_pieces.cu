// Gather and scatter in accesses of 16 bytes.
#include <cstdio>
#include <cstdlib>

#include "engine/device/cuda/copy_pieces.h"

namespace baton::device::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kBytesPerBlock = 16 * 1024;

__global__ void __launch_bounds__(kThreads)
    CopyKernel(PieceTable table, std::byte* staging, bool to_staging, const uint32_t* unless) {
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

void Check(const char* what) {
  const cudaError_t error = cudaGetLastError();
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "launching %s: %s\n", what, cudaGetErrorString(error));
  std::abort();
}

}  // namespace

void CopyPieces(const PieceTable& table, std::byte* staging, bool to_staging, const uint32_t* unless,
                cudaStream_t stream) {
  if (table.count == 0) return;
  int64_t longest = 1;
  for (int i = 0; i < table.count; ++i)
    longest = table.pieces[i].bytes > longest ? table.pieces[i].bytes : longest;
  const dim3 grid(static_cast<unsigned>(table.count),
                  static_cast<unsigned>((longest + kBytesPerBlock - 1) / kBytesPerBlock));
  CopyKernel<<<grid, kThreads, 0, stream>>>(table, staging, to_staging, unless);
  Check("piece copy");
}

}  // namespace baton::device::cuda
