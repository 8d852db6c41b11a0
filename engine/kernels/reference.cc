// The reference backend: what every other backend is judged by. Values are float32, one thread, one loop per
// formula; sums are taken in float64, in index order, so that its own rounding stays well below that of the
// backends it judges.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "common/base/check.h"
#include "engine/kernels/collective.h"
#include "engine/kernels/kernels.h"
#include "engine/kernels/reference_sampler.h"
#include "engine/kernels/routing.h"
#include "engine/kv/store/kv_codec.h"

namespace baton::kernels {
namespace {

using tensor::DType;

class ReferenceMatrix final : public PackedMatrix {
 public:
  ReferenceMatrix(int64_t rows, int64_t cols) : PackedMatrix(rows, cols), values(rows * cols) {}
  int64_t bytes() const override { return static_cast<int64_t>(values.size() * sizeof(float)); }
  const float* row(int64_t r) const { return values.data() + r * cols(); }

  std::vector<float> values;  // [rows, cols]
};

const ReferenceMatrix& Own(const PackedMatrix& matrix) { return static_cast<const ReferenceMatrix&>(matrix); }

// out = x / sqrt(mean(x^2) + eps) * weight
void Normalize(const float* x, std::span<const float> weight, float eps, float* out) {
  double squares = 0;
  for (size_t i = 0; i < weight.size(); ++i) squares += double{x[i]} * x[i];
  const auto scale = static_cast<float>(1 / std::sqrt(squares / static_cast<double>(weight.size()) + eps));
  for (size_t i = 0; i < weight.size(); ++i) out[i] = x[i] * scale * weight[i];
}

// The pair (x[i], x[i + half]) turns by the angle of index i:
//   x[i]        = x[i] cos - x[i + half] sin
//   x[i + half] = x[i + half] cos + x[i] sin
void Rotate(float* x, const RopeTable& rope, int64_t position) {
  const float* cos = rope.cos.data() + position * rope.half_dim;
  const float* sin = rope.sin.data() + position * rope.half_dim;
  for (int i = 0; i < rope.half_dim; ++i) {
    const float a = x[i];
    const float b = x[i + rope.half_dim];
    x[i] = a * cos[i] - b * sin[i];
    x[i + rope.half_dim] = b * cos[i] + a * sin[i];
  }
}

// y = w x (+ bias, if not empty)
void Multiply(const ReferenceMatrix& w, const float* x, std::span<const float> bias, std::vector<float>& y) {
  y.resize(static_cast<size_t>(w.rows()));
  for (int64_t o = 0; o < w.rows(); ++o) {
    double sum = bias.empty() ? 0 : bias[static_cast<size_t>(o)];
    for (int64_t i = 0; i < w.cols(); ++i) sum += double{x[i]} * w.row(o)[i];
    y[static_cast<size_t>(o)] = static_cast<float>(sum);
  }
}

// 1 / (1 + exp(-x))
float Sigmoid(float x) { return static_cast<float>(1 / (1 + std::exp(-double{x}))); }

// An expert's activation (ExpertLayer::limit).
float Act(float gate, float up, const ExpertLayer& layer) {
  if (layer.limit == 0) return gate / (1 + std::exp(-gate)) * up;
  gate = std::min(gate, layer.limit);
  up = std::clamp(up, -layer.limit, layer.limit);
  return gate / (1 + std::exp(-layer.slope * gate)) * (up + 1);
}

class ReferenceKernels final : public Kernels {
 public:
  std::string_view name() const override { return "reference"; }
  std::string numerics() const override { return "reference/1"; }
  absl::Status CheckLayout(const kv::KvLayout& layout, int head_dim) const override {
    for (int l = 0; l < layout.layers; ++l) {
      const kv::KvLayer layer = layout.layer(l);
      for (const DType dtype : {layer.key_dtype, layer.value_dtype}) {
        if (dtype == DType::kF16) {
          return absl::InvalidArgumentError("the reference backend does not keep KV as f16");
        }
        if (dtype == DType::kI4 && layer.head_dim > kv::kMostI4Dim) {
          return absl::InvalidArgumentError(fmt::format(
              "KV as i4 takes heads of up to {} values; this model's have {}", kv::kMostI4Dim, head_dim));
        }
      }
    }
    return absl::OkStatus();
  }

  bool takes_transforms() const override { return true; }
  absl::StatusOr<std::unique_ptr<PackedMatrix>> Pack(std::span<const WeightView> parts) override {
    BATON_CHECK(!parts.empty());
    int64_t rows = 0;
    for (const WeightView& part : parts) {
      BATON_CHECK_EQ(part.cols, parts.front().cols);
      rows += part.rows;
    }
    auto packed = std::make_unique<ReferenceMatrix>(rows, parts.front().cols);
    float* out = packed->values.data();
    for (const WeightView& part : parts) {
      for (int64_t r = 0; r < part.rows; ++r, out += part.cols) {
        ReadRow(part, r, {out, static_cast<size_t>(part.cols)});
      }
    }
    return packed;
  }

  int64_t Begin(const StepRows& step) override {
    asked_ = step.tokens.data();
    tokens_.assign(step.tokens.begin(), step.tokens.end());
    for (const TakenToken& taken : step.taken) {
      tokens_[static_cast<size_t>(taken.row)] = sampler_.last()[static_cast<size_t>(taken.draw)];
    }
    return std::ssize(step.tokens);
  }
  void End() override { asked_ = nullptr; }

  void Embed(const PackedMatrix& table, std::span<const TokenId> ids, int64_t first, Matrix out) override {
    if (ids.data() == asked_) ids = tokens_;
    for (size_t r = 0; r < ids.size(); ++r) {
      const int64_t id = ids[r].value() - first;
      float* row = out.row(static_cast<int64_t>(r));
      if (id >= 0 && id < table.rows()) {
        std::copy_n(Own(table).row(id), out.cols, row);
      } else {
        std::fill_n(row, out.cols, 0.0f);
      }
    }
  }

  void GatherRows(Matrix from, std::span<const int64_t> rows, Matrix to) override {
    for (size_t i = 0; i < rows.size(); ++i) {
      std::copy_n(from.row(rows[i]), from.cols, to.row(static_cast<int64_t>(i)));
    }
  }

  void RmsNorm(Matrix x, std::span<const float> weight, float eps, Matrix out) override {
    for (int64_t r = 0; r < x.rows; ++r) Normalize(x.row(r), weight, eps, out.row(r));
  }

  void AddRmsNorm(Matrix x, Matrix y, std::span<const float> weight, float eps, Matrix out) override {
    for (int64_t r = 0; r < x.rows; ++r) {
      for (int64_t i = 0; i < x.cols; ++i) x.row(r)[i] += y.row(r)[i];
      Normalize(x.row(r), weight, eps, out.row(r));
    }
  }

  // out[r][o] = sum over i of x[r][i] w[o][i], plus bias[o]
  void MatMul(Matrix x, const PackedMatrix& w, std::span<const float> bias, Matrix out) override {
    for (int64_t r = 0; r < x.rows; ++r) {
      for (int64_t o = 0; o < w.rows(); ++o) {
        const float* weights = Own(w).row(o);
        double sum = 0;
        for (int64_t i = 0; i < w.cols(); ++i) sum += double{x.row(r)[i]} * weights[i];
        out.row(r)[o] = static_cast<float>(bias.empty() ? sum : sum + bias[static_cast<size_t>(o)]);
      }
    }
  }

  void RotateAndStore(Matrix qkv, const AttentionShape& shape, const QkNorm& norm, const RopeTable& rope,
                      std::span<const SequenceRows> sequences, int layer, kv::KvStore& store) override {
    for (const SequenceRows& sequence : sequences) {
      for (int64_t i = 0; i < sequence.rows; ++i) {
        const int64_t position = sequence.first_position + i;
        float* q = qkv.row(sequence.first_row + i);
        float* k = q + shape.heads * shape.head_dim;
        float* v = k + shape.kv_heads * shape.head_dim;
        for (int h = 0; h < shape.heads; ++h, q += shape.head_dim) {
          if (!norm.q.empty()) Normalize(q, norm.q, norm.eps, q);
          Rotate(q, rope, position);
        }
        std::byte* block = store.block(sequence.blocks[static_cast<size_t>(position / kBlockTokens)]);
        const kv::KvLayer& at = store.layer(layer);
        const int64_t token = position % kBlockTokens;
        for (int h = 0; h < shape.kv_heads; ++h, k += shape.head_dim, v += shape.head_dim) {
          if (!norm.k.empty()) Normalize(k, norm.k, norm.eps, k);
          Rotate(k, rope, position);
          vector_.assign(static_cast<size_t>(at.head_dim), 0);
          std::copy_n(k, shape.head_dim, vector_.begin());
          kv::StoreKey(at.key_dtype, vector_.data(), at.head_dim, token, block + at.key_offset(h));
          std::copy_n(v, shape.head_dim, vector_.begin());
          kv::StoreValue(at.value_dtype, vector_.data(), at.head_dim, token, block + at.value_offset(h));
        }
      }
    }
  }

  // out = sum over t of p[t] v[t],  p = softmax(scale * q . k[t]),  t in (position - window, position]; with
  // a sink, it is one more score of that softmax, and adds nothing to the sum.
  // The scores of one row and head are held at a time, never the matrix.
  void Attention(Matrix q, const AttentionShape& shape, std::span<const SequenceRows> sequences, int layer,
                 const kv::KvStore& store, Matrix out) override {
    const int group = shape.heads / shape.kv_heads;  // query heads that share a KV head
    for (const SequenceRows& sequence : sequences) {
      for (int64_t i = 0; i < sequence.rows; ++i) {
        const int64_t row = sequence.first_row + i;
        const int64_t position = sequence.first_position + i;
        const int64_t first = shape.window == 0 ? 0 : std::max<int64_t>(0, position - shape.window + 1);
        for (int h = 0; h < shape.heads; ++h) {
          AttendHead(q.row(row) + h * shape.head_dim, shape, sequence.blocks, first, position, layer,
                     h / group, shape.sinks.empty() ? -INFINITY : shape.sinks[static_cast<size_t>(h)], store,
                     out.row(row) + h * shape.head_dim);
        }
      }
    }
  }

  // out = gate / (1 + exp(-gate)) * up
  void SwiGlu(Matrix gate_up, Matrix out) override {
    for (int64_t r = 0; r < gate_up.rows; ++r) {
      const float* gate = gate_up.row(r);
      const float* up = gate + out.cols;
      for (int64_t i = 0; i < out.cols; ++i) out.row(r)[i] = gate[i] / (1 + std::exp(-gate[i])) * up[i];
    }
  }

  absl::Status CheckExperts() const override { return absl::OkStatus(); }

  void Route(Matrix logits, const Routing& routing, std::span<const float> choice_bias,
             Choices choices) override {
    const auto experts = static_cast<size_t>(routing.experts), chosen = static_cast<size_t>(routing.chosen);
    std::vector<float> scores(experts), scratch(experts);
    for (int64_t r = 0; r < logits.rows; ++r) {
      const std::span<const float> row(logits.row(r), experts);
      const std::span<ExpertChoice> to = choices.row(r);
      if (routing.score == Routing::Score::kSigmoid) {
        for (size_t e = 0; e < experts; ++e) scores[e] = Sigmoid(row[e]);
      } else {
        scores.assign(row.begin(), row.end());
        Softmax(scores);
      }
      ChooseExperts(routing, row, scores, choice_bias, scratch, to);
      if (routing.late_softmax) {
        scores.resize(chosen);
        for (size_t k = 0; k < chosen; ++k) scores[k] = to[k].weight;
        Softmax(scores);
        for (size_t k = 0; k < chosen; ++k) to[k].weight = scores[k];
        scores.resize(experts);
      }
      FinishWeights(routing, to.first(chosen));
      if (routing.shared) {
        to[chosen] = {.expert = routing.experts,
                      .weight = routing.shared_gated ? Sigmoid(logits.row(r)[experts]) : 1.0f};
      }
    }
  }

  void Experts(Matrix x, Choices choices, const ExpertLayer& layer, Matrix out, Collective* group,
               std::span<double> norms) override {
    BATON_CHECK(norms.empty() || group == nullptr);
    std::vector<float> gate_up, activated, given;
    std::vector<double> sum(static_cast<size_t>(out.cols));
    for (int64_t r = 0; r < x.rows; ++r) {
      std::ranges::fill(sum, 0.0);
      for (int k = 0; k < choices.per_row; ++k) {
        const auto& [id, weight] = choices.row(r)[static_cast<size_t>(k)];
        const Expert& expert = layer.experts[static_cast<size_t>(id)];
        Multiply(Own(*expert.gate_up), x.row(r), expert.gate_up_bias, gate_up);
        const size_t width = gate_up.size() / 2;
        activated.resize(width);
        for (size_t i = 0; i < width; ++i) activated[i] = Act(gate_up[i], gate_up[width + i], layer);
        const bool biased = group == nullptr || group->rank() == 0;
        Multiply(Own(*expert.down), activated.data(), biased ? expert.down_bias : std::span<const float>(),
                 given);
        double squares = 0;
        for (size_t i = 0; i < given.size(); ++i) {
          sum[i] += double{weight} * given[i];
          squares += double{given[i]} * given[i];
        }
        if (!norms.empty()) norms[static_cast<size_t>(r * choices.per_row + k)] = std::sqrt(squares);
      }
      for (size_t i = 0; i < sum.size(); ++i) out.row(r)[i] = static_cast<float>(sum[i]);
    }
    if (group != nullptr) group->AllReduce(out);
  }

  DeviceSampler* sampler() override { return &sampler_; }

 private:
  static void Softmax(std::span<float> values) {
    const float max = *std::ranges::max_element(values);
    double sum = 0;
    for (const float value : values) sum += std::exp(double{value} - max);
    for (float& value : values) value = static_cast<float>(std::exp(double{value} - max) / sum);
  }

  void AttendHead(const float* q, const AttentionShape& shape, std::span<const BlockId> blocks, int64_t first,
                  int64_t last, int layer, int kv_head, float sink, const kv::KvStore& store, float* out) {
    const kv::KvLayer& at = store.layer(layer);
    scores_.resize(static_cast<size_t>(last - first + 1));
    vector_.resize(static_cast<size_t>(at.head_dim));
    float max = sink;
    for (int64_t t = first; t <= last; ++t) {
      const std::byte* keys =
          store.block(blocks[static_cast<size_t>(t / kBlockTokens)]) + at.key_offset(kv_head);
      kv::LoadKey(at.key_dtype, keys, at.head_dim, t % kBlockTokens, vector_.data());
      double dot = 0;
      for (int d = 0; d < shape.head_dim; ++d) dot += double{q[d]} * vector_[static_cast<size_t>(d)];
      float& score = scores_[static_cast<size_t>(t - first)];
      score = static_cast<float>(dot * shape.scale);
      max = std::max(max, score);
    }
    double total = std::exp(double{sink} - max);
    weighted_.assign(static_cast<size_t>(shape.head_dim), 0.0);
    for (int64_t t = first; t <= last; ++t) {
      const double weight = std::exp(scores_[static_cast<size_t>(t - first)] - max);
      total += weight;
      const std::byte* values =
          store.block(blocks[static_cast<size_t>(t / kBlockTokens)]) + at.value_offset(kv_head);
      kv::LoadValue(at.value_dtype, values, at.head_dim, t % kBlockTokens, vector_.data());
      for (int d = 0; d < shape.head_dim; ++d) {
        weighted_[static_cast<size_t>(d)] += weight * vector_[static_cast<size_t>(d)];
      }
    }
    for (int d = 0; d < shape.head_dim; ++d) {
      out[d] = static_cast<float>(weighted_[static_cast<size_t>(d)] / total);
    }
  }

  std::vector<float> scores_;       // of one row and head
  std::vector<double> weighted_;    // [head_dim]
  std::vector<float> vector_;       // a head as KV keeps it
  const TokenId* asked_ = nullptr;  // the step's tokens, as the caller has them
  std::vector<TokenId> tokens_;     // and as they are
  ReferenceSampler sampler_;
};

}  // namespace

std::unique_ptr<Kernels> MakeReferenceKernels() { return std::make_unique<ReferenceKernels>(); }

}  // namespace baton::kernels
