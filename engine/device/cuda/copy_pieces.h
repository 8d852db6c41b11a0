// Gathers pieces of a GPU's memory (of other GPUs, too, where it reaches them) into one run of bytes, or
// scatters them from it. Launches a kernel; failures of a launch are our own and end the process.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace baton::device::cuda {

// Pieces handed to one launch, by value: kernel parameters are 4 KB at most.
struct PieceTable {
  static constexpr int kMost = 128;
  struct Piece {
    std::byte* data;
    int64_t at;     // in the run of bytes
    int64_t bytes;  // a multiple of 16, as both addresses are
  };
  Piece pieces[kMost];
  int count = 0;
};

// Copies the pieces to `staging`, or from it; nothing if `*unless`, on the GPU, is not 0 then (null: it is
// 0).
void CopyPieces(const PieceTable& table, std::byte* staging, bool to_staging, const uint32_t* unless,
                cudaStream_t stream);

}  // namespace baton::device::cuda
