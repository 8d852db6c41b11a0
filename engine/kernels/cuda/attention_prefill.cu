// Prefill attention over paged KV, after FlashAttention-2 (arXiv 2307.08691): a block of threads takes a tile
// of queries of one sequence and KV head and walks the keys in tiles, the next one on its way into shared
// memory while this one is computed with; scores live in registers, an online softmax in float32.
//
// The rows of a query tile are pairs of (token, head of the GQA group), token by token: KV is loaded once for
// the whole group, and few tokens still fill a tile. Key tiles begin at multiples of their size from the
// sequence's start, so a row's bits depend on its sequence alone. Four warps of 32 rows each; a warp's rows
// are two tiles of the tensor cores, so that each fragment of K and V that it loads is used twice.
#include <cmath>

#include "engine/kernels/cuda/kv_tile.cuh"
#include "engine/kernels/cuda/launch_check.h"

namespace baton::kernels::cuda {
namespace {

constexpr int kWarps = 4;
constexpr int kThreads = kWarps * kWarp;
constexpr int kStages = 2;
constexpr int kRowTiles = kTileRows / (kWarps * 16);  // of 16 rows, per warp
constexpr float kLog2E = 1.4426950408889634f;

// Keys in one tile: bounded by registers, which hold a score for each.
template <int D>
inline constexpr int kTileKeys = D == 64 ? 64 : 32;

template <typename T, int D>
struct PrefillShared {
  static constexpr int kBlocks = kTileKeys<D> / kBlockTokens;
  T q[kTileRows * D];  // chunk c of row r stands at c ^ (r % 8)
  struct Stage {
    T keys[kBlocks][D * kBlockTokens];
    T values[kBlocks][kBlockTokens * D];
  } stages[kStages];
};

// The softmax so far of a lane's two rows of a tile of the tensor cores, `lane / 4` and + 8.
struct Rows {
  float maximum[2] = {-INFINITY, -INFINITY};  // of the scores, before `scale`
  float weight[2] = {0, 0};                   // this lane's part
};

// Keys that a row at `position` does not see get no weight. s[4 n + 2 half], ...: its scores of two keys.
// Apart from Softmax, because few tiles need it.
template <int kKeys>
__device__ void Mask(float (&s)[kKeys / 8][4], int half, int position, int first_key, int64_t window) {
  const int first = window > 0 && position >= window ? static_cast<int>(position - window + 1) : 0;
#pragma unroll
  for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int key = first_key + n * 8 + i;
      if (key < first || key > position) s[n][half * 2 + i] = -INFINITY;
    }
  }
}

// Scores become probabilities, up to the common factor: 2^(scale s), with `scale` > 0 applied by the same
// instruction that subtracts the maximum. `o`, what the tiles before have given, fades with it.
template <int kKeys, int D>
__device__ void Softmax(float (&s)[kKeys / 8][4], float (&o)[D / 8][4], Rows& rows, float scale) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float best = -INFINITY;
#pragma unroll
    for (int n = 0; n < kKeys / 8; ++n) best = fmaxf(best, fmaxf(s[n][half * 2], s[n][half * 2 + 1]));
    best = fmaxf(best, __shfl_xor_sync(0xFFFFFFFFu, best, 1));
    best = fmaxf(best, __shfl_xor_sync(0xFFFFFFFFu, best, 2));
    const float next = fmaxf(rows.maximum[half], best);
    const float base = next == -INFINITY ? 0 : __fmul_rn(next, scale);  // nothing seen yet, under a window
    // Rounded as the base is: exactly 1 for a tile of which the row sees nothing.
    const float fade = Exp2(__fmul_rn(rows.maximum[half], scale) - base);
    rows.maximum[half] = next;
    rows.weight[half] *= fade;
#pragma unroll
    for (int j = 0; j < D / 8; ++j) {
      o[j][half * 2] *= fade;
      o[j][half * 2 + 1] *= fade;
    }
#pragma unroll
    for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        float& score = s[n][half * 2 + i];
        score = Exp2(fmaf(score, scale, -base));
        rows.weight[half] += score;
      }
    }
  }
}

template <typename T, int D>
__global__ void __launch_bounds__(kThreads)
    PrefillKernel(const T* q, int64_t q_stride, HeadShape shape, StepView step, KvView kv, T* out,
                  int64_t out_stride) {
  using Shared = PrefillShared<T, D>;
  constexpr int kKeys = kTileKeys<D>;
  constexpr int kBlocks = Shared::kBlocks;
  extern __shared__ __align__(128) unsigned char raw[];
  auto& shared = *reinterpret_cast<Shared*>(raw);
  const int thread = static_cast<int>(threadIdx.x);
  const int warp = thread / kWarp, lane = thread % kWarp;
  const PrefillTile tile = step.tiles[blockIdx.x];
  const int kv_head = static_cast<int>(blockIdx.y);
  const int group = shape.heads / shape.kv_heads;
  const int packed = tile.rows * group;  // rows of the sequence, heads counted
  const int last = min(tile.first + kTileRows, packed) - 1;
  const int first_position = tile.first_position + tile.first / group;
  const int last_position = tile.first_position + last / group;

  for (int i = thread; i < kTileRows * (D / 8); i += kThreads) {
    const int r = i / (D / 8), chunk = i % (D / 8);
    const int p = min(tile.first + r, packed - 1);
    const T* from =
        q + (tile.first_row + p / group) * q_stride + (kv_head * group + p % group) * D + chunk * 8;
    CopyAsync16(shared.q + r * D + (chunk ^ (r & 7)) * 8, from, tile.first + r < packed);
  }

  const int start = shape.window > 0 && first_position >= shape.window
                        ? static_cast<int>(first_position - shape.window + 1)
                        : 0;
  const int begin = start / kKeys * kKeys;
  const int tiles = (last_position - begin) / kKeys + 1;
  const int32_t* blocks = step.blocks + tile.first_block;
  const std::byte* keys_of_layer = kv.pool + kv.keys_at + kv_head * kv.key_head_bytes;
  const std::byte* values_of_layer = kv.pool + kv.values_at + kv_head * kv.value_head_bytes;
  const auto load = [&](int index) {
    if (index < tiles) {
      auto& stage = shared.stages[index % kStages];
#pragma unroll
      for (int b = 0; b < kBlocks; ++b) {
        const int first = begin + index * kKeys + b * kBlockTokens;
        // A block beyond the last position is none of the sequence's: its scores are masked, whatever its
        // keys, and its values are zeros.
        const int tokens = last_position + 1 - first;
        const int64_t offset = tokens > 0 ? blocks[first / kBlockTokens] * kv.block_bytes : 0;
        if (tokens > 0) LoadKeys<T, D>(stage.keys[b], keys_of_layer + offset, kv.key_dtype, thread, kThreads);
        LoadValues<T, D>(stage.values[b], values_of_layer + offset, kv.value_dtype, tokens, thread, kThreads);
      }
    }
    CommitCopies();
  };

  // This lane's rows: 16 r + lane / 4 and + 8 within the warp's.
  Rows rows[kRowTiles];
  float o[kRowTiles][D / 8][4] = {};
  const float scale = shape.scale * kLog2E;

  load(0);
  for (int index = 0; index < tiles; ++index) {
    load(index + 1);
    WaitForCopies<1>();
    __syncthreads();
    const auto& stage = shared.stages[index % kStages];

    float s[kRowTiles][kKeys / 8][4] = {};
#pragma unroll
    for (int kk = 0; kk < D / 16; ++kk) {
      uint32_t a[kRowTiles][4];
#pragma unroll
      for (int r = 0; r < kRowTiles; ++r) {
        const int row = (warp * kRowTiles + r) * 16 + (lane / 8 % 2) * 8 + lane % 8;
        const int chunk = (2 * kk + lane / 16) ^ (row & 7);
        LoadMatrices(a[r], shared.q + row * D + chunk * 8);
      }
#pragma unroll
      for (int b = 0; b < kBlocks; ++b) {
        uint32_t k[4];
        KeyFragments(k, stage.keys[b], kk, lane);
#pragma unroll
        for (int r = 0; r < kRowTiles; ++r) {
          Mma<T>(s[r][2 * b], a[r], k[0], k[1]);
          Mma<T>(s[r][2 * b + 1], a[r], k[2], k[3]);
        }
      }
    }

    const int first_key = begin + index * kKeys;
    const bool masked = first_key + kKeys - 1 > first_position ||
                        (shape.window > 0 && first_key <= last_position - shape.window);
    if (masked) {
#pragma unroll
      for (int r = 0; r < kRowTiles; ++r) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          // Positions are computed here, as registers that hold them would be short all the way.
          const int row = tile.first + (warp * kRowTiles + r) * 16 + half * 8 + lane / 4;
          const int position = tile.first_position + min(row, packed - 1) / group;
          Mask<kKeys>(s[r], half, position, first_key + (lane % 4) * 2, shape.window);
        }
      }
    }
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r) Softmax<kKeys, D>(s[r], o[r], rows[r], scale);

#pragma unroll
    for (int b = 0; b < kBlocks; ++b) {
      uint32_t p[kRowTiles][4];
#pragma unroll
      for (int r = 0; r < kRowTiles; ++r) {
        p[r][0] = Pack2<T>(s[r][2 * b][0], s[r][2 * b][1]);
        p[r][1] = Pack2<T>(s[r][2 * b][2], s[r][2 * b][3]);
        p[r][2] = Pack2<T>(s[r][2 * b + 1][0], s[r][2 * b + 1][1]);
        p[r][3] = Pack2<T>(s[r][2 * b + 1][2], s[r][2 * b + 1][3]);
      }
#pragma unroll
      for (int jj = 0; jj < D / 16; ++jj) {
        uint32_t v[4];
        ValueFragments<D>(v, stage.values[b], jj, lane);
#pragma unroll
        for (int r = 0; r < kRowTiles; ++r) {
          Mma<T>(o[r][2 * jj], p[r], v[0], v[1]);
          Mma<T>(o[r][2 * jj + 1], p[r], v[2], v[3]);
        }
      }
    }
    __syncthreads();  // the stage is free for the load after the next
  }

#pragma unroll
  for (int r = 0; r < kRowTiles; ++r) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float total = rows[r].weight[half];
      total += __shfl_xor_sync(0xFFFFFFFFu, total, 1);
      total += __shfl_xor_sync(0xFFFFFFFFu, total, 2);
      const int row = tile.first + (warp * kRowTiles + r) * 16 + half * 8 + lane / 4;
      if (row >= packed) continue;
      const float inverse = 1 / total;  // a row attends at least to itself
      T* to = out + (tile.first_row + row / group) * out_stride + (kv_head * group + row % group) * D;
#pragma unroll
      for (int j = 0; j < D / 8; ++j) {
        *reinterpret_cast<uint32_t*>(to + j * 8 + (lane % 4) * 2) =
            Pack2<T>(o[r][j][half * 2] * inverse, o[r][j][half * 2 + 1] * inverse);
      }
    }
  }
}

template <typename T, int D>
void Launch(const void* q, int64_t q_stride, const HeadShape& shape, const StepView& step, const KvView& kv,
            void* out, int64_t out_stride, cudaStream_t stream) {
  constexpr size_t kShared = sizeof(PrefillShared<T, D>);
  AllowShared(PrefillKernel<T, D>, kShared);
  const dim3 grid(static_cast<unsigned>(step.tile_count), static_cast<unsigned>(shape.kv_heads));
  PrefillKernel<T, D><<<grid, kThreads, kShared, stream>>>(static_cast<const T*>(q), q_stride, shape, step,
                                                           kv, static_cast<T*>(out), out_stride);
  CheckLaunch("prefill attention");
}

}  // namespace

void PrefillAttention(const void* q, int64_t q_stride, DType dtype, const HeadShape& shape,
                      const StepView& step, const KvView& kv, void* out, int64_t out_stride,
                      cudaStream_t stream) {
  if (step.tile_count == 0) return;
  const auto launch = [&](auto type) {
    using T = decltype(type);
    const auto sized = shape.head_dim == 64 ? &Launch<T, 64> : &Launch<T, 128>;
    sized(q, q_stride, shape, step, kv, out, out_stride, stream);
  };
  dtype == DType::kBF16 ? launch(__nv_bfloat16()) : launch(__half());
}

}  // namespace baton::kernels::cuda
