// Decode attention: one row per sequence over its paged KV, split over the keys (Flash-Decoding,
// https://crfm.stanford.edu/2023/10/12/flashdecoding.html) with the heads of a GQA group packed into the rows
// of the tensor cores' tile: the KV is read once for all of them.
//
// A block of threads takes one split of one row and KV head; each of its warps takes every fourth KV block of
// the split, with an online softmax (arXiv 1805.02867) of its own, and the warps' results are merged in their
// order. A second kernel merges the splits, in theirs. Which keys go where follows from the row's length
// alone.
#include <cmath>

#include "common/kernels/cuda/kv_tile.cuh"
#include "common/kernels/cuda/launch_check.h"

namespace baton::kernels::cuda {
namespace {

constexpr int kWarps = 4;
constexpr int kStages = 2;
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

template <typename T, int D>
struct DecodeShared {
  struct Stage {
    T keys[D * kBlockTokens];
    T values[kBlockTokens * D];
  };
  union {
    Stage stages[kWarps][kStages];
    float sums[kWarps][kGroupRows][D];
  };
  float maxima[kWarps][kGroupRows];
  float weights[kWarps][kGroupRows];
};

template <typename T, int D>
__global__ void __launch_bounds__(kWarps* kWarp)
    DecodeKernel(const T* q, int64_t q_stride, HeadShape shape, StepView step, KvView kv, float* workspace, T* out,
                 int64_t out_stride) {
  extern __shared__ __align__(128) unsigned char raw[];
  auto& shared = *reinterpret_cast<DecodeShared<T, D>*>(raw);
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
      LoadKeys<T, D>(to.keys, keys_of_layer + offset, kv.key_dtype, lane, kWarp);
      LoadValues<T, D>(to.values, values_of_layer + offset, kv.value_dtype,
                       static_cast<int>(end - block * kBlockTokens), lane, kWarp);
    }
    CommitCopies();
  };

  float o[D / 8][4] = {};
  float maximum[2] = {-INFINITY, -INFINITY};  // of rows lane / 4 and lane / 4 + 8, in units of log2
  float weight[2] = {0, 0};                   // this lane's part
  const float scale = shape.scale * kLog2E;
  int stage = 0;
  const int64_t first_block = begin / kBlockTokens + warp;
  load(first_block, stage);
  for (int64_t block = first_block; block * kBlockTokens < end; block += kWarps, stage ^= 1) {
    load(block + kWarps, stage ^ 1);
    WaitForCopies<1>();
    __syncwarp();
    const auto& tile = shared.stages[warp][stage];
    float s[2][4] = {};
#pragma unroll
    for (int kk = 0; kk < D / 16; ++kk) {
      uint32_t b[4];
      KeyFragments(b, tile.keys, kk, lane);
      Mma<T>(s[0], a[kk], b[0], b[1]);
      Mma<T>(s[1], a[kk], b[2], b[3]);
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float best = -INFINITY;
#pragma unroll
      for (int n = 0; n < 2; ++n) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const int64_t token = block * kBlockTokens + n * 8 + (lane % 4) * 2 + i;
          float& score = s[n][half * 2 + i];
          score = token >= begin && token < end ? score * scale : -INFINITY;
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
        }
      }
    }
    const uint32_t p[4] = {Pack2<T>(s[0][0], s[0][1]), Pack2<T>(s[0][2], s[0][3]), Pack2<T>(s[1][0], s[1][1]),
                           Pack2<T>(s[1][2], s[1][3])};
#pragma unroll
    for (int jj = 0; jj < D / 16; ++jj) {
      uint32_t b[4];
      ValueFragments<D>(b, tile.values, jj, lane);
      Mma<T>(o[2 * jj], p, b[0], b[1]);
      Mma<T>(o[2 * jj + 1], p, b[2], b[3]);
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
      shared.sums[warp][head][j * 8 + (lane % 4) * 2] = o[j][half * 2];
      shared.sums[warp][head][j * 8 + (lane % 4) * 2 + 1] = o[j][half * 2 + 1];
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
  constexpr size_t kShared = sizeof(DecodeShared<T, D>);
  AllowShared(DecodeKernel<T, D>, kShared);
  const dim3 grid(static_cast<unsigned>(step.split_bucket), static_cast<unsigned>(shape.kv_heads * tiles),
                  static_cast<unsigned>(step.decode_row_count));
  DecodeKernel<T, D><<<grid, kWarps * kWarp, kShared, stream>>>(static_cast<const T*>(q), q_stride, shape, step, kv,
                                                                workspace, static_cast<T*>(out), out_stride);
  CheckLaunch("decode attention");
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

void DecodeAttention(const void* q, int64_t q_stride, DType dtype, const HeadShape& shape, const StepView& step,
                     const KvView& kv, float* workspace, void* out, int64_t out_stride, cudaStream_t stream) {
  if (step.decode_row_count == 0) return;
  const auto launch = [&](auto type) {
    using T = decltype(type);
    const auto sized = shape.head_dim == 64 ? &Launch<T, 64> : &Launch<T, 128>;
    sized(q, q_stride, shape, step, kv, workspace, out, out_stride, stream);
  };
  dtype == DType::kBF16 ? launch(__nv_bfloat16()) : launch(__half());
}

}  // namespace baton::kernels::cuda
