// Decode attention: one row per sequence over its paged KV, split over the keys (Flash-Decoding,
// https://crfm.stanford.edu/2023/10/12/flashdecoding.html) with the heads of a GQA group packed into the rows
// of the tensor cores' tile: the KV is read once for all of them.
//
// A block of threads takes one split of one row and KV head; each of its warps takes every fourth KV block of
// the split, with an online softmax (arXiv 1805.02867) of its own, and the warps' results are merged in their
// order. A second kernel merges the splits, in theirs. Which keys go where follows from the row's length
// alone.
#include <cmath>
#include <type_traits>

#include "engine/kernels/cuda/kv_bytes.cuh"
#include "engine/kernels/cuda/kv_tile.cuh"
#include "engine/kernels/cuda/launch_check.h"

namespace baton::kernels::cuda {
namespace {

constexpr int kWarps = 4;
constexpr int kGroupRows = 16;  // heads in one tile
constexpr float kLog2E = 1.4426950408889634f;

// The keys that a row attends to: [start, end).
struct Span {
  int64_t start, end;
};
__device__ Span SpanOf(int position, int64_t window) {
  const int64_t end = position + 1;
  return {window > 0 && end > window ? end - window : 0, end};
}

// Workspace: per (row, head) and split, head_dim sums, then the maximum (in units of log2), then the weight.
__device__ int64_t WorkspaceAt(int row, int heads, int head, int split_bucket, int split, int head_dim) {
  return ((static_cast<int64_t>(row) * heads + head) * split_bucket + split) * (head_dim + 2);
}

// Keys or values of one block: 16 bits each (kv_tile.cuh), or 8 (kv_bytes.cuh).
template <typename T, int D, bool kBytes>
struct TileOf {
  using Type = T[D * kBlockTokens];
};
template <typename T, int D>
struct TileOf<T, D, true> {
  using Type = ByteTile<D>;
};

template <typename T, int D, bool kKeyBytes, bool kValueBytes>
struct DecodeShared {
  // As many as fit where all is 16 bits, blocks that are on their way for each warp.
  static constexpr int kStages = kKeyBytes && kValueBytes ? 4 : 2;
  struct Stage {
    typename TileOf<T, D, kKeyBytes>::Type keys;
    typename TileOf<T, D, kValueBytes>::Type values;
  };
  union {
    Stage stages[kWarps][kStages];
    float sums[kWarps][kGroupRows][D];
  };
  float maxima[kWarps][kGroupRows];
  float weights[kWarps][kGroupRows];
};

// The even or the odd two of a register's four bytes, as a fragment takes them.
template <typename T>
__device__ uint32_t Widen(uint32_t bytes, int which, DType dtype, float low = 1, float high = 1) {
  return which % 2 == 0 ? WidenBytes<T, 0, 2>(bytes, dtype, low, high)
                        : WidenBytes<T, 1, 3>(bytes, dtype, low, high);
}

template <typename T, int D, bool kKeyBytes, bool kValueBytes>
__global__ void __launch_bounds__(kWarps* kWarp)
    DecodeKernel(const T* q, int64_t q_stride, HeadShape shape, StepView step, KvView kv, float* workspace,
                 T* out, int64_t out_stride) {
  extern __shared__ __align__(128) unsigned char raw[];
  using Shared = DecodeShared<T, D, kKeyBytes, kValueBytes>;
  constexpr int kStages = Shared::kStages;
  auto& shared = *reinterpret_cast<Shared*>(raw);
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  const int group = shape.heads / shape.kv_heads;
  const int tiles = (group + kGroupRows - 1) / kGroupRows;
  const int kv_head = static_cast<int>(blockIdx.y) / tiles;
  const int first_head = kv_head * group + static_cast<int>(blockIdx.y) % tiles * kGroupRows;
  const int heads = min(kGroupRows, (kv_head + 1) * group - first_head);
  const int index = static_cast<int>(blockIdx.z);
  const int row = step.decode_rows[index];
  const int position = step.positions[row];
  if (position < 0) return;  // padding
  const Span span = SpanOf(position, shape.window);
  const int splits = SplitCount(span.end - span.start);
  const int split = static_cast<int>(blockIdx.x);
  if (split >= splits) return;
  const int64_t split_tokens = SplitTokens(span.end - span.start);
  const int64_t begin = span.start + split * split_tokens;
  const int64_t end = min(begin + split_tokens, span.end);

  // Q as A fragments: rows are heads.
  uint32_t a[D / 16][4];
#pragma unroll
  for (int kk = 0; kk < D / 16; ++kk) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int head = lane / 4 + (i % 2) * 8;
      const int d = kk * 16 + (i / 2) * 8 + (lane % 4) * 2;
      a[kk][i] = head < heads
                     ? *reinterpret_cast<const uint32_t*>(q + row * q_stride + (first_head + head) * D + d)
                     : 0;
    }
  }

  const int32_t* blocks = step.blocks + step.row_blocks[row];
  const std::byte* keys_of_layer = kv.pool + kv.keys_at + kv_head * kv.key_head_bytes;
  const std::byte* values_of_layer = kv.pool + kv.values_at + kv_head * kv.value_head_bytes;
  const auto load = [&](int64_t block, int stage) {
    if (block * kBlockTokens < end) {
      const int64_t offset = blocks[block] * kv.block_bytes;
      auto& to = shared.stages[warp][stage];
      const int tokens = static_cast<int>(min(end - block * kBlockTokens, int64_t{kBlockTokens}));
      if constexpr (kKeyBytes) {
        LoadKeyBytes<D>(to.keys, keys_of_layer + offset, lane, kWarp);
      } else {
        LoadKeys<T, D>(to.keys, keys_of_layer + offset, kv.key_dtype, lane, kWarp);
      }
      if constexpr (kValueBytes) {
        LoadValueBytes<D>(to.values, values_of_layer + offset, tokens, lane, kWarp);
      } else {
        LoadValues<T, D>(to.values, values_of_layer + offset, kv.value_dtype, tokens, lane, kWarp);
      }
    }
    CommitCopies();
  };

  // Where the scales of values go: a probability times a scale may be less than a half can hold.
  constexpr bool kScaledProbabilities = kValueBytes && !std::is_same_v<T, __half>;
  float o[D / 8][4] = {};
  float maximum[2] = {-INFINITY, -INFINITY};  // of rows lane / 4 and lane / 4 + 8, in units of log2
  float weight[2] = {0, 0};                   // this lane's part
  const float scale = shape.scale * kLog2E;
  int stage = 0;
  const int64_t first_block = begin / kBlockTokens + warp;
#pragma unroll
  for (int ahead = 0; ahead < kStages - 1; ++ahead) load(first_block + ahead * kWarps, ahead);
  for (int64_t block = first_block; block * kBlockTokens < end;
       block += kWarps, stage = (stage + 1) % kStages) {
    load(block + (kStages - 1) * kWarps, (stage + kStages - 1) % kStages);
    WaitForCopies<kStages - 1>();
    __syncwarp();
    const auto& tile = shared.stages[warp][stage];
    // The place in the block of the token of s[n][2 half + i].
    const auto token_of = [&](int n, int i) {
      const int k = n * 8 + (lane % 4) * 2 + i;
      return kKeyBytes ? TokenAt(k) : k;
    };
    float s[2][4] = {};
    if constexpr (kKeyBytes) {
#pragma unroll
      for (int pair = 0; pair < D / 32; ++pair) {
        uint32_t b[4];
        KeyByteFragments<D>(b, tile.keys, pair, lane);
#pragma unroll
        for (int h = 0; h < 2; ++h) {
#pragma unroll
          for (int n = 0; n < 2; ++n) {
            Mma<T>(s[n], a[pair * 2 + h], Widen<T>(b[h * 2], n, kv.key_dtype),
                   Widen<T>(b[h * 2 + 1], n, kv.key_dtype));
          }
        }
      }
    } else {
#pragma unroll
      for (int kk = 0; kk < D / 16; ++kk) {
        uint32_t b[4];
        KeyFragments(b, tile.keys, kk, lane);
        Mma<T>(s[0], a[kk], b[0], b[1]);
        Mma<T>(s[1], a[kk], b[2], b[3]);
      }
    }
    const int64_t before = begin - block * kBlockTokens, behind = end - block * kBlockTokens;
    float value_scale[2][2] = {{1, 1}, {1, 1}};
    if constexpr (kValueBytes) {
#pragma unroll
      for (int n = 0; n < 2; ++n) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const int token = token_of(n, i);
          value_scale[n][i] = token < behind ? tile.values.scales[token] : 0;  // beyond the end it may be any
        }
      }
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float best = -INFINITY;
#pragma unroll
      for (int n = 0; n < 2; ++n) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const int token = token_of(n, i);
          float& score = s[n][half * 2 + i];
          if constexpr (kKeyBytes) score *= tile.keys.scales[token];
          score = token >= before && token < behind ? score * scale : -INFINITY;
          best = fmaxf(best, score);
        }
      }
      best = fmaxf(best, __shfl_xor_sync(0xFFFFFFFFu, best, 1));
      best = fmaxf(best, __shfl_xor_sync(0xFFFFFFFFu, best, 2));
      const float next = fmaxf(maximum[half], best);
      const float base = next == -INFINITY ? 0 : next;  // no key yet
      const float fade = Exp2(maximum[half] - base);
      maximum[half] = next;
      weight[half] *= fade;
#pragma unroll
      for (int j = 0; j < D / 8; ++j) {
        o[j][half * 2] *= fade;
        o[j][half * 2 + 1] *= fade;
      }
#pragma unroll
      for (int n = 0; n < 2; ++n) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          float& score = s[n][half * 2 + i];
          score = Exp2(score - base);
          weight[half] += score;
          if constexpr (kScaledProbabilities) score *= value_scale[n][i];
        }
      }
    }
    const uint32_t p[4] = {Pack2<T>(s[0][0], s[0][1]), Pack2<T>(s[0][2], s[0][3]), Pack2<T>(s[1][0], s[1][1]),
                           Pack2<T>(s[1][2], s[1][3])};
    if constexpr (kValueBytes) {
#pragma unroll
      for (int pair = 0; pair < D / 32; ++pair) {
        uint32_t b[4];
        ValueByteFragments<D, kKeyBytes>(b, tile.values, pair, lane);
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          const uint32_t low = b[j / 2 * 2], high = b[j / 2 * 2 + 1];
          if constexpr (kScaledProbabilities) {
            Mma<T>(o[pair * 4 + j], p, Widen<T>(low, j, kv.value_dtype), Widen<T>(high, j, kv.value_dtype));
          } else {
            Mma<T>(o[pair * 4 + j], p, Widen<T>(low, j, kv.value_dtype, value_scale[0][0], value_scale[0][1]),
                   Widen<T>(high, j, kv.value_dtype, value_scale[1][0], value_scale[1][1]));
          }
        }
      }
    } else {
#pragma unroll
      for (int jj = 0; jj < D / 16; ++jj) {
        uint32_t b[4];
        ValueFragments<D, kKeyBytes>(b, tile.values, jj, lane);
        Mma<T>(o[2 * jj], p, b[0], b[1]);
        Mma<T>(o[2 * jj + 1], p, b[2], b[3]);
      }
    }
    __syncwarp();  // the stage is free for the next load
  }

  // The warps' results, through the memory that the stages took.
  WaitForCopies<0>();
  __syncthreads();
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int head = lane / 4 + half * 8;
    weight[half] += __shfl_xor_sync(0xFFFFFFFFu, weight[half], 1);
    weight[half] += __shfl_xor_sync(0xFFFFFFFFu, weight[half], 2);
    if (lane % 4 == 0) {
      shared.maxima[warp][head] = maximum[half];
      shared.weights[warp][head] = weight[half];
    }
#pragma unroll
    for (int j = 0; j < D / 8; ++j) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int column = (lane % 4) * 2 + i;
        shared.sums[warp][head][kValueBytes ? j / 2 * 16 + column * 2 + j % 2 : j * 8 + column] =
            o[j][half * 2 + i];
      }
    }
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < heads * D; i += kWarps * kWarp) {
    const int head = i / D, d = i % D;
    float top = -INFINITY;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) top = fmaxf(top, shared.maxima[w][head]);
    float sum = 0, total = 0;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
      const float fade = Exp2(shared.maxima[w][head] - top);  // top is finite: a split has at least one key
      sum += shared.sums[w][head][d] * fade;
      total += shared.weights[w][head] * fade;
    }
    if (splits == 1) {
      out[row * out_stride + (first_head + head) * D + d] = FromFloat<T>(sum / total);
    } else {
      float* to = workspace + WorkspaceAt(index, shape.heads, first_head + head, step.split_bucket, split, D);
      to[d] = sum;
      if (d == 0) to[D] = top;
      if (d == 0) to[D + 1] = total;
    }
  }
}

template <typename T, int D>
__global__ void __launch_bounds__(D)
    MergeKernel(HeadShape shape, StepView step, const float* workspace, T* out, int64_t out_stride) {
  const int head = static_cast<int>(blockIdx.x), index = static_cast<int>(blockIdx.y);
  const int row = step.decode_rows[index];
  const int position = step.positions[row];
  if (position < 0) return;
  const Span span = SpanOf(position, shape.window);
  const int splits = SplitCount(span.end - span.start);
  if (splits == 1) return;  // the result is there already
  const float* from = workspace + WorkspaceAt(index, shape.heads, head, step.split_bucket, 0, D);
  float top = -INFINITY;
  for (int s = 0; s < splits; ++s) top = fmaxf(top, from[s * (D + 2) + D]);
  float sum = 0, total = 0;
  const int d = static_cast<int>(threadIdx.x);
  for (int s = 0; s < splits; ++s) {
    const float fade = Exp2(from[s * (D + 2) + D] - top);
    sum += from[s * (D + 2) + d] * fade;
    total += from[s * (D + 2) + D + 1] * fade;
  }
  out[row * out_stride + head * D + d] = FromFloat<T>(sum / total);
}

template <typename T, int D>
void Launch(const void* q, int64_t q_stride, const HeadShape& shape, const StepView& step, const KvView& kv,
            float* workspace, void* out, int64_t out_stride, cudaStream_t stream) {
  const int group = shape.heads / shape.kv_heads;
  const int tiles = (group + kGroupRows - 1) / kGroupRows;
  const dim3 grid(static_cast<unsigned>(step.split_bucket), static_cast<unsigned>(shape.kv_heads * tiles),
                  static_cast<unsigned>(step.decode_row_count));
  const auto launch = [&](auto key_bytes, auto value_bytes) {
    constexpr size_t kShared = sizeof(DecodeShared<T, D, key_bytes(), value_bytes()>);
    const auto kernel = &DecodeKernel<T, D, key_bytes(), value_bytes()>;
    AllowShared(kernel, kShared);
    kernel<<<grid, kWarps * kWarp, kShared, stream>>>(static_cast<const T*>(q), q_stride, shape, step, kv,
                                                      workspace, static_cast<T*>(out), out_stride);
    CheckLaunch("decode attention");
  };
  const bool key_bytes = tensor::IsScaled(kv.key_dtype), value_bytes = tensor::IsScaled(kv.value_dtype);
  if (key_bytes) {
    value_bytes ? launch(std::true_type(), std::true_type()) : launch(std::true_type(), std::false_type());
  } else {
    value_bytes ? launch(std::false_type(), std::true_type()) : launch(std::false_type(), std::false_type());
  }
  if (step.split_bucket == 1) return;
  const dim3 merge(static_cast<unsigned>(shape.heads), static_cast<unsigned>(step.decode_row_count));
  MergeKernel<T, D><<<merge, D, 0, stream>>>(shape, step, workspace, static_cast<T*>(out), out_stride);
  CheckLaunch("merging splits");
}

}  // namespace

bool AttentionSupports(int head_dim) { return head_dim == 64 || head_dim == 128; }

int64_t DecodeWorkspace(int rows, int heads, int head_dim, int split_bucket) {
  return split_bucket == 1 ? 0 : int64_t{rows} * heads * split_bucket * (head_dim + 2);
}

void DecodeAttention(const void* q, int64_t q_stride, DType dtype, const HeadShape& shape,
                     const StepView& step, const KvView& kv, float* workspace, void* out, int64_t out_stride,
                     cudaStream_t stream) {
  if (step.decode_row_count == 0) return;
  const auto launch = [&](auto type) {
    using T = decltype(type);
    const auto sized = shape.head_dim == 64 ? &Launch<T, 64> : &Launch<T, 128>;
    sized(q, q_stride, shape, step, kv, workspace, out, out_stride, stream);
  };
  dtype == DType::kBF16 ? launch(__nv_bfloat16()) : launch(__half());
}

}  // namespace baton::kernels::cuda
