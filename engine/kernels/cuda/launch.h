// Launchers of the device code: plain functions over raw device pointers. Each returns after the launch;
// failures of a launch are our own and end the process. Called by CudaKernels alone.
//
// T, the type of activations, is told by `dtype`: bf16 or f16. Strides are in values.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "common/tensor/dtype.h"
#include "engine/kernels/cuda/draw_table.h"
#include "engine/kernels/cuda/tiling.h"

namespace baton::kernels::cuda {

using tensor::DType;

// A step's table on the device (StepTable in plan.h).
struct StepView {
  const int32_t* tokens = nullptr;
  const int32_t* positions = nullptr;
  const int32_t* row_blocks = nullptr;
  const int32_t* decode_rows = nullptr;
  const PrefillTile* tiles = nullptr;
  const int32_t* blocks = nullptr;
  const int32_t* kept = nullptr;  // logit rows
  int rows = 0;
  int decode_row_count = 0;
  int tile_count = 0;
  int split_bucket = 1;
};

// One layer of the KV pool, as kv_layout.h has it: byte offsets from a block's start.
struct KvView {
  std::byte* pool = nullptr;
  int64_t block_bytes = 0;
  int64_t keys_at = 0;  // of this layer, head 0
  int64_t values_at = 0;
  int64_t key_head_bytes = 0;
  int64_t value_head_bytes = 0;
  DType key_dtype = DType::kBF16;
  DType value_dtype = DType::kBF16;
};

struct HeadShape {
  int heads = 0;
  int kv_heads = 0;
  int head_dim = 0;
  float scale = 0;
  int64_t window = 0;
};

// cudaSuccess if this build has code for the current GPU; otherwise why not.
cudaError_t CodeForGpu();

// out[r] = float32 of table[id - first], or zeros where it has no such row. table [table_rows, cols] of
// `dtype`. id: tokens[r], or where that is a TakenWord, what `drawn` has for it.
void Embed(const void* table, DType dtype, int64_t table_rows, const int32_t* tokens, const int32_t* drawn,
           int64_t first, int rows, int cols, float* out, int64_t out_stride, cudaStream_t stream);

// x += y unless y is null; out = x / sqrt(mean(x^2) + eps) * weight.
void RmsNorm(float* x, int64_t x_stride, const void* y, int64_t y_stride, const float* weight, float eps,
             int rows, int cols, void* out, int64_t out_stride, DType dtype, cudaStream_t stream);

// matrix[r][c] += bias[c].
void AddBias(void* matrix, int64_t stride, const float* bias, int rows, int cols, DType dtype,
             cudaStream_t stream);

// out = silu(gate) * up, of gate_up [rows, 2 width].
void SwiGlu(const void* gate_up, int64_t in_stride, int rows, int width, void* out, int64_t out_stride,
            DType dtype, cudaStream_t stream);

// to[i] = from[rows[i]]; rows of `row_bytes`, a multiple of 4, strides in bytes.
void GatherRows(const void* from, int64_t from_stride, const int32_t* rows, int count, int row_bytes,
                void* to, int64_t to_stride, cudaStream_t stream);

// qkv: Q and K normed (unless the weights are null) and rotated, Q in place; K and V into the blocks.
void RotateAndStore(void* qkv, int64_t stride, DType dtype, const HeadShape& shape, const float* q_norm,
                    const float* k_norm, float eps, const float* cos, const float* sin, const StepView& step,
                    const KvView& kv, cudaStream_t stream);

// The largest vocabulary that Draw takes.
inline constexpr int kMaxSampledVocabulary = 1 << 20;
// Device memory that a draw takes beside its row.
inline constexpr int64_t kDrawStateBytes = 24608;

// Sets the initial counts of the slots in draws.seen: counts [slots, vocabulary].
void CountSeen(const DrawView& draws, int vocabulary, uint32_t* counts, cudaStream_t stream);

// tokens[i]: drawn as draws.rows[i] says from its row of logits, which is changed as it says and in which
// slot it is counted; -1, and counted nowhere, if no logit is a number above -inf. `states` has
// kDrawStateBytes for each draw, zeros before the first.
void Draw(float* logits, int64_t stride, int vocabulary, const DrawView& draws, uint32_t* counts,
          int32_t* tokens, std::byte* states, cudaStream_t stream);

// True if the attention kernels are built for it.
bool AttentionSupports(int head_dim);

// Floats of workspace that DecodeAttention needs.
int64_t DecodeWorkspace(int rows, int heads, int head_dim, int split_bucket);

// Rows in step.decode_rows, one token each. q and out [rows, heads * head_dim].
void DecodeAttention(const void* q, int64_t q_stride, DType dtype, const HeadShape& shape,
                     const StepView& step, const KvView& kv, float* workspace, void* out, int64_t out_stride,
                     cudaStream_t stream);

// Rows in step.tiles.
void PrefillAttention(const void* q, int64_t q_stride, DType dtype, const HeadShape& shape,
                      const StepView& step, const KvView& kv, void* out, int64_t out_stride,
                      cudaStream_t stream);

// The same by wgmma, for sm_90a alone (elsewhere nothing is written). Returns what the launch said.
cudaError_t WgmmaPrefillAttention(const void* q, int64_t q_stride, DType dtype, const HeadShape& shape,
                                  const StepView& step, const KvView& kv, void* out, int64_t out_stride,
                                  cudaStream_t stream);

}  // namespace baton::kernels::cuda
