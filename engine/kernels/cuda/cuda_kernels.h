// The cuda backend: one GPU, one stream. Operations are launched in order and nothing here waits for them; a
// decode step is captured once per bucket of rows and splits, and replayed as a CUDA graph from then on.
// Owner thread of the GPU's engine only.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/device/cuda/cuda_memory.h"
#include "engine/device/cuda/handles.h"
#include "engine/kernels/cuda/draw_queue.h"
#include "engine/kernels/cuda/gemm.h"
#include "engine/kernels/cuda/prefill_choice.h"
#include "engine/kernels/cuda/step_upload.h"
#include "engine/kernels/kernels.h"

namespace baton::kernels::cuda {

class CudaKernels final : public Kernels {
 public:
  static absl::StatusOr<std::unique_ptr<CudaKernels>> Create(const CudaOptions& options);
  ~CudaKernels() override;

  int device() const { return device_; }
  cudaStream_t stream() const { return stream_.get(); }
  // For tests and benchmarks: how many steps were replays.
  int64_t replays() const { return replays_; }
  // Chosen at start. Set only by tests and benchmarks, to what the GPU can run.
  PrefillKernel prefill_kernel() const { return prefill_kernel_; }
  void set_prefill_kernel(PrefillKernel kernel) { prefill_kernel_ = kernel; }

  std::string_view name() const override { return "cuda"; }
  std::string numerics() const override { return "cuda/1"; }
  bool exact() const override { return false; }
  device::Memory& memory() override { return *memory_; }
  tensor::DType activation_dtype() const override { return dtype_.value_or(tensor::DType::kBF16); }
  absl::Status CheckLayout(const kv::KvLayout& layout, int head_dim) const override;

  int64_t Begin(const StepRows& step) override;
  void Prepare(std::span<const Matrix> activations, absl::FunctionRef<void()> body) override;
  void Run(std::span<const Matrix> activations, absl::FunctionRef<void()> body) override;
  void End() override;
  void ForgetRecordings() override { graphs_.clear(); }

  absl::StatusOr<std::unique_ptr<PackedMatrix>> Pack(std::span<const WeightView> parts) override;
  void Clear(Matrix matrix) override;
  void Embed(const PackedMatrix& table, std::span<const TokenId> ids, int64_t first, Matrix out) override;
  void GatherRows(Matrix from, std::span<const int64_t> rows, Matrix to) override;
  void RmsNorm(Matrix x, std::span<const float> weight, float eps, Matrix out) override;
  void AddRmsNorm(Matrix x, Matrix y, std::span<const float> weight, float eps, Matrix out) override;
  void MatMul(Matrix x, const PackedMatrix& w, std::span<const float> bias, Matrix out) override;
  void RotateAndStore(Matrix qkv, const AttentionShape& shape, const QkNorm& norm, const RopeTable& rope,
                      std::span<const SequenceRows> sequences, int layer, kv::KvStore& store) override;
  void Attention(Matrix q, const AttentionShape& shape, std::span<const SequenceRows> sequences, int layer,
                 const kv::KvStore& store, Matrix out) override;
  void SwiGlu(Matrix gate_up, Matrix out) override;
  DeviceSampler* sampler() override { return &*draws_; }

 private:
  // Padded rows and bucket of splits: the same on every rank of a group, so all replay or none. Whatever else
  // a recorded step depends on has its place until ForgetRecordings.
  using GraphKey = std::pair<int64_t, int>;
  struct Recording {
    std::vector<const void*> activations;  // that it was made with
    device::cuda::GraphExec graph;         // null after the first, plain run, which loads the kernels' code
  };

  CudaKernels(const CudaOptions& options, device::cuda::Stream stream);
  // The table of `sequences`: the step's own, or one that is sent now.
  const StepView& TableOf(std::span<const SequenceRows> sequences, const AttentionShape& shape);
  device::cuda::GraphExec Capture(absl::FunctionRef<void()> body);
  // Room for split attention, for the table of the rows whose logits are wanted, and in all that a step has.
  void Reserve();
  float* Workspace(int64_t floats);
  bool recordable() const { return use_graphs_ && step_->decode && padded_rows_ <= kMaxGraphRows; }

  const int device_;
  const bool use_graphs_;
  const device::cuda::Stream stream_;
  PrefillKernel prefill_kernel_ = PrefillKernel::kMma;
  std::unique_ptr<device::cuda::CudaMemory> memory_;
  std::unique_ptr<Gemm> gemm_;
  std::unique_ptr<StepUpload> step_upload_;   // the step's own table
  std::unique_ptr<StepUpload> other_upload_;  // of anything else
  std::optional<tensor::DType> dtype_;        // of weights and activations: the first weight's
  device::Memory::Buffer workspace_;          // of split attention
  int64_t workspace_floats_ = 0;
  std::optional<DrawQueue> draws_;

  std::optional<StepRows> step_;  // between Begin and End
  int64_t padded_rows_ = 0;       // of step_
  bool capturing_ = false;
  bool fresh_ = false;  // the step's graph was made in Prepare
  std::map<GraphKey, Recording> graphs_;
  int64_t replays_ = 0;
};

}  // namespace baton::kernels::cuda
