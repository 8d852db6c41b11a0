// The cpu backend: splits each operation into tasks for the thread pool and hands them to the vector code of
// one instruction set. How an operation is split never shows in its result (see the contract in kernels.h).
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <mutex>
#include <set>
#include <vector>

#include "common/base/check.h"
#include "common/base/status.h"
#include "engine/device/thread_pool.h"
#include "engine/kernels/collective.h"
#include "engine/kernels/cpu/amx.h"
#include "engine/kernels/cpu/attention.h"
#include "engine/kernels/cpu/elementwise.h"
#include "engine/kernels/cpu/experts.h"
#include "engine/kernels/cpu/isa.h"
#include "engine/kernels/cpu/panels.h"
#include "engine/kernels/cpu/prepared_memory.h"
#include "engine/kernels/kernels.h"
#include "engine/kv/store/kv_codec.h"
#include "spdlog/spdlog.h"

namespace baton::kernels {
namespace {

using cpu::Panels;
using tensor::DType;

// Work, in multiply-adds or values touched, below which waking another thread costs more than it brings.
constexpr int64_t kSmallWork = 32 << 10;
// Values of an activation per task.
constexpr int64_t kActivationSpan = 4096;

class CpuKernels final : public Kernels {
 public:
  // cores: null if the threads are its own.
  CpuKernels(cpu::Isa isa, int threads, device::CoreShare* cores)
      : isa_(isa),
        attend_(cpu::AttendFor(isa)),
        attention_tiles_(cpu::AttentionTilesFor(isa)),
        elementwise_(cpu::ElementwiseFor(isa)),
        cores_(cores),
        pool_(cores != nullptr ? device::ThreadPool(*cores) : device::ThreadPool(threads)) {}

  std::string_view name() const override { return "cpu"; }
  std::string numerics() const override {
    // Norms, rotations and attention are float32 whatever the weights' format.
    std::set<std::string_view> classes = {cpu::FloatNumerics(isa_)};
    classes.insert(numerics_.begin(), numerics_.end());
    return fmt::format("{}", fmt::join(classes, "+"));
  }

  std::string KvNumerics(const kv::KvLayout& layout) const override {
    std::set<std::string_view> classes;
    for (int l = 0; l < layout.layers; ++l) {
      const kv::KvLayer layer = layout.layer(l);
      for (const DType dtype : {layer.key_dtype, layer.value_dtype}) {
        classes.insert(cpu::Numerics(cpu::KvProductOf(dtype)));
      }
    }
    classes.erase("");
    return fmt::format("{}", fmt::join(classes, "+"));
  }

  // Where nothing is multiplied but float32, neither is KV.
  DType kv_dtype() const override {
    const auto floats = [&](std::string_view numerics) { return numerics == cpu::FloatNumerics(isa_); };
    return std::ranges::all_of(numerics_, floats) ? DType::kF32 : DType::kBF16;
  }

  bool takes_transforms() const override { return true; }
  absl::StatusOr<std::unique_ptr<PackedMatrix>> Pack(std::span<const WeightView> parts) override {
    BATON_ASSIGN_OR_RETURN(std::unique_ptr<Panels> packed, Panels::Pack(parts, isa_, memory_, pool_));
    numerics_.insert(packed->numerics());
    return packed;
  }
  absl::Status CheckLayout(const kv::KvLayout& layout, int head_dim) const override {
    if (layout.head_dim > cpu::kMaxHeadDim) {
      return absl::InvalidArgumentError(fmt::format(
          "the cpu backend has attention kernels for heads of up to {} values; this model's have {}: "
          "--backend reference runs it, slowly",
          cpu::kMaxHeadDim, head_dim));
    }
    for (int l = 0; l < layout.layers; ++l) {
      const kv::KvLayer layer = layout.layer(l);
      for (const DType dtype : {layer.key_dtype, layer.value_dtype}) {
        if (cpu::AttentionTakes(dtype)) continue;
        return absl::InvalidArgumentError(
            fmt::format("the cpu backend keeps KV as f32, bf16, i8 or i4, not {}", tensor::Name(dtype)));
      }
    }
    return absl::OkStatus();
  }
  int64_t Begin(const StepRows& step) override {
    if (cores_ != nullptr) cores_->Work();
    return Kernels::Begin(step);
  }
  void Embed(const PackedMatrix& table, std::span<const TokenId> ids, int64_t first, Matrix out) override;
  void GatherRows(Matrix from, std::span<const int64_t> rows, Matrix to) override;
  void RmsNorm(Matrix x, std::span<const float> weight, float eps, Matrix out) override;
  void AddRmsNorm(Matrix x, Matrix y, std::span<const float> weight, float eps, Matrix out) override;
  void MatMul(Matrix x, const PackedMatrix& w, std::span<const float> bias, Matrix out) override;
  void MatMulSum(Matrix x, const PackedMatrix& w, std::span<const float> bias, Matrix out,
                 Collective& group) override;
  void RotateAndStore(Matrix qkv, const AttentionShape& shape, const QkNorm& norm, const RopeTable& rope,
                      std::span<const SequenceRows> sequences, int layer, kv::KvStore& store) override;
  void Attention(Matrix q, const AttentionShape& shape, std::span<const SequenceRows> sequences, int layer,
                 const kv::KvStore& store, Matrix out) override;
  void SwiGlu(Matrix gate_up, Matrix out) override;
  absl::Status CheckExperts() const override { return absl::OkStatus(); }
  void Route(Matrix logits, const Routing& routing, std::span<const float> choice_bias,
             Choices choices) override {
    experts_.Route(logits, routing, choice_bias, choices);
  }
  void Experts(Matrix x, Choices choices, const ExpertLayer& layer, Matrix out, Collective* group,
               std::span<double> norms) override {
    experts_.Run(x, choices, layer, out, group, norms);
  }

 private:
  // ParallelFor, unless all of it together is too little work.
  template <typename Task>
  void For(int64_t count, int64_t work, const Task& task) {
    if (work < kSmallWork) {
      for (int64_t i = 0; i < count; ++i) task(i);
    } else {
      pool_.ParallelFor(count, task);
    }
  }

  // task(panel, count, first row, rows) for `together` panels at a time and, where there are few panels,
  // slices of the rows.
  template <typename Task>
  void ForPanels(const Panels& panels, int together, int64_t rows, const Task& task);
  // The rows of x as the product with `panels` wants them, valid until the next call. largest [x.rows], or
  // null: of each row itself.
  cpu::PreparedRows Prepare(Matrix x, const Panels& panels, const int32_t* largest);

  const cpu::Isa isa_;
  std::set<std::string_view> numerics_;  // of all that was packed
  const cpu::Attend attend_;
  const cpu::AttentionTiles attention_tiles_;
  const cpu::ElementwiseTable& elementwise_;
  device::CoreShare* const cores_;  // null: threads of its own
  cpu::PanelMemory memory_;
  device::ThreadPool pool_;
  cpu::ExpertProducts experts_{elementwise_, pool_};
  // Scratch of the current product.
  cpu::PreparedMemory prepared_;  // rows of x
  std::vector<int32_t> largest_;  // of each of them
  std::vector<int32_t> sums_;     // [rows of x][rows of w]
};

const Panels& Own(const PackedMatrix& matrix) { return static_cast<const Panels&>(matrix); }

void CheckShape(const Matrix& matrix, int64_t rows, int64_t cols) {
  BATON_CHECK_EQ(matrix.rows, rows);
  BATON_CHECK_EQ(matrix.cols, cols);
  BATON_DCHECK(matrix.rows <= 1 || matrix.stride >= matrix.cols);
}

void CpuKernels::Embed(const PackedMatrix& table, std::span<const TokenId> ids, int64_t first, Matrix out) {
  const Panels& panels = Own(table);
  CheckShape(out, static_cast<int64_t>(ids.size()), panels.cols());
  For(out.rows, out.rows * out.cols * 4, [&](int64_t r) {
    const int64_t id = ids[r].value() - first;
    if (id >= 0 && id < panels.rows()) {
      panels.ReadRow(id, out.row(r));
    } else {
      std::fill_n(out.row(r), out.cols, 0.0f);
    }
  });
}

void CpuKernels::GatherRows(Matrix from, std::span<const int64_t> rows, Matrix to) {
  CheckShape(to, static_cast<int64_t>(rows.size()), from.cols);
  For(to.rows, to.rows * to.cols, [&](int64_t i) { std::copy_n(from.row(rows[i]), from.cols, to.row(i)); });
}

void CpuKernels::RmsNorm(Matrix x, std::span<const float> weight, float eps, Matrix out) {
  CheckShape(out, x.rows, x.cols);
  BATON_CHECK_EQ(static_cast<int64_t>(weight.size()), x.cols);
  const int64_t rows = std::max<int64_t>(1, kActivationSpan / x.cols);
  For((x.rows + rows - 1) / rows, x.rows * x.cols, [&](int64_t task) {
    for (int64_t r = task * rows; r < std::min(x.rows, (task + 1) * rows); ++r) {
      elementwise_.rms_norm(x.row(r), weight.data(), eps, x.cols, out.row(r));
    }
  });
}

void CpuKernels::AddRmsNorm(Matrix x, Matrix y, std::span<const float> weight, float eps, Matrix out) {
  CheckShape(y, x.rows, x.cols);
  CheckShape(out, x.rows, x.cols);
  BATON_CHECK_EQ(static_cast<int64_t>(weight.size()), x.cols);
  const int64_t rows = std::max<int64_t>(1, kActivationSpan / x.cols);
  For((x.rows + rows - 1) / rows, x.rows * x.cols, [&](int64_t task) {
    for (int64_t r = task * rows; r < std::min(x.rows, (task + 1) * rows); ++r) {
      elementwise_.add(x.row(r), y.row(r), x.cols);
      elementwise_.rms_norm(x.row(r), weight.data(), eps, x.cols, out.row(r));
    }
  });
}

void CpuKernels::MatMul(Matrix x, const PackedMatrix& w, std::span<const float> bias, Matrix out) {
  const Panels& panels = Own(w);
  BATON_CHECK_EQ(x.cols, panels.cols());
  CheckShape(out, x.rows, panels.rows());
  BATON_CHECK(bias.empty() || static_cast<int64_t>(bias.size()) == panels.rows())
      << " bias of " << bias.size();
  if (x.rows == 0) return;
  cpu::PreparedRows prepared;
  if (panels.row_bytes() > 0) prepared = Prepare(x, panels, nullptr);
  if (x.rows == 1) {
    const int64_t abreast = panels.abreast(), tasks = (panels.panels() + abreast - 1) / abreast;
    const auto task = [&](int64_t i) {
      const int64_t panel = i * abreast, count = std::min(abreast, panels.panels() - panel);
      panels.Multiply(panels.Product(x, panel, bias, out, prepared, static_cast<int>(count)));
    };
    if (panels.cols() * panels.rows() < kSmallWork) {
      for (int64_t i = 0; i < tasks; ++i) task(i);
    } else {
      pool_.ParallelRanges(tasks, task);
    }
    return;
  }
  const int together = x.rows >= cpu::kManyRows ? panels.together() : 1;
  ForPanels(panels, together, x.rows, [&](int64_t panel, int count, int64_t first, int64_t rows) {
    panels.Multiply(
        panels.Product(x.Rows(first, rows), panel, bias, out.Rows(first, rows), prepared.From(first), count));
  });
}

void CpuKernels::MatMulSum(Matrix x, const PackedMatrix& w, std::span<const float> bias, Matrix out,
                           Collective& group) {
  const Panels& panels = Own(w);
  const cpu::IntegerKernel* const integers = panels.integers();
  BATON_CHECK(integers != nullptr) << " exact sums";
  BATON_CHECK_EQ(x.cols, panels.cols());
  CheckShape(out, x.rows, panels.rows());
  if (x.rows == 0) return;
  // The scale of a row is that of all its columns, and integers of all ranks add up without rounding.
  largest_.resize(static_cast<size_t>(x.rows));
  For(x.rows, x.rows * x.cols, [&](int64_t r) { largest_[r] = panels.LargestOf(x.row(r)); });
  group.AllMax(largest_);
  const cpu::PreparedRows prepared = Prepare(x, panels, largest_.data());
  sums_.resize(static_cast<size_t>(x.rows * panels.rows()));
  const auto each_panel = [&](const auto& task) {
    ForPanels(panels, 1, x.rows, [&](int64_t panel, int, int64_t first, int64_t rows) {
      task(panels.Product(x.Rows(first, rows), panel, bias, out.Rows(first, rows), prepared.From(first)),
           sums_.data() + first * panels.rows() + panel * cpu::kPanelRows);
    });
  };
  each_panel([&](const cpu::PanelProduct& job, int32_t* sums) { integers->sum(job, sums, panels.rows()); });
  group.AllSum(sums_);
  each_panel(
      [&](const cpu::PanelProduct& job, int32_t* sums) { integers->finish(job, sums, panels.rows()); });
}

template <typename Task>
void CpuKernels::ForPanels(const Panels& panels, int together, int64_t rows, const Task& task) {
  constexpr int64_t kFewestRows = 24;
  const int64_t wanted = 4 * pool_.threads(), groups = (panels.panels() + together - 1) / together;
  const int64_t slices =
      std::clamp<int64_t>((wanted + groups - 1) / groups, 1, std::max<int64_t>(1, rows / kFewestRows));
  For(groups * slices, rows * panels.cols() * panels.rows(), [&](int64_t i) {
    const int64_t slice = i % slices, panel = i / slices * together;
    const int64_t first = slice * rows / slices, end = (slice + 1) * rows / slices;
    task(panel, static_cast<int>(std::min<int64_t>(together, panels.panels() - panel)), first, end - first);
  });
}

cpu::PreparedRows CpuKernels::Prepare(Matrix x, const Panels& panels, const int32_t* largest) {
  const int64_t stride = panels.row_bytes();
  std::byte* const rows = prepared_.Take(x.rows * stride);
  For(x.rows, x.rows * x.cols, [&](int64_t r) {
    panels.Prepare(x.row(r), largest == nullptr ? nullptr : largest + r, rows + r * stride);
  });
  return {rows, stride};
}

void CheckSequence(const SequenceRows& sequence, int64_t rows) {
  BATON_CHECK(sequence.first_row >= 0 && sequence.first_row + sequence.rows <= rows) << " rows of a sequence";
  BATON_CHECK(static_cast<int64_t>(sequence.blocks.size()) >=
              BlocksFor(sequence.first_position + sequence.rows))
      << " a sequence's blocks";
}

void CheckStore(const AttentionShape& shape, int layer, const kv::KvStore& store) {
  BATON_CHECK(shape.kv_heads > 0 && shape.heads % shape.kv_heads == 0) << " heads";
  BATON_CHECK(layer >= 0 && layer < store.layout().layers) << " layer " << layer;
  BATON_CHECK_EQ(store.layout().kv_heads, shape.kv_heads);
  BATON_CHECK_EQ(store.layout().head_dim, kv::StoredHeadDim(shape.head_dim));
  BATON_CHECK(store.layout().head_dim <= cpu::kMaxHeadDim) << " head_dim " << shape.head_dim;
  BATON_CHECK(cpu::AttentionTakes(store.layer(layer).key_dtype) &&
              cpu::AttentionTakes(store.layer(layer).value_dtype))
      << " KV is f32, bf16, i8 or i4";
}

void CpuKernels::RotateAndStore(Matrix qkv, const AttentionShape& shape, const QkNorm& norm,
                                const RopeTable& rope, std::span<const SequenceRows> sequences, int layer,
                                kv::KvStore& store) {
  CheckStore(shape, layer, store);
  const kv::KvLayer& at = store.layer(layer);
  BATON_CHECK_EQ(qkv.cols, int64_t{shape.heads + 2 * shape.kv_heads} * shape.head_dim);
  BATON_CHECK(rope.half_dim > 0 && rope.half_dim * 2 <= shape.head_dim) << " rotated dimensions";
  // A task is the rows of one block, so that no two threads write to the same one.
  struct Task {
    int64_t row, rows, position;
    BlockId block;
  };
  std::vector<Task> tasks;
  for (const SequenceRows& sequence : sequences) {
    CheckSequence(sequence, qkv.rows);
    for (int64_t done = 0; done < sequence.rows;) {
      const int64_t position = sequence.first_position + done;
      const int64_t rows = std::min(sequence.rows - done, kBlockTokens - position % kBlockTokens);
      tasks.push_back({sequence.first_row + done, rows, position, sequence.blocks[position / kBlockTokens]});
      done += rows;
    }
  }
  const int64_t dim = shape.head_dim;
  const int stored = store.layout().head_dim;
  For(static_cast<int64_t>(tasks.size()), qkv.rows * qkv.cols * 2, [&](int64_t i) {
    const Task& task = tasks[i];
    std::byte* block = store.block(task.block);
    std::array<float, cpu::kMaxHeadDim> padded;
    std::fill_n(padded.begin() + dim, stored - dim, 0.0f);
    const auto as_stored = [&](const float* head) {
      if (stored == dim) return head;
      std::copy_n(head, dim, padded.begin());
      return static_cast<const float*>(padded.data());
    };
    for (int64_t r = 0; r < task.rows; ++r) {
      float* q = qkv.row(task.row + r);
      float* k = q + shape.heads * dim;
      const float* v = k + shape.kv_heads * dim;
      const int64_t position = task.position + r;
      const float* cos = rope.cos.data() + position * rope.half_dim;
      const float* sin = rope.sin.data() + position * rope.half_dim;
      const auto turn = [&](float* head, std::span<const float> weight) {
        if (!weight.empty()) elementwise_.rms_norm(head, weight.data(), norm.eps, dim, head);
        elementwise_.rotate(head, cos, sin, rope.half_dim);
      };
      for (int h = 0; h < shape.heads; ++h) turn(q + h * dim, norm.q);
      for (int h = 0; h < shape.kv_heads; ++h) {
        turn(k + h * dim, norm.k);
        kv::StoreKey(at.key_dtype, as_stored(k + h * dim), stored, position % kBlockTokens,
                     block + at.key_offset(h));
        kv::StoreValue(at.value_dtype, as_stored(v + h * dim), stored, position % kBlockTokens,
                       block + at.value_offset(h));
      }
    }
  });
}

void CpuKernels::Attention(Matrix q, const AttentionShape& shape, std::span<const SequenceRows> sequences,
                           int layer, const kv::KvStore& store, Matrix out) {
  CheckStore(shape, layer, store);
  const kv::KvLayer& at = store.layer(layer);
  const int64_t dim = shape.head_dim;
  const int group = shape.heads / shape.kv_heads;
  BATON_CHECK(q.cols >= shape.heads * dim) << " columns " << q.cols;
  BATON_CHECK(shape.sinks.empty() || std::ssize(shape.sinks) == shape.heads) << " sinks";
  CheckShape(out, q.rows, shape.heads * dim);
  struct Task {
    const SequenceRows* sequence;
    int head;
    int64_t first;
  };
  std::vector<Task> tasks;
  int64_t work = 0;
  for (const SequenceRows& sequence : sequences) {
    CheckSequence(sequence, q.rows);
    const int64_t vectors = sequence.rows * group;
    for (int head = 0; head < shape.kv_heads; ++head) {
      for (int64_t first = 0; first < vectors; first += cpu::kQueryTile)
        tasks.push_back({&sequence, head, first});
    }
    work += sequence.rows * (sequence.first_position + sequence.rows) * shape.heads * dim;
  }
  For(static_cast<int64_t>(tasks.size()), work, [&](int64_t i) {
    const Task& task = tasks[i];
    const SequenceRows& sequence = *task.sequence;
    const int64_t column = task.head * group * dim;
    const int64_t left = sequence.rows * group - task.first;
    attend_({.q = q.row(sequence.first_row) + column,
             .q_stride = q.stride,
             .out = out.row(sequence.first_row) + column,
             .out_stride = out.stride,
             .first_position = sequence.first_position,
             .group = group,
             .first = task.first,
             .count = static_cast<int>(std::min<int64_t>(cpu::kQueryTile, left)),
             .head_dim = shape.head_dim,
             .stored_dim = store.layout().head_dim,
             .scale = shape.scale,
             .window = shape.window,
             .sinks = shape.sinks.empty() ? nullptr : shape.sinks.data() + task.head * group},
            {.pool = store.block(BlockId(0)),
             .block_bytes = store.layout().block_bytes(),
             .key_offset = at.key_offset(task.head),
             .value_offset = at.value_offset(task.head),
             .key_dtype = at.key_dtype,
             .value_dtype = at.value_dtype,
             .blocks = sequence.blocks.data()},
            attention_tiles_);
  });
}

void CpuKernels::SwiGlu(Matrix gate_up, Matrix out) {
  BATON_CHECK_EQ(gate_up.cols, 2 * out.cols);
  BATON_CHECK_EQ(gate_up.rows, out.rows);
  const int64_t spans = (out.cols + kActivationSpan - 1) / kActivationSpan;
  For(out.rows * spans, out.rows * out.cols * 8, [&](int64_t task) {
    const int64_t row = task / spans, first = task % spans * kActivationSpan;
    const float* gate = gate_up.row(row) + first;
    elementwise_.swiglu(gate, gate + out.cols, std::min(kActivationSpan, out.cols - first),
                        out.row(row) + first);
  });
}

}  // namespace

absl::StatusOr<std::unique_ptr<Kernels>> MakeCpuKernels(const CpuOptions& options) {
  if (options.threads < 0) return absl::InvalidArgumentError("threads must be 0 (all cores) or more");
  BATON_ASSIGN_OR_RETURN(const cpu::Isa isa, cpu::ChooseIsa(options.isa));
  static std::once_flag told;
  if (options.isa.empty() && !cpu::Amx().warning.empty()) {
    std::call_once(told, [] { spdlog::warn("{}", cpu::Amx().warning); });
  }
  const int threads = options.threads == 0 ? device::UsableCores() : options.threads;
  return std::make_unique<CpuKernels>(isa, threads, options.cores);
}

}  // namespace baton::kernels
