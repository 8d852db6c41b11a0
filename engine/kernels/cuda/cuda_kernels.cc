#include "engine/kernels/cuda/cuda_kernels.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "common/base/check.h"
#include "common/base/status.h"
#include "engine/device/cuda/status.h"
#include "engine/kernels/cuda/prefill_start.h"
#include "engine/kernels/cuda/views.h"

namespace baton::kernels::cuda {

using device::cuda::CheckOk;
using device::cuda::ToStatus;

namespace {

// Decode graphs kept: 17 row buckets times 6 of splits.
constexpr size_t kMaxGraphs = 128;
// Words of a table beside those of its rows: what aligns its parts.
constexpr int64_t kTableSlack = 64;

// A weight in device memory, row-major [rows, cols] of the backend's 16-bit dtype, as in the model's file.
class CudaMatrix final : public PackedMatrix {
 public:
  CudaMatrix(int64_t rows, int64_t cols, device::Memory::Buffer data)
      : PackedMatrix(rows, cols), data_(std::move(data)) {}
  int64_t bytes() const override { return rows() * cols() * 2; }
  const void* data() const { return data_.get(); }

 private:
  device::Memory::Buffer data_;
};

const CudaMatrix& Own(const PackedMatrix& matrix) { return static_cast<const CudaMatrix&>(matrix); }

}  // namespace

absl::StatusOr<std::unique_ptr<CudaKernels>> CudaKernels::Create(const CudaOptions& options) {
  int count = 0;
  if (const absl::Status looked = ToStatus(cudaGetDeviceCount(&count), "looking for GPUs"); !looked.ok()) {
    return absl::Status(
        looked.code(),
        fmt::format("--backend cuda: {}: this needs an NVIDIA GPU that the process may see, and a "
                    "driver for CUDA {} or newer: see nvidia-smi, or use --backend cpu",
                    std::string(looked.message()), CUDART_VERSION / 1000));
  }
  if (options.device >= count) {
    return absl::UnavailableError(
        fmt::format("GPU {} is wanted, this machine has {}: lower --tp, or see --devices and "
                    "CUDA_VISIBLE_DEVICES",
                    options.device, count));
  }
  cudaDeviceProp properties;
  BATON_RETURN_IF_ERROR(
      ToStatus(cudaGetDeviceProperties(&properties, options.device), "asking a GPU what it is"));
  if (properties.major < 8) {
    return absl::UnavailableError(
        fmt::format("GPU {} ({}) has compute capability {}.{}; Baton needs 8.0 (A100) or newer",
                    options.device, properties.name, properties.major, properties.minor));
  }
  // Before this process is on the GPU: where only one process may be there at a time, that is the check's.
  BATON_ASSIGN_OR_RETURN(const PrefillKernel prefill, StartPrefill(options, properties));
  BATON_RETURN_IF_ERROR(device::cuda::Use(options.device));
  if (const cudaError_t error = CodeForGpu(); error != cudaSuccess) {
    return absl::UnavailableError(
        fmt::format("GPU {} ({}) has compute capability {}.{}, and this build has no code for it ({}; built "
                    "for {}): build "
                    "it with -DCMAKE_CUDA_ARCHITECTURES={}{}-real, or use --backend cpu",
                    options.device, properties.name, properties.major, properties.minor,
                    cudaGetErrorName(error), BATON_CUDA_ARCHITECTURES, properties.major, properties.minor));
  }
  BATON_ASSIGN_OR_RETURN(device::cuda::Stream stream, device::cuda::MakeStream());
  auto kernels = std::unique_ptr<CudaKernels>(new CudaKernels(options, std::move(stream)));
  BATON_ASSIGN_OR_RETURN(kernels->memory_,
                         device::cuda::CudaMemory::Create(options.device, kernels->stream()));
  BATON_ASSIGN_OR_RETURN(kernels->gemm_, Gemm::Create(kernels->stream(), *kernels->memory_));
  BATON_ASSIGN_OR_RETURN(kernels->draws_,
                         DrawQueue::Create(options.device, kernels->stream(), *kernels->memory_,
                                           [own = kernels.get()] { own->ForgetRecordings(); }));
  kernels->step_upload_ = std::make_unique<StepUpload>(kernels->stream(), *kernels->memory_);
  kernels->other_upload_ = std::make_unique<StepUpload>(kernels->stream(), *kernels->memory_);
  kernels->prefill_kernel_ = prefill;
  return kernels;
}

CudaKernels::CudaKernels(const CudaOptions& options, device::cuda::Stream stream)
    : device_(options.device), use_graphs_(options.graphs), stream_(std::move(stream)) {}

CudaKernels::~CudaKernels() {
  // Work in flight uses memory that is freed now.
  (void)device::cuda::Use(device_);
  (void)cudaStreamSynchronize(stream_.get());
}

absl::Status CudaKernels::CheckLayout(const kv::KvLayout& layout, int head_dim) const {
  for (int l = 0; l < layout.layers; ++l) {
    const kv::KvLayer layer = layout.layer(l);
    if (layer.key_dtype == tensor::DType::kI4 || layer.value_dtype == tensor::DType::kI4) {
      return absl::InvalidArgumentError("the cuda backend does not keep KV as i4");
    }
  }
  if (AttentionSupports(head_dim)) return absl::OkStatus();
  return absl::InvalidArgumentError(fmt::format(
      "the cuda backend has attention kernels for heads of 64 and 128 values; this model's have {}",
      head_dim));
}

int64_t CudaKernels::Begin(const StepRows& step) {
  BATON_CHECK(!step_.has_value());
  device::cuda::MustUse(device_);
  step_ = step;
  const auto rows = static_cast<int64_t>(step.tokens.size());
  padded_rows_ = step.decode && use_graphs_ ? RowBucket(rows) : rows;
  if (step_upload_->Send(
          {step.tokens, step.sequences, step.logit_rows, padded_rows_, step.group, step.taken}))
    ForgetRecordings();
  return padded_rows_;
}

void CudaKernels::Reserve() {
  // Where other rows are in the step, its last layer attends for those whose logits are wanted, each as a
  // sequence of one row.
  int64_t words = kTableSlack, longest = 0;
  auto sequence = step_->sequences.begin();
  for (const int64_t row : step_->logit_rows) {
    while (row >= sequence->first_row + sequence->rows) ++sequence;
    words += 4 + std::ssize(sequence->blocks);
    longest = std::max(longest, sequence->first_position + sequence->rows);
  }
  other_upload_->Reserve(words);
  const StepView& step = step_upload_->view();
  const auto heads = step_->heads, dim = step_->head_dim;
  (void)Workspace(std::max(
      DecodeWorkspace(step.decode_row_count, heads, dim, step.split_bucket),
      DecodeWorkspace(static_cast<int>(step_->logit_rows.size()), heads, dim, SplitBucket(longest))));
}

void CudaKernels::Prepare(std::span<const Matrix> activations, absl::FunctionRef<void()> body) {
  BATON_CHECK(step_.has_value());
  Reserve();
  if (!recordable()) return;
  const GraphKey key(padded_rows_, step_upload_->view().split_bucket);
  if (const auto found = graphs_.find(key); found != graphs_.end()) {
    Recording& recording = found->second;
    if (recording.graph != nullptr) return;
    for (const Matrix& matrix : activations) recording.activations.push_back(matrix.data);
    recording.graph = Capture(body);
    fresh_ = true;
  }
}

void CudaKernels::Run(std::span<const Matrix> activations, absl::FunctionRef<void()> body) {
  BATON_CHECK(step_.has_value());
  if (!recordable()) {
    body();
    return;
  }
  const GraphKey key(padded_rows_, step_upload_->view().split_bucket);
  const auto found = graphs_.find(key);
  if (found == graphs_.end() || found->second.graph == nullptr) {
    // The first time, plainly: the code of kernels is loaded, which a capture could not take.
    body();
    fresh_ = false;
    if (graphs_.size() >= kMaxGraphs) ForgetRecordings();
    graphs_.try_emplace(key);
    return;
  }
  const Recording& recording = found->second;
  BATON_CHECK(std::ranges::equal(activations, recording.activations, {}, &Matrix::data))
      << " activations have moved since a step was recorded";
  if (!std::exchange(fresh_, false)) ++replays_;
  CheckOk(cudaGraphLaunch(recording.graph.get(), stream()), "launching a step's graph");
}

device::cuda::GraphExec CudaKernels::Capture(absl::FunctionRef<void()> body) {
  cudaGraph_t raw = nullptr;
  capturing_ = true;
  CheckOk(cudaStreamBeginCapture(stream(), cudaStreamCaptureModeThreadLocal), "capturing a step");
  body();
  CheckOk(cudaStreamEndCapture(stream(), &raw), "capturing a step");
  capturing_ = false;
  const device::cuda::Graph graph(raw);
  cudaGraphExec_t executable = nullptr;
  CheckOk(cudaGraphInstantiate(&executable, graph.get(), 0), "making a step's graph");
  return device::cuda::GraphExec(executable);
}

void CudaKernels::End() { step_.reset(); }

const StepView& CudaKernels::TableOf(std::span<const SequenceRows> sequences, const AttentionShape& shape) {
  if (step_.has_value() && sequences.data() == step_->sequences.data()) return step_upload_->view();
  BATON_CHECK(!capturing_);
  device::cuda::MustUse(device_);
  int64_t rows = 0;
  for (const SequenceRows& sequence : sequences) rows += sequence.rows;
  other_upload_->Send({{}, sequences, {}, rows, shape.heads / shape.kv_heads});
  return other_upload_->view();
}

float* CudaKernels::Workspace(int64_t floats) {
  if (floats > workspace_floats_) {
    BATON_CHECK(!capturing_) << " workspace of " << floats << " floats";
    CheckOk(cudaStreamSynchronize(stream()), "growing a workspace");
    workspace_.reset();
    absl::StatusOr<device::Memory::Buffer> grown =
        memory_->Allocate(floats * static_cast<int64_t>(sizeof(float)));
    BATON_CHECK(grown.ok()) << " attention workspace: " << grown.status().ToString();
    workspace_ = *std::move(grown);
    workspace_floats_ = floats;
    ForgetRecordings();
  }
  return reinterpret_cast<float*>(workspace_.get());
}

absl::StatusOr<std::unique_ptr<PackedMatrix>> CudaKernels::Pack(std::span<const WeightView> parts) {
  BATON_RETURN_IF_ERROR(device::cuda::Use(device_));
  int64_t rows = 0;
  const int64_t cols = parts.front().cols;
  for (const WeightView& part : parts) rows += part.rows;
  if (cols % 8 != 0) {
    return absl::InvalidArgumentError(fmt::format(
        "the cuda backend takes matrices whose rows divide by 8 values, not [{}, {}]", rows, cols));
  }
  if (std::ranges::any_of(parts, &WeightView::quantized)) {
    return absl::InvalidArgumentError("the cuda backend takes no quantized weights");
  }
  // One dtype for all: the first weight's, or bf16 for a model in float32.
  if (!dtype_.has_value()) {
    dtype_ = parts.front().dtype == tensor::DType::kF16 ? tensor::DType::kF16 : tensor::DType::kBF16;
  }
  BATON_ASSIGN_OR_RETURN(device::Memory::Buffer data, memory_->Allocate(rows * cols * 2));
  std::byte* to = data.get();
  std::vector<uint16_t> rounded;
  for (const WeightView& part : parts) {
    BATON_CHECK_EQ(part.cols, cols);
    const int64_t values = part.rows * cols;
    const void* from = part.data;
    if (part.dtype != *dtype_) {
      if (*dtype_ != tensor::DType::kBF16) {
        return absl::InvalidArgumentError(
            fmt::format("the cuda backend takes one dtype for all weights: {} after {}",
                        tensor::Name(part.dtype), tensor::Name(*dtype_)));
      }
      rounded.resize(static_cast<size_t>(values));
      for (int64_t i = 0; i < values; ++i)
        rounded[static_cast<size_t>(i)] = tensor::ToBF16(tensor::ValueAt(part.data, part.dtype, i));
      from = rounded.data();
    }
    BATON_RETURN_IF_ERROR(memory_->Upload(from, to, values * 2));
    to += values * 2;
  }
  return std::make_unique<CudaMatrix>(rows, cols, std::move(data));
}

void CudaKernels::Clear(Matrix matrix) {
  const auto size = static_cast<size_t>(tensor::SizeOf(matrix.dtype));
  CheckOk(
      cudaMemset2DAsync(matrix.data, static_cast<size_t>(matrix.stride) * size, 0,
                        static_cast<size_t>(matrix.cols) * size, static_cast<size_t>(matrix.rows), stream()),
      "clearing a matrix");
}

void CudaKernels::Embed(const PackedMatrix& table, std::span<const TokenId> ids, int64_t first, Matrix out) {
  const StepView* step = &step_upload_->view();
  if (!step_.has_value() || ids.data() != step_->tokens.data()) {
    // Only the tokens of the table are used: it has no sequences.
    device::cuda::MustUse(device_);
    other_upload_->Send({ids, {}, {}, static_cast<int64_t>(ids.size()), 1});
    step = &other_upload_->view();
  }
  cuda::Embed(Own(table).data(), activation_dtype(), table.rows(), step->tokens, draws_->tokens(), first,
              static_cast<int>(out.rows), static_cast<int>(out.cols), static_cast<float*>(out.data),
              out.stride, stream());
}

void CudaKernels::GatherRows(Matrix from, std::span<const int64_t> rows, Matrix to) {
  const StepView* step = &step_upload_->view();
  if (!step_.has_value() || rows.data() != step_->logit_rows.data()) {
    device::cuda::MustUse(device_);
    other_upload_->Send({{}, {}, rows, 0, 1});
    step = &other_upload_->view();
  }
  const int64_t size = tensor::SizeOf(from.dtype);
  cuda::GatherRows(from.data, from.stride * size, step->kept, static_cast<int>(rows.size()),
                   static_cast<int>(from.cols * size), to.data, to.stride * size, stream());
}

void CudaKernels::RmsNorm(Matrix x, std::span<const float> weight, float eps, Matrix out) {
  cuda::RmsNorm(static_cast<float*>(x.data), x.stride, nullptr, 0, weight.data(), eps,
                static_cast<int>(x.rows), static_cast<int>(x.cols), out.data, out.stride, out.dtype,
                stream());
}

void CudaKernels::AddRmsNorm(Matrix x, Matrix y, std::span<const float> weight, float eps, Matrix out) {
  cuda::RmsNorm(static_cast<float*>(x.data), x.stride, y.data, y.stride, weight.data(), eps,
                static_cast<int>(x.rows), static_cast<int>(x.cols), out.data, out.stride, out.dtype,
                stream());
}

void CudaKernels::MatMul(Matrix x, const PackedMatrix& w, std::span<const float> bias, Matrix out) {
  gemm_->Run(x, Own(w).data(), w.rows(), out);
  if (bias.empty()) return;
  BATON_CHECK(out.dtype == activation_dtype());
  cuda::AddBias(out.data, out.stride, bias.data(), static_cast<int>(out.rows), static_cast<int>(out.cols),
                out.dtype, stream());
}

void CudaKernels::RotateAndStore(Matrix qkv, const AttentionShape& shape, const QkNorm& norm,
                                 const RopeTable& rope, std::span<const SequenceRows> sequences, int layer,
                                 kv::KvStore& store) {
  cuda::RotateAndStore(qkv.data, qkv.stride, qkv.dtype, ShapeOf(shape), norm.q.data(), norm.k.data(),
                       norm.eps, rope.cos.data(), rope.sin.data(), TableOf(sequences, shape),
                       ViewOf(store, layer), stream());
}

void CudaKernels::Attention(Matrix q, const AttentionShape& shape, std::span<const SequenceRows> sequences,
                            int layer, const kv::KvStore& store, Matrix out) {
  const StepView& step = TableOf(sequences, shape);
  const HeadShape heads = ShapeOf(shape);
  const KvView view = ViewOf(store, layer);
  float* workspace =
      Workspace(DecodeWorkspace(step.decode_row_count, shape.heads, shape.head_dim, step.split_bucket));
  DecodeAttention(q.data, q.stride, q.dtype, heads, step, view, workspace, out.data, out.stride, stream());
  if (prefill_kernel_ == PrefillKernel::kMma) {
    PrefillAttention(q.data, q.stride, q.dtype, heads, step, view, out.data, out.stride, stream());
  } else {
    CheckOk(
        WgmmaPrefillAttention(q.data, q.stride, q.dtype, heads, step, view, out.data, out.stride, stream()),
        "launching prefill attention");
  }
}

void CudaKernels::SwiGlu(Matrix gate_up, Matrix out) {
  cuda::SwiGlu(gate_up.data, gate_up.stride, static_cast<int>(gate_up.rows), static_cast<int>(out.cols),
               out.data, out.stride, out.dtype, stream());
}

}  // namespace baton::kernels::cuda

namespace baton::kernels {

absl::StatusOr<std::unique_ptr<Kernels>> MakeCudaKernels(const CudaOptions& options) {
  return cuda::CudaKernels::Create(options);
}

}  // namespace baton::kernels
