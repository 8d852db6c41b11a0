// The device code behind kernels::Kernels, on the CPU. Memory says that it is none of the host's, so that the
// decoder treats this backend as it treats a GPU: padded decode steps, vectors placed, logits downloaded.
#include <deque>

#include "common/base/check.h"
#include "engine/kernels/cuda/launch.h"
#include "engine/kernels/cuda/prefill_proof.h"
#include "engine/kernels/cuda/views.h"
#include "tests/fakes/far_memory.h"
#include "tests/gpu/gpu.h"

namespace baton::gpu {
namespace {

using namespace kernels;        // NOLINT: the names of the interface that this implements
using namespace kernels::cuda;  // NOLINT
using tensor::DType;

class EmulatedMatrix final : public PackedMatrix {
 public:
  EmulatedMatrix(int64_t rows, int64_t cols) : PackedMatrix(rows, cols) {}
  int64_t bytes() const override { return rows() * cols() * 2; }
  std::vector<uint16_t> values;
};

class EmulatedSampler final : public DeviceSampler {
 public:
  bool CanSample(int64_t vocabulary) const override { return vocabulary <= kMaxSampledVocabulary; }
  bool ReservePenaltySlots(int32_t slots, int64_t vocabulary) override {
    counts_.resize(static_cast<size_t>(slots * vocabulary), 0xDEADBEEF);  // a slot says what it starts with
    return true;
  }
  void Launch(Matrix logits, const StepDraws& draws) override {
    const DrawTable table(draws);
    const DrawView view = table.View(table.bytes().data());
    const auto vocabulary = static_cast<int>(logits.cols);
    tokens_.assign(draws.rows.size(), 0);
    CountSeen(view, vocabulary, counts_.data(), nullptr);
    states_.resize(std::max(states_.size(), draws.rows.size() * size_t{kernels::cuda::kDrawStateBytes}));
    kernels::cuda::Draw(logits.row(0), logits.stride, vocabulary, view, counts_.data(), tokens_.data(),
                        states_.data(), nullptr);
    in_flight_.push_back(tokens_);
  }
  void Await(std::span<TokenId> tokens) override {
    std::ranges::transform(in_flight_.front(), tokens.begin(), [](int32_t id) { return TokenId(id); });
    in_flight_.pop_front();
  }
  const int32_t* tokens() const { return tokens_.data(); }

 private:
  std::vector<uint32_t> counts_;  // [slots, vocabulary]
  std::vector<int32_t> tokens_;   // of the last launch
  std::vector<std::byte> states_;
  std::deque<std::vector<int32_t>> in_flight_;  // of launches that were not awaited yet
};

class EmulatedKernels final : public Kernels {
 public:
  std::string_view name() const override { return "emulated"; }
  std::string numerics() const override { return "emulated/1"; }
  bool exact() const override { return false; }
  device::Memory& memory() override { return memory_; }
  DType activation_dtype() const override { return DType::kBF16; }
  int64_t replays() const { return replays_; }
  void set_prefill_kernel(PrefillKernel kernel) { prefill_ = kernel; }

  int64_t Begin(const StepRows& step) override {
    step_ = step;
    const auto rows = static_cast<int64_t>(step.tokens.size());
    const int64_t padded = step.decode ? RowBucket(rows) : rows;
    own_.emplace(step.tokens, step.sequences, step.logit_rows, padded, step.group, step.taken);
    return padded;
  }
  void Run(std::span<const Matrix>, absl::FunctionRef<void()> body) override {
    replays_ += step_->decode ? 1 : 0;
    body();
  }
  void End() override { step_.reset(); }

  absl::StatusOr<std::unique_ptr<PackedMatrix>> Pack(std::span<const WeightView> parts) override {
    if (parts.front().cols % 8 != 0) return absl::InvalidArgumentError("rows divide by 8 values");
    int64_t rows = 0;
    for (const WeightView& part : parts) rows += part.rows;
    auto packed = std::make_unique<EmulatedMatrix>(rows, parts.front().cols);
    for (const WeightView& part : parts) {
      for (int64_t i = 0; i < part.rows * part.cols; ++i) {
        packed->values.push_back(tensor::ToBF16(tensor::ValueAt(part.data, part.dtype, i)));
      }
    }
    return packed;
  }

  void Embed(const PackedMatrix& table, std::span<const TokenId> ids, int64_t first, Matrix out) override {
    if (!InStep(ids.data(), step_ ? step_->tokens.data() : nullptr)) {
      other_.emplace(ids, std::span<const SequenceRows>(), std::span<const int64_t>(), std::ssize(ids), 1);
    }
    const StepView view =
        ViewOf(InStep(ids.data(), step_ ? step_->tokens.data() : nullptr) ? *own_ : *other_);
    kernels::cuda::Embed(Own(table).values.data(), DType::kBF16, table.rows(), view.tokens, sampler_.tokens(),
                         first, static_cast<int>(out.rows), static_cast<int>(out.cols), out.row(0),
                         out.stride, nullptr);
  }
  void GatherRows(Matrix from, std::span<const int64_t> rows, Matrix to) override {
    const std::vector<int32_t> list(rows.begin(), rows.end());
    const int64_t size = tensor::SizeOf(from.dtype);
    kernels::cuda::GatherRows(from.data, from.stride * size, list.data(), static_cast<int>(list.size()),
                              static_cast<int>(from.cols * size), to.data, to.stride * size, nullptr);
  }
  void RmsNorm(Matrix x, std::span<const float> weight, float eps, Matrix out) override {
    kernels::cuda::RmsNorm(x.row(0), x.stride, nullptr, 0, weight.data(), eps, static_cast<int>(x.rows),
                           static_cast<int>(x.cols), out.data, out.stride, out.dtype, nullptr);
  }
  void AddRmsNorm(Matrix x, Matrix y, std::span<const float> weight, float eps, Matrix out) override {
    kernels::cuda::RmsNorm(x.row(0), x.stride, y.data, y.stride, weight.data(), eps, static_cast<int>(x.rows),
                           static_cast<int>(x.cols), out.data, out.stride, out.dtype, nullptr);
  }
  // cuBLASLt's place: float32 sums, rounded once.
  void MatMul(Matrix x, const PackedMatrix& w, std::span<const float> bias, Matrix out) override {
    for (int64_t r = 0; r < x.rows; ++r) {
      const auto* row = reinterpret_cast<const uint16_t*>(x.bytes(r));
      for (int64_t o = 0; o < w.rows(); ++o) {
        float sum = 0;
        for (int64_t i = 0; i < x.cols; ++i) {
          sum +=
              tensor::FromBF16(row[i]) * tensor::FromBF16(Own(w).values[static_cast<size_t>(o * x.cols + i)]);
        }
        if (out.dtype == DType::kF32) {
          out.row(r)[o] = sum;
        } else {
          reinterpret_cast<uint16_t*>(out.bytes(r))[o] = tensor::ToBF16(sum);
        }
      }
    }
    if (bias.empty()) return;
    AddBias(out.data, out.stride, bias.data(), static_cast<int>(out.rows), static_cast<int>(out.cols),
            out.dtype, nullptr);
  }
  void RotateAndStore(Matrix qkv, const AttentionShape& shape, const QkNorm& norm, const RopeTable& rope,
                      std::span<const SequenceRows> sequences, int layer, kv::KvStore& store) override {
    kernels::cuda::RotateAndStore(qkv.data, qkv.stride, qkv.dtype, ShapeOf(shape), norm.q.data(),
                                  norm.k.data(), norm.eps, rope.cos.data(), rope.sin.data(),
                                  ViewOf(TableOf(sequences, shape)), kernels::cuda::ViewOf(store, layer),
                                  nullptr);
  }
  void Attention(Matrix q, const AttentionShape& shape, std::span<const SequenceRows> sequences, int layer,
                 const kv::KvStore& store, Matrix out) override {
    const StepView view = ViewOf(TableOf(sequences, shape));
    // No merge may read values that no split writes.
    std::vector<float> workspace(static_cast<size_t>(DecodeWorkspace(view.decode_row_count, shape.heads,
                                                                     shape.head_dim, view.split_bucket)),
                                 std::nanf(""));
    DecodeAttention(q.data, q.stride, q.dtype, ShapeOf(shape), view, kernels::cuda::ViewOf(store, layer),
                    workspace.data(), out.data, out.stride, nullptr);
    const auto prefill = [&](auto& kernel) {
      kernel(q.data, q.stride, q.dtype, ShapeOf(shape), view, kernels::cuda::ViewOf(store, layer), out.data,
             out.stride, nullptr);
    };
    prefill_ == PrefillKernel::kMma ? prefill(PrefillAttention) : prefill(WgmmaPrefillAttention);
  }
  void SwiGlu(Matrix gate_up, Matrix out) override {
    kernels::cuda::SwiGlu(gate_up.data, gate_up.stride, static_cast<int>(gate_up.rows),
                          static_cast<int>(out.cols), out.data, out.stride, out.dtype, nullptr);
  }
  DeviceSampler* sampler() override { return &sampler_; }

 private:
  static const EmulatedMatrix& Own(const PackedMatrix& matrix) {
    return static_cast<const EmulatedMatrix&>(matrix);
  }
  bool InStep(const void* asked, const void* own) const { return step_.has_value() && asked == own; }
  const StepTable& TableOf(std::span<const SequenceRows> sequences, const AttentionShape& shape) {
    if (InStep(sequences.data(), step_ ? step_->sequences.data() : nullptr)) return *own_;
    int64_t rows = 0;
    for (const SequenceRows& sequence : sequences) rows += sequence.rows;
    other_.emplace(std::span<const TokenId>(), sequences, std::span<const int64_t>(), rows,
                   shape.heads / shape.kv_heads);
    return *other_;
  }
  static StepView ViewOf(const StepTable& table) {
    return kernels::cuda::ViewOf(table, table.words().data());
  }

  device::FarMemory memory_;
  PrefillKernel prefill_ = PrefillKernel::kMma;
  std::optional<StepRows> step_;
  std::optional<StepTable> own_, other_;
  EmulatedSampler sampler_;
  int64_t replays_ = 0;
};

}  // namespace

std::unique_ptr<kernels::Kernels> MakeKernels(bool) { return std::make_unique<EmulatedKernels>(); }
bool HasWgmma() { return true; }
void UsePrefill(kernels::Kernels& kernels, PrefillKernel kernel) {
  static_cast<EmulatedKernels&>(kernels).set_prefill_kernel(kernel);
}
absl::Status Prove(kernels::Kernels& kernels) { return ProveWgmma(kernels.memory(), nullptr); }
int64_t Replays(const kernels::Kernels& kernels) {
  return static_cast<const EmulatedKernels&>(kernels).replays();
}

}  // namespace baton::gpu
