// Launchers of the kernels that pack and unpack payloads. Called by CudaPayload alone.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace baton::transfer {

// Pieces handed to one launch, by value: kernel parameters are 4 KB at most.
struct PieceTable {
  static constexpr int kMost = 128;
  struct Piece {
    std::byte* data;  // in a block
    int64_t at;       // in staging memory
    int64_t bytes;    // a multiple of 16, as both addresses are
  };
  Piece pieces[kMost];
  int count = 0;
};

// A checksum is made for every so many bytes of a payload.
inline constexpr int64_t kSegmentBytes = 256;

// Copies pieces to staging memory, or from it; nothing if `*unless` is not 0 then (null: it is 0).
void CopyPieces(const PieceTable& table, std::byte* staging, bool to_staging, const uint32_t* unless,
                cudaStream_t stream);

// CRC32C of every segment of `bytes`: written to `crcs`, or compared with them, with *wrong set to 1 if one
// differs. bytes is a multiple of 4.
void WriteCrcs(const std::byte* data, int64_t bytes, uint32_t* crcs, cudaStream_t stream);
void CompareCrcs(const std::byte* data, int64_t bytes, const uint32_t* crcs, uint32_t* wrong,
                 cudaStream_t stream);

}  // namespace baton::transfer
