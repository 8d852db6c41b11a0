// Prefill attention for sm_90a, on the warpgroups' tensor cores (wgmma); after FlashAttention-3 (arXiv
// 2407.08608), section 3.2. It takes the same tiles of queries as the kernel for all architectures
// (attention_prefill.cu, where rows, masks and tiles of keys are explained), 64 rows for each of two
// warpgroups, and 128 keys at a time: while the tensor cores multiply the last tile's probabilities with its
// values, the scores of this one become probabilities, and the next keys and these values are on their way
// from memory.
//
// All three operands in shared memory are panels of rows of 64 values, 128 bytes, in the 128-byte swizzle.
// The pool's own order decides along what: keys are [head_dim][tokens] and values [tokens][head_dim], so both
// are N-major as the second operand of their product, and nothing is transposed on the way.
//
// On other architectures the kernel is empty: prefill_choice.h decides who is asked.
#include <cmath>
#include <type_traits>

#include "engine/kernels/cuda/kv_tile.cuh"
#include "engine/kernels/cuda/launch_check.h"
#include "engine/kernels/cuda/wgmma.cuh"

namespace baton::kernels::cuda {
namespace {

constexpr int kWarpgroup = 128;
constexpr int kGroupRows = 64;
constexpr int kThreads = kTileRows / kGroupRows * kWarpgroup;
constexpr int kKeys = 128;
constexpr int kStages = 2;
constexpr int kSpan = 64;  // values in a panel's row

template <typename T, int D>
struct WgmmaShared {
  T q[D / kSpan][kTileRows * kSpan];            // a row per packed row, along d
  T keys[kStages][kKeys / kSpan][D * kSpan];    // a row per d, along tokens
  T values[kStages][D / kSpan][kKeys * kSpan];  // a row per token, along d
  // For KV of 8 bits only, and last: without it, the launch asks for less.
  struct Bytes {
    std::byte keys[kKeys * D];
    std::byte values[kKeys * D];
    float key_scales[kStages][kKeys];
    float value_scales[kStages][kKeys];
  } bytes;
};

#ifdef BATON_HAS_WGMMA

constexpr int kTileBlocks = kKeys / kBlockTokens;
constexpr int kRowBytes = 128;  // of a panel
constexpr float kLog2E = 1.4426950408889634f;

// Eight values of a panel, the swizzle applied: chunk c of row r stands at c ^ (r % 8).
template <typename T>
__device__ T* ChunkAt(T* panel, int row, int chunk) {
  return panel + row * kSpan + (chunk ^ (row & 7)) * 8;
}

// A matrix in shared memory for wgmma, 128-byte swizzle: PTX ISA, "Matrix descriptor format". Panels begin at
// multiples of 1024 bytes, so the base offset is 0; a step along K within them is a step of the address.
// `leading`: from one panel to the next, for N-major ones (K-major: not used). Eight rows are 1024 bytes.
__device__ uint64_t Descriptor(uint32_t address, int leading) {
  constexpr uint64_t kSwizzle128 = uint64_t{1} << 62;
  constexpr uint64_t kEightRows = 8 * kRowBytes;
  return kSwizzle128 | (kEightRows >> 4) << 32 | static_cast<uint64_t>(leading >> 4) << 16 |
         (address & 0x3FFFF) >> 4;
}

// s [64, 128] = q [64, D] keys [D, 128].
template <typename T, int D>
__device__ void IssueScores(float (&s)[kKeys / 2], uint32_t q, uint32_t keys) {
#pragma unroll
  for (int kk = 0; kk < D / 16; ++kk) {
    const int column = kk * 16;
    WgmmaScores<T>(s,
                   Descriptor(q + column / kSpan * (kTileRows * kRowBytes) + column % kSpan * sizeof(T), 16),
                   Descriptor(keys + column * kRowBytes, D * kRowBytes), kk > 0);
  }
  WgmmaCommit();
}

// o [64, D] += p [64, 128] values [128, D].
template <typename T, int D>
__device__ void IssueValues(float (&o)[D / 2], const uint32_t (&p)[kKeys / 16][4], uint32_t values) {
#pragma unroll
  for (int kk = 0; kk < kKeys / 16; ++kk) {
    WgmmaValues<T>(o, p[kk], Descriptor(values + kk * 16 * kRowBytes, kKeys * kRowBytes));
  }
  WgmmaCommit();
}

// The KV of a sequence in one layer and head.
struct Source {
  const int32_t* blocks;
  const std::byte* keys;
  const std::byte* values;
  int64_t block_bytes;
  DType key_dtype, value_dtype;
  int end;  // tokens that the tile attends to
};

// A block's keys, and its values, are 2 D chunks: so many threads take a block, one chunk each, and where
// those are fewer than all, the others take the next block. A thread's blocks are taken in batches, so that
// all loads of a batch are under way before the first is waited for: all of a tile's where they are copied as
// they are, two where they pass through registers, of which there are no more.
template <typename T, int D, DType kType>
struct Share {
  static constexpr bool kCopied = kType == kNative<T>;
  static constexpr int kThreadsPerBlock = 2 * D;
  static constexpr int kStep = kThreads / kThreadsPerBlock;
  static constexpr int kBatch = kCopied ? kTileBlocks / kStep : 2;
  int chunk, first_block;
  __device__ explicit Share(int thread)
      : chunk(thread % kThreadsPerBlock), first_block(thread / kThreadsPerBlock) {}
};

// The blocks of a batch. Beyond the end it is the last block there is.
template <int kBatch, int kStep>
__device__ void BlocksOf(int32_t (&ids)[kBatch], const Source& from, int first_key, int block) {
#pragma unroll
  for (int i = 0; i < kBatch; ++i) {
    ids[i] = from.blocks[min(first_key + (block + i * kStep) * kBlockTokens, from.end - 1) / kBlockTokens];
  }
}

// Keys beyond the end are any: their scores are masked.
template <typename T, int D, DType kType>
__device__ void LoadTileKeys(T (&panels)[kKeys / kSpan][D * kSpan], const Source& from, int first_key,
                             int thread) {
  using Mine = Share<T, D, kType>;
  const Mine mine(thread);
  // Rows d, d + 2, d + 4, d + 6 by eight threads in a row: in this swizzle their chunks lie in different
  // banks.
  const int pair = mine.chunk / 2, half = mine.chunk % 2;
  const int d = (pair & ~7) | (pair & 3) << 1 | (pair >> 2 & 1);
  const auto place = [&](int block) {
    return ChunkAt(panels[block * kBlockTokens / kSpan], d, block * 2 % 8 + half);
  };
#pragma unroll 1
  for (int block = mine.first_block; block < kTileBlocks; block += Mine::kBatch * Mine::kStep) {
    int32_t ids[Mine::kBatch];
    BlocksOf<Mine::kBatch, Mine::kStep>(ids, from, first_key, block);
    if constexpr (Mine::kCopied) {
#pragma unroll
      for (int i = 0; i < Mine::kBatch; ++i) {
        CopyAsync16(place(block + i * Mine::kStep),
                    from.keys + ids[i] * from.block_bytes + (2 * d + half) * 16, true);
      }
    } else {
      float values[Mine::kBatch][8];
#pragma unroll
      for (int i = 0; i < Mine::kBatch; ++i) {
        LoadKeyChunk<D>(values[i], from.keys + ids[i] * from.block_bytes, kType, 2 * d + half);
      }
#pragma unroll
      for (int i = 0; i < Mine::kBatch; ++i)
        StoreShared(place(block + i * Mine::kStep), PackChunk<T>(values[i]));
    }
  }
}

// Values beyond the end are zeros: a probability of zero times what was never written need not be zero.
template <typename T, int D, DType kType>
__device__ void LoadTileValues(T (&panels)[D / kSpan][kKeys * kSpan], const Source& from, int first_key,
                               int thread) {
  using Mine = Share<T, D, kType>;
  const Mine mine(thread);
  const int token = mine.chunk / (D / 8), column = mine.chunk % (D / 8);
  const auto place = [&](int block) {
    return ChunkAt(panels[column / 8], block * kBlockTokens + token, column % 8);
  };
  const auto there = [&](int block) { return first_key + block * kBlockTokens + token < from.end; };
#pragma unroll 1
  for (int block = mine.first_block; block < kTileBlocks; block += Mine::kBatch * Mine::kStep) {
    int32_t ids[Mine::kBatch];
    BlocksOf<Mine::kBatch, Mine::kStep>(ids, from, first_key, block);
    if constexpr (Mine::kCopied) {
#pragma unroll
      for (int i = 0; i < Mine::kBatch; ++i) {
        const int at = block + i * Mine::kStep;
        CopyAsync16(place(at), from.values + ids[i] * from.block_bytes + mine.chunk * 16, there(at));
      }
    } else {
      float values[Mine::kBatch][8];
#pragma unroll
      for (int i = 0; i < Mine::kBatch; ++i) {
        LoadValueChunk<D>(values[i], from.values + ids[i] * from.block_bytes, kType, mine.chunk);
      }
#pragma unroll
      for (int i = 0; i < Mine::kBatch; ++i) {
        const int at = block + i * Mine::kStep;
        StoreShared(place(at), there(at) ? PackChunk<T>(values[i]) : make_uint4(0, 0, 0, 0));
      }
    }
  }
}

// KV of 8 bits is brought as it is, a round before it is converted, so that nobody waits for it: chunk i of a
// tile's bytes by the thread that converts it. Scales are for all, and two tiles' are there: some threads may
// still convert the last.
template <int D>
inline constexpr int kByteChunks = kTileBlocks* D / kThreads;  // of a thread

// Also of values, which are as many bytes. `bytes_of` is the layer's keys or values.
template <int D>
__device__ void FetchBytes(std::byte* bytes, float* scales, const std::byte* bytes_of, const Source& from,
                           int first_key, int thread) {
  const auto block_at = [&](int block) {
    const int id = from.blocks[min(first_key + block * kBlockTokens, from.end - 1) / kBlockTokens];
    return bytes_of + id * from.block_bytes;
  };
#pragma unroll
  for (int i = 0; i < kByteChunks<D>; ++i) {
    const int at = i * kThreads + thread;
    CopyAsync16(bytes + at * 16, block_at(at / D) + at % D * 16, true);
  }
  if (thread < kTileBlocks * 4) {
    CopyAsync16(scales + thread * 4, block_at(thread / 4) + D * kBlockTokens + thread % 4 * 16, true);
  }
}

// Bytes 8 half and on of a chunk, times `scale(place in the chunk)`.
template <typename T, typename Scale>
__device__ uint4 WidenHalf(const uint4& bytes, int half, DType dtype, Scale scale) {
  const uint32_t low = half == 0 ? bytes.x : bytes.z, high = half == 0 ? bytes.y : bytes.w;
  const int at = half * 8;
  return {WidenBytes<T, 0, 1>(low, dtype, scale(at), scale(at + 1)),
          WidenBytes<T, 2, 3>(low, dtype, scale(at + 2), scale(at + 3)),
          WidenBytes<T, 0, 1>(high, dtype, scale(at + 4), scale(at + 5)),
          WidenBytes<T, 2, 3>(high, dtype, scale(at + 6), scale(at + 7))};
}

template <typename T, int D>
__device__ void ConvertKeys(T (&panels)[kKeys / kSpan][D * kSpan], const std::byte* bytes,
                            const float* scales, DType dtype, int thread) {
#pragma unroll 1
  for (int i = 0; i < kByteChunks<D>; ++i) {
    const int at = i * kThreads + thread, block = at / D, d = at % D;
    const uint4 chunk = *reinterpret_cast<const uint4*>(bytes + at * 16);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      StoreShared(
          ChunkAt(panels[block * kBlockTokens / kSpan], d, block * 2 % 8 + half),
          WidenHalf<T>(chunk, half, dtype, [&](int token) { return scales[block * kBlockTokens + token]; }));
    }
  }
}

// Values beyond the end are zeros, as above. `left`: tokens that are there, counted from the tile's first.
template <typename T, int D>
__device__ void ConvertValues(T (&panels)[D / kSpan][kKeys * kSpan], const std::byte* bytes,
                              const float* scales, DType dtype, int left, int thread) {
#pragma unroll 1
  for (int i = 0; i < kByteChunks<D>; ++i) {
    const int at = i * kThreads + thread, token = at / (D / 16), column = at % (D / 16) * 2;
    const uint4 chunk = *reinterpret_cast<const uint4*>(bytes + at * 16);
    const float scale = scales[token];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      StoreShared(ChunkAt(panels[column / 8], token, column % 8 + half),
                  token < left ? WidenHalf<T>(chunk, half, dtype, [&](int) { return scale; })
                               : make_uint4(0, 0, 0, 0));
    }
  }
}

// Calls body with the dtype, of 16 or 32 bits, as a constant: what follows from it is decided once per tile,
// not once per chunk.
template <typename Body>
__device__ void WithDType(DType dtype, const Body& body) {
  switch (dtype) {
    case DType::kF32:
      return body(std::integral_constant<DType, DType::kF32>());
    case DType::kF16:
      return body(std::integral_constant<DType, DType::kF16>());
    default:
      return body(std::integral_constant<DType, DType::kBF16>());
  }
}

// A lane's two rows of a warpgroup's 64, `lane / 4` and + 8 of its warp's 16, and their softmax so far.
struct Rows {
  int first[2], position[2];                  // keys that they see: from first to their own
  float maximum[2] = {-INFINITY, -INFINITY};  // of the scores, before `scale`
  float weight[2] = {0, 0};                   // this lane's part
  float fade[2];                              // what the last tile did to all before it
};

// Keys that a row does not see get no weight. Of s[4 n], ...: two columns of either row. Apart from Softmax,
// because few tiles need it: a branch around it costs those that don't next to nothing.
__device__ void Mask(float (&s)[kKeys / 2], const Rows& rows, int first_key, int lane) {
#pragma unroll
  for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int key = first_key + n * 8 + (lane % 4) * 2 + i % 2;
      if (key < rows.first[i / 2] || key > rows.position[i / 2]) s[n * 4 + i] = -INFINITY;
    }
  }
}

// Scores become probabilities, up to the common factor: 2^(scale s), with `scale` > 0 applied by the same
// instruction that subtracts the maximum.
__device__ void Softmax(float (&s)[kKeys / 2], Rows& rows, float scale) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float best = -INFINITY;
#pragma unroll
    for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        best = fmaxf(best, s[n * 4 + half * 2 + i]);
      }
    }
    best = fmaxf(best, __shfl_xor_sync(0xFFFFFFFFu, best, 1));
    best = fmaxf(best, __shfl_xor_sync(0xFFFFFFFFu, best, 2));
    const float next = fmaxf(rows.maximum[half], best);
    const float base = next == -INFINITY ? 0 : __fmul_rn(next, scale);  // nothing seen yet, under a window
    // Rounded as the base is: exactly 1 for a tile of which the row sees nothing.
    rows.fade[half] = Exp2(__fmul_rn(rows.maximum[half], scale) - base);
    rows.maximum[half] = next;
    rows.weight[half] *= rows.fade[half];
#pragma unroll
    for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        float& score = s[n * 4 + half * 2 + i];
        score = Exp2(fmaf(score, scale, -base));
        rows.weight[half] += score;
      }
    }
  }
}

// As the A registers of the product with the values.
template <typename T>
__device__ void Pack(uint32_t (&p)[kKeys / 16][4], const float (&s)[kKeys / 2]) {
#pragma unroll
  for (int kk = 0; kk < kKeys / 16; ++kk) {
#pragma unroll
    for (int i = 0; i < 4; ++i) p[kk][i] = Pack2<T>(s[kk * 8 + i * 2], s[kk * 8 + i * 2 + 1]);
  }
}

#endif  // BATON_HAS_WGMMA

template <typename T, int D>
__global__ void __launch_bounds__(kThreads, 1)
    WgmmaPrefillKernel(const T* q, int64_t q_stride, HeadShape shape, StepView step, KvView kv, T* out,
                       int64_t out_stride) {
#ifdef BATON_HAS_WGMMA
  extern __shared__ __align__(1024) unsigned char raw[];
  auto& shared = *reinterpret_cast<WgmmaShared<T, D>*>(raw);
  const int thread = static_cast<int>(threadIdx.x), lane = thread % kWarp;
  // The same in all lanes, and the compiler may know it.
  const int warp = __shfl_sync(0xFFFFFFFFu, thread / kWarp, 0);
  const int first_of_group = warp / 4 * kGroupRows;
  const PrefillTile tile = step.tiles[blockIdx.x];
  const int kv_head = static_cast<int>(blockIdx.y);
  const int group = shape.heads / shape.kv_heads;
  const int packed = tile.rows * group;  // rows of the sequence, heads counted
  const auto position_of = [&](int row) { return tile.first_position + min(row, packed - 1) / group; };
  const int first_position = position_of(tile.first);
  const int last_position = position_of(tile.first + kTileRows - 1);

  for (int i = thread; i < kTileRows * (D / 8); i += kThreads) {
    const int r = i / (D / 8), chunk = i % (D / 8);
    const int p = min(tile.first + r, packed - 1);
    const T* from =
        q + (tile.first_row + p / group) * q_stride + (kv_head * group + p % group) * D + chunk * 8;
    CopyAsync16(ChunkAt(shared.q[chunk / 8], r, chunk % 8), from, tile.first + r < packed);
  }

  const auto first_seen = [&](int position) {
    return shape.window > 0 && position >= shape.window ? static_cast<int>(position - shape.window + 1) : 0;
  };
  const int begin = first_seen(first_position) / kKeys * kKeys;
  const int tiles = (last_position - begin) / kKeys + 1;
  const Source source{step.blocks + tile.first_block,
                      kv.pool + kv.keys_at + kv_head * kv.key_head_bytes,
                      kv.pool + kv.values_at + kv_head * kv.value_head_bytes,
                      kv.block_bytes,
                      kv.key_dtype,
                      kv.value_dtype,
                      last_position + 1};
  const bool key_bytes = tensor::IsScaled(source.key_dtype),
             value_bytes = tensor::IsScaled(source.value_dtype);
  // Has what is of 8 bits of the keys of tile `index` and the values of the one before on its way.
  const auto fetch = [&](int index) {
    if (key_bytes && index < tiles) {
      FetchBytes<D>(shared.bytes.keys, shared.bytes.key_scales[index % kStages], source.keys, source,
                    begin + index * kKeys, thread);
    }
    if (value_bytes && index > 0 && index <= tiles) {
      const int last = index - 1;
      FetchBytes<D>(shared.bytes.values, shared.bytes.value_scales[last % kStages], source.values, source,
                    begin + last * kKeys, thread);
    }
  };
  // Brings the keys of tile `index` and the values of the one before.
  const auto load = [&](int index) {
    if (index < tiles && key_bytes) {
      ConvertKeys<T, D>(shared.keys[index % kStages], shared.bytes.keys,
                        shared.bytes.key_scales[index % kStages], source.key_dtype, thread);
    } else if (index < tiles) {
      WithDType(source.key_dtype, [&](auto dtype) {
        LoadTileKeys<T, D, dtype()>(shared.keys[index % kStages], source, begin + index * kKeys, thread);
      });
    }
    const int last = index - 1;
    if (index > 0 && value_bytes) {
      ConvertValues<T, D>(shared.values[last % kStages], shared.bytes.values,
                          shared.bytes.value_scales[last % kStages], source.value_dtype,
                          source.end - (begin + last * kKeys), thread);
    } else if (index > 0) {
      WithDType(source.value_dtype, [&](auto dtype) {
        LoadTileValues<T, D, dtype()>(shared.values[last % kStages], source, begin + last * kKeys, thread);
      });
    }
    fetch(index + 1);
    CommitCopies();
  };
  // Waits until the last load is visible to all threads and all products of the previous round are done.
  const auto arrive = [&] {
    WaitForCopies<0>();
    FenceProxyAsync();
    __syncthreads();
    WgmmaFence();
  };
  const uint32_t q_at = SharedAddress(shared.q) + first_of_group * kRowBytes;
  const auto keys_at = [&](int index) { return SharedAddress(shared.keys[index % kStages]); };
  const auto values_at = [&](int index) { return SharedAddress(shared.values[index % kStages]); };

  // Positions of this warpgroup's rows, and this lane's rows.
  const int lowest = position_of(tile.first + first_of_group);
  const int highest = position_of(tile.first + first_of_group + kGroupRows - 1);
  const int own = tile.first + warp * 16 + lane / 4;
  Rows rows;
  rows.position[0] = position_of(own);
  rows.position[1] = position_of(own + 8);
  rows.first[0] = first_seen(rows.position[0]);
  rows.first[1] = first_seen(rows.position[1]);
  const auto softmax = [&](float(&s)[kKeys / 2], int index) {
    const int first_key = begin + index * kKeys;
    const bool masked = first_key + kKeys - 1 > lowest || first_key < first_seen(highest);
    if (masked) Mask(s, rows, first_key, lane);
    Softmax(s, rows, shape.scale * kLog2E);
  };

  float s[kKeys / 2] = {};
  float o[D / 2] = {};
  uint32_t p[kKeys / 16][4];
  if (key_bytes) {
    fetch(0);
    CommitCopies();
    WaitForCopies<0>();
    __syncthreads();
  }
  load(0);
  arrive();
  IssueScores<T, D>(s, q_at, keys_at(0));
  load(1);
  WgmmaWait<0>();
  Pin(s);
  softmax(s, 0);
  Pack<T>(p, s);
#pragma unroll 1
  for (int index = 1; index < tiles; ++index) {
    arrive();
    IssueScores<T, D>(s, q_at, keys_at(index));
    IssueValues<T, D>(o, p, values_at(index - 1));
    load(index + 1);
    WgmmaWait<1>();
    Pin(s);
    softmax(s, index);
    ComputedByNow(rows.weight[0] + rows.weight[1]);  // all of the softmax
    WgmmaWait<0>();
    Pin(o);
    Pin(p);
#pragma unroll
    for (int i = 0; i < D / 2; ++i) o[i] *= rows.fade[i / 2 % 2];
    Pack<T>(p, s);
  }
  arrive();
  IssueValues<T, D>(o, p, values_at(tiles - 1));
  WgmmaWait<0>();
  Pin(o);
  Pin(p);

#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float total = rows.weight[half];
    total += __shfl_xor_sync(0xFFFFFFFFu, total, 1);
    total += __shfl_xor_sync(0xFFFFFFFFu, total, 2);
    const int row = own + half * 8;
    if (row >= packed) continue;
    const float inverse = 1 / total;  // a row attends at least to itself
    T* to = out + (tile.first_row + row / group) * out_stride + (kv_head * group + row % group) * D;
#pragma unroll
    for (int j = 0; j < D / 8; ++j) {
      *reinterpret_cast<uint32_t*>(to + j * 8 + (lane % 4) * 2) =
          Pack2<T>(o[j * 4 + half * 2] * inverse, o[j * 4 + half * 2 + 1] * inverse);
    }
  }
#endif
}

template <typename T, int D>
cudaError_t Launch(const void* q, int64_t q_stride, const HeadShape& shape, const StepView& step,
                   const KvView& kv, void* out, int64_t out_stride, cudaStream_t stream) {
  using Shared = WgmmaShared<T, D>;
  const bool bytes = tensor::IsScaled(kv.key_dtype) || tensor::IsScaled(kv.value_dtype);
  const size_t shared = sizeof(Shared) - (bytes ? 0 : sizeof(typename Shared::Bytes));
  if (const cudaError_t error = AskForShared(WgmmaPrefillKernel<T, D>, shared); error != cudaSuccess)
    return error;
  const dim3 grid(static_cast<unsigned>(step.tile_count), static_cast<unsigned>(shape.kv_heads));
  WgmmaPrefillKernel<T, D><<<grid, kThreads, shared, stream>>>(static_cast<const T*>(q), q_stride, shape,
                                                               step, kv, static_cast<T*>(out), out_stride);
  return LaunchError();
}

}  // namespace

cudaError_t WgmmaPrefillAttention(const void* q, int64_t q_stride, DType dtype, const HeadShape& shape,
                                  const StepView& step, const KvView& kv, void* out, int64_t out_stride,
                                  cudaStream_t stream) {
  if (step.tile_count == 0) return cudaSuccess;
  const auto launch = [&](auto type) {
    using T = decltype(type);
    const auto sized = shape.head_dim == 64 ? &Launch<T, 64> : &Launch<T, 128>;
    return sized(q, q_stride, shape, step, kv, out, out_stride, stream);
  };
  return dtype == DType::kBF16 ? launch(__nv_bfloat16()) : launch(__half());
}

}  // namespace baton::kernels::cuda
