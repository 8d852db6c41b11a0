// Kernels: the operations of a forward pass, at the granularity where a backend wants to fuse. One level
// deep: the implementations are `reference` (slow, obvious, the judge), `cpu` and, on GPUs, `cuda`.
//
// Contract of `reference` and `cpu`: the bits of a row's result are a function of that row (and of the KV
// that it attends to) alone, never of the number of rows, their order, the chunking, the thread count or the
// blocks that hold the KV. All reductions run in a fixed order. `cuda` keeps this for all operations except
// matrix products, whose algorithm cuBLASLt chooses by shape: there, rows are equal within a tolerance.
//
// Activations are row-major matrices in the backend's own precision and memory, handled through Matrix; on
// CPU they are float32 in host memory. So are vectors (spans of float here): place them with Values. Weights
// and KV are opaque to callers: a quantized weight or a packed block is another PackedMatrix or another
// KvLayout, not another operation. A backend may run behind the calls, in their order (a GPU's stream);
// Memory::Download waits for it. Called from the engine thread only.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "common/base/check.h"
#include "common/base/ids.h"
#include "common/tensor/dtype.h"
#include "engine/device/core_share.h"
#include "engine/device/memory.h"
#include "engine/kernels/device_sampler.h"
#include "engine/kernels/experts.h"
#include "engine/kernels/matrix.h"
#include "engine/kernels/weight_view.h"
#include "engine/kv/store/kv_store.h"

namespace baton::kernels {

// A constant vector in a backend's memory: norms, biases, tables of angles.
class Values {
 public:
  Values() = default;
  // Keeps `values` where they are if the host may look into `memory`, else copies them there.
  static absl::StatusOr<Values> Place(std::vector<float> values, device::Memory& memory);

  std::span<const float> view() const { return view_; }
  bool empty() const { return view_.empty(); }
  int64_t bytes() const { return static_cast<int64_t>(view_.size_bytes()); }

 private:
  std::vector<float> host_;
  device::Memory::Buffer device_;
  std::span<const float> view_;  // of one of them
};

// A weight in the form that the backend's kernels want. Made once, at load.
class PackedMatrix {
 public:
  virtual ~PackedMatrix() = default;
  int64_t rows() const { return rows_; }  // output features
  int64_t cols() const { return cols_; }  // input features
  virtual int64_t bytes() const = 0;
  // True if its products add up integers, exactly: Kernels::MatMulSum then has the same bits whatever the
  // number of ranks.
  virtual bool exact_sums() const { return false; }
  // The bytes that its products read, whole and the same for equal weights; empty if they have no place, or
  // the backend can't say: then it can't place them, either.
  virtual std::span<const std::byte> image() const { return {}; }
  // From now on products read them there: an equal image, aligned to 64 bytes, which stays as long as they
  // do. Empty: nowhere, and the memory is given back. The kernels' thread.
  virtual void Place(std::span<const std::byte> image) {}
  // A matrix of `rows` rows, and otherwise of this one's form, whose bytes have no place yet; null if the
  // backend can't place any.
  virtual std::unique_ptr<PackedMatrix> Unplaced(int64_t rows) const { return nullptr; }

 protected:
  PackedMatrix(int64_t rows, int64_t cols) : rows_(rows), cols_(cols) {}

 private:
  int64_t rows_;
  int64_t cols_;
};

// Rotary position embedding (arXiv 2104.09864), rotate-half form as in Hugging Face transformers: cosine and
// sine of position * inverse_frequency, already scaled, for positions [0, context), [context][half_dim] each.
// The first 2 * half_dim values of a head are rotated (all of them, but for Glm4Moe).
struct RopeTable {
  std::span<const float> cos;
  std::span<const float> sin;
  int half_dim = 0;
};

// One sequence's rows within a batch.
struct SequenceRows {
  int64_t first_row = 0;
  int64_t rows = 0;
  // Position of the first row: KV of positions [0, first_position) is in the blocks already.
  int64_t first_position = 0;
  // Blocks of the whole sequence, enough for first_position + rows tokens.
  std::span<const BlockId> blocks;
};

struct AttentionShape {
  int heads = 0;
  int kv_heads = 0;    // divides heads
  int head_dim = 0;    // of Q, K, V and the output; KV is kept with kv::StoredHeadDim of it
  float scale = 0;     // usually 1 / sqrt(head_dim)
  int64_t window = 0;  // attend to the last `window` positions, self included; 0: to all
  // [heads], or empty: a score that joins each softmax of a head, without a key or a value (gpt-oss).
  std::span<const float> sinks = {};
};

// A row whose token the host does not know yet: what draw number `draw` of the sampler's last Launch gives.
struct TakenToken {
  int32_t row = 0;
  int32_t draw = 0;
};

// The rows of one step: of several sequences, stacked.
struct StepRows {
  std::span<const TokenId> tokens;           // [rows]
  std::span<const SequenceRows> sequences;   // cover all rows, in order
  std::span<const int64_t> logit_rows = {};  // rows whose logits are wanted, ascending
  // Rows whose token is one that the step in flight draws; their places in `tokens` say nothing. Ascending.
  std::span<const TakenToken> taken = {};

  // The model fills these in: what a backend may prepare before the first operation.
  int group = 1;  // query heads per KV head
  int heads = 0;  // query heads of a row, and values of each: what Attention will get
  int head_dim = 0;
  // All rows are wanted, one of each sequence or a few (verify_rows.h): a decode worker's steady state.
  bool decode = false;
};

class Collective;

class Kernels {
 public:
  virtual ~Kernels() = default;

  // Where activations, vectors and KV have to be.
  virtual device::Memory& memory() { return device::HostMemory(); }
  // Precision of activations, except for the residual stream (x of AddRmsNorm, out of Embed) and logits,
  // which are float32. Known once the first weight is packed.
  virtual tensor::DType activation_dtype() const { return tensor::DType::kF32; }
  // The precision of KV that fits the matrices packed so far, if nobody asks for another one.
  virtual tensor::DType kv_dtype() const { return activation_dtype(); }

  // Says if RotateAndStore and Attention take heads of `head_dim` values whose KV has this layout.
  // INVALID_ARGUMENT says what they do take.
  virtual absl::Status CheckLayout(const kv::KvLayout& layout, int head_dim) const {
    return absl::OkStatus();
  }

  // A step is Begin, Prepare, Run and End. Begin returns how many rows its operations shall have: at least
  // those of `step`; the results of further rows are ignored. Run calls `body`, which issues operations and
  // does nothing else. For a decode step, a backend may instead replay the operations that an earlier body
  // issued for as many rows with the same `activations` (a CUDA graph), so a body must depend on nothing but
  // these, the weights and the store. Prepare has the arguments that Run will get, and does all that may wait
  // for the whole device: memory grows, a decode step is recorded (by `body`); nothing is computed. The ranks
  // of a group meet between Prepare and Run, because a rank that waits for its device after another has
  // begun a sum would wait for itself. `step` stays valid until End. Outside of a step, operations work one
  // by one.
  virtual int64_t Begin(const StepRows& step) { return static_cast<int64_t>(step.tokens.size()); }
  virtual void Prepare(std::span<const Matrix> activations, absl::FunctionRef<void()> body) {}
  virtual void Run(std::span<const Matrix> activations, absl::FunctionRef<void()> body) { body(); }
  virtual void End() {}
  // No recorded step may be replayed any more: what it used has moved, or is about to go. A Collective goes
  // only after this has been called on every rank. Equal calls on all ranks: they must agree on what is
  // replayed.
  virtual void ForgetRecordings() {}

  // "reference", "cpu": for messages and flags.
  virtual std::string_view name() const = 0;
  // Names how results are rounded, once all weights are packed: by the kernels that every model needs, and by
  // the products of the weights' formats ("cpu-f32/1"). Equal strings mean equal bits for equal inputs and
  // weights; part of the fingerprint.
  virtual std::string numerics() const = 0;

  // The same for attention over KV of this layout, or empty if it adds nothing. (Its precisions are in the
  // fingerprint anyway.)
  virtual std::string KvNumerics(const kv::KvLayout& layout) const { return {}; }

  // True if that promise is kept to the bit. If not, results are equal within a tolerance, whatever the rows
  // beside them and the number of ranks, and workers may pair that differ in these.
  virtual bool exact() const { return true; }

  // True if it packs quantized matrices whose columns are transformed (ColumnTransform).
  virtual bool takes_transforms() const { return false; }
  // Packs `parts` stacked along rows (all of equal cols), e.g. Q, K and V as one matrix, in the format that
  // the backend chooses for them. INVALID_ARGUMENT if it has none.
  virtual absl::StatusOr<std::unique_ptr<PackedMatrix>> Pack(std::span<const WeightView> parts) = 0;

  // matrix = 0.
  virtual void Clear(Matrix matrix) {
    for (int64_t r = 0; r < matrix.rows; ++r) {
      std::fill_n(matrix.bytes(r), matrix.cols * tensor::SizeOf(matrix.dtype), std::byte{0});
    }
  }

  // matrix, of float32, *= factor. In host memory only.
  virtual void Scale(Matrix matrix, float factor) {
    BATON_CHECK(memory().host() && matrix.dtype == tensor::DType::kF32);
    for (int64_t r = 0; r < matrix.rows; ++r) {
      for (float& value : std::span(matrix.row(r), static_cast<size_t>(matrix.cols))) value *= factor;
    }
  }

  // x += y, both of float32. In host memory only.
  virtual void Add(Matrix x, Matrix y) {
    BATON_CHECK(memory().host() && x.dtype == tensor::DType::kF32 && y.dtype == tensor::DType::kF32);
    for (int64_t r = 0; r < x.rows; ++r) {
      for (int64_t i = 0; i < x.cols; ++i) x.row(r)[i] += y.row(r)[i];
    }
  }

  // out[r] = row ids[r] - first of the table; zeros if the table has no such row, because another rank has
  // it.
  virtual void Embed(const PackedMatrix& table, std::span<const TokenId> ids, int64_t first, Matrix out) = 0;

  // to[i] = from[rows[i]]: the same dtype, rows ascending.
  virtual void GatherRows(Matrix from, std::span<const int64_t> rows, Matrix to) = 0;

  // out = x / sqrt(mean(x^2) + eps) * weight, row by row (arXiv 1910.07467). out may be x.
  virtual void RmsNorm(Matrix x, std::span<const float> weight, float eps, Matrix out) = 0;

  // x += y, then out = RmsNorm(x).
  virtual void AddRmsNorm(Matrix x, Matrix y, std::span<const float> weight, float eps, Matrix out) = 0;

  // out [n, w.rows()] = x [n, w.cols()] * w^T (+ bias, if not empty).
  virtual void MatMul(Matrix x, const PackedMatrix& w, std::span<const float> bias, Matrix out) = 0;

  // The same of a matrix with exact_sums() whose columns, and those of x, are split over the ranks of
  // `group`: the bits of the product of all columns, on every rank. All ranks have the bias; it is added
  // once.
  virtual void MatMulSum(Matrix x, const PackedMatrix& w, std::span<const float> bias, Matrix out,
                         Collective& group) {
    BATON_CHECK(w.exact_sums());
  }

  // qkv [n, (heads + 2 * kv_heads) * head_dim]: optional RMS norm of each head of Q and K (Qwen3; empty spans
  // skip it), rotary embedding of both, then K and V into `store` at `layer`; Q stays in qkv, in place.
  struct QkNorm {
    std::span<const float> q, k;
    float eps = 0;
  };
  virtual void RotateAndStore(Matrix qkv, const AttentionShape& shape, const QkNorm& norm,
                              const RopeTable& rope, std::span<const SequenceRows> sequences, int layer,
                              kv::KvStore& store) = 0;

  // Causal attention of each row over its own sequence's paged KV. q: the first heads * head_dim columns of
  // qkv; out [n, heads * head_dim]. Never materialises the score matrix (online softmax, arXiv 1805.02867).
  virtual void Attention(Matrix q, const AttentionShape& shape, std::span<const SequenceRows> sequences,
                         int layer, const kv::KvStore& store, Matrix out) = 0;

  // gate_up [n, 2 * width] -> out [n, width] = silu(gate) * up (arXiv 2002.05202).
  virtual void SwiGlu(Matrix gate_up, Matrix out) = 0;

  // out = max(x, 0)^2, of float32. In host memory only.
  virtual void SquaredRelu(Matrix x, Matrix out) {
    BATON_CHECK(memory().host() && x.dtype == tensor::DType::kF32);
    for (int64_t r = 0; r < x.rows; ++r) {
      for (int64_t i = 0; i < x.cols; ++i) {
        const float positive = std::max(x.row(r)[i], 0.0f);
        out.row(r)[i] = positive * positive;
      }
    }
  }

  // OK if the backend has Route and Experts; INVALID_ARGUMENT names it.
  virtual absl::Status CheckExperts() const {
    return absl::InvalidArgumentError(
        std::string("the backend \"").append(name()).append("\" runs no mixtures of experts: use cpu"));
  }

  // Each row's experts by its router logits [n, routing.logits()], in float32 (experts.h). choice_bias
  // [routing.experts], or empty. choices: [n][routing.per_row()].
  virtual void Route(Matrix logits, const Routing& routing, std::span<const float> choice_bias,
                     Choices choices) {
    BATON_CHECK(false) << name() << " has no experts";
  }

  // out [n, hidden] = the sum of each row's experts, as its `choices` say: weight * expert(x), added up in
  // ascending order of ids in float32. With a group, every rank has a part of each expert's width and all of
  // its down_bias, which is added once, and out is summed over the ranks: the bits of one rank alone if
  // layer.exact_sums. norms: the L2 norm of what each expert gave, before its weight, [n][per_row], or empty;
  // not with a group.
  virtual void Experts(Matrix x, Choices choices, const ExpertLayer& layer, Matrix out, Collective* group,
                       std::span<double> norms) {
    BATON_CHECK(false) << name() << " has no experts";
  }

  // Draws tokens from logits where they are; null if the backend leaves that to the host.
  virtual DeviceSampler* sampler() { return nullptr; }
};

// Plain float32, single thread, one obvious loop per formula.
std::unique_ptr<Kernels> MakeReferenceKernels();

struct CpuOptions {
  // Threads, the caller's included; 0 takes all cores that the process may use.
  int threads = 0;
  // Instruction set to use: "" picks the fastest, else "amx", "avx512vnni", "avx512", "avx2" or
  // "baseline" (tests compare them).
  std::string isa;
  // Null: `threads` are its own. Otherwise it computes on the cores that the share has; outlives the kernels.
  device::CoreShare* cores = nullptr;
};

// Vectorised, multi-threaded. INVALID_ARGUMENT if the named instruction set is not there.
absl::StatusOr<std::unique_ptr<Kernels>> MakeCpuKernels(const CpuOptions& options);

struct CudaOptions {
  int device = 0;
  // Replay decode steps as CUDA graphs.
  bool graphs = true;
  // Prefill attention by "mma" or "wgmma"; "auto": by the faster one that gives right results on this GPU.
  std::string prefill_attention = "auto";
  // A program and arguments that, with the GPU's number behind them, check this in a process of its own by
  // ProveCudaPrefill. Empty: it is checked in this process, which can't use the GPU any more if that crashes.
  std::vector<std::string> proof_command;
};

// On one NVIDIA GPU. FAILED_PRECONDITION if this build has no CUDA; UNAVAILABLE if there is no such GPU.
absl::StatusOr<std::unique_ptr<Kernels>> MakeCudaKernels(const CudaOptions& options);

// OK if prefill attention by wgmma is right on a GPU, or what was wrong, also that it has no wgmma.
absl::Status ProveCudaPrefill(int device);

// By name: "reference", "cpu" or "cuda"; `cuda` is for the last of them, `cores` (CpuOptions) for "cpu".
absl::StatusOr<std::unique_ptr<Kernels>> MakeKernels(std::string_view name, int threads,
                                                     const CudaOptions& cuda = {},
                                                     device::CoreShare* cores = nullptr);

}  // namespace baton::kernels
