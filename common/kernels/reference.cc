// The reference backend: what every other backend is judged by. Values are float32, one thread, one loop per
// formula; sums are taken in float64, in index order, so that its own rounding stays well below that of the
// backends it judges.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <set>
#include <vector>

#include "common/base/check.h"
#include "common/kernels/kernels.h"

namespace baton::kernels {
namespace {

using tensor::DType;
using tensor::ValueAt;

// KV is kept as f32, bf16, f8 or i8; rounding is to nearest even. `value` has been divided by its scale.
void PutKv(std::byte* data, DType dtype, int64_t i, float value) {
  switch (dtype) {
    case DType::kF32:
      std::memcpy(data + i * 4, &value, 4);
      return;
    case DType::kF8:
      data[i] = static_cast<std::byte>(tensor::ToF8(value));
      return;
    case DType::kI8:
      data[i] = static_cast<std::byte>(static_cast<int8_t>(std::nearbyint(value)));
      return;
    case DType::kBF16: {
      const uint16_t bits = tensor::ToBF16(value);
      std::memcpy(data + i * 2, &bits, 2);
      return;
    }
    case DType::kF16:
      BATON_CHECK(false) << " KV is not kept as f16";
  }
}

// The scale of a vector: its largest magnitude becomes the dtype's largest number.
float ScaleOf(const float* values, int count, DType dtype) {
  float largest = 0;
  for (int i = 0; i < count; ++i) largest = std::max(largest, std::abs(values[i]));
  return largest / tensor::LargestOf(dtype);
}

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

class ReferenceKernels final : public Kernels {
 public:
  std::string_view name() const override { return "reference"; }
  std::string numerics() const override { return "reference/1"; }

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
      for (int64_t r = 0; r < part.rows; ++r) {
        for (int64_t c = 0; c < part.cols; ++c) *out++ = ValueAt(part, r, c);
      }
    }
    return packed;
  }

  int64_t Begin(const StepRows& step) override {
    asked_ = step.tokens.data();
    tokens_.assign(step.tokens.begin(), step.tokens.end());
    for (const TakenToken& taken : step.taken) {
      tokens_[static_cast<size_t>(taken.row)] = last_drawn_[static_cast<size_t>(taken.draw)];
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
        const int64_t token = position % kBlockTokens;
        for (int h = 0; h < shape.kv_heads; ++h, k += shape.head_dim, v += shape.head_dim) {
          if (!norm.k.empty()) Normalize(k, norm.k, norm.eps, k);
          Rotate(k, rope, position);
          StoreHead(store.layout(), block, layer, h, token, k, v);
        }
      }
    }
  }

  // out = sum over t of p[t] v[t],  p = softmax(scale * q . k[t]),  t in (position - window, position].
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
                     h / group, store, out.row(row) + h * shape.head_dim);
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

  bool Draws(int64_t vocabulary) const override { return true; }

  bool ReserveCounts(int32_t slots, int64_t vocabulary) override {
    if (std::ssize(seen_) < slots) seen_.resize(static_cast<size_t>(slots));
    return true;
  }

  void Draw(Matrix logits, const StepDraws& draws) override {
    BATON_CHECK(drawn_.size() < 2);
    for (const SeenTokens& start : draws.seen) {
      Seen& seen = seen_.at(static_cast<size_t>(start.slot));
      seen = {.prompt = {start.prompt.begin(), start.prompt.end()}, .output = {}};
      for (TokenId token : start.output) ++seen.output[token];
    }
    last_drawn_.clear();
    for (const RowDraw& draw : draws.rows) {
      // Other ranks read the same row.
      std::vector<float> row(logits.row(draw.row), logits.row(draw.row) + logits.cols);
      Adjust(row, draw, draws.biases);
      last_drawn_.push_back(DrawOne(row, draw));
      if (draw.slot >= 0) ++seen_.at(static_cast<size_t>(draw.slot)).output[last_drawn_.back()];
    }
    drawn_.push_back(last_drawn_);
  }

  void Drawn(std::span<TokenId> tokens) override {
    BATON_CHECK(!drawn_.empty() && drawn_.front().size() == tokens.size());
    std::ranges::copy(drawn_.front(), tokens.begin());
    drawn_.pop_front();
  }

 private:
  // keys [kv_heads][head_dim][kBlockTokens], values [kv_heads][kBlockTokens][head_dim] (kv/store/kv_layout.h)
  static void StoreHead(const kv::KvLayout& layout, std::byte* block, int layer, int head, int64_t token,
                        const float* k, const float* v) {
    std::byte* keys = block + layout.key_offset(layer, head);
    std::byte* values = block + layout.value_offset(layer, head);
    const float key_scale = PutScale(layout, layout.key_dtype, keys, token, k);
    const float value_scale = PutScale(layout, layout.value_dtype, values, token, v);
    for (int d = 0; d < layout.head_dim; ++d) {
      PutKv(keys, layout.key_dtype, d * kBlockTokens + token, k[d] * key_scale);
      PutKv(values, layout.value_dtype, token * layout.head_dim + d, v[d] * value_scale);
    }
  }

  // Writes a token's scale behind its head's keys or values and returns what numbers are to be multiplied by.
  static float PutScale(const kv::KvLayout& layout, DType dtype, std::byte* data, int64_t token,
                        const float* x) {
    if (!tensor::IsScaled(dtype)) return 1;
    const float scale = ScaleOf(x, layout.head_dim, dtype);
    std::memcpy(data + layout.scales_at(dtype) + token * 4, &scale, 4);
    return scale > 0 ? 1 / scale : 0;
  }

  static float ScaleAt(const kv::KvLayout& layout, DType dtype, const std::byte* data, int64_t token) {
    return tensor::IsScaled(dtype) ? ValueAt(data + layout.scales_at(dtype), DType::kF32, token) : 1;
  }

  void AttendHead(const float* q, const AttentionShape& shape, std::span<const BlockId> blocks, int64_t first,
                  int64_t last, int layer, int kv_head, const kv::KvStore& store, float* out) {
    const kv::KvLayout& layout = store.layout();
    scores_.resize(static_cast<size_t>(last - first + 1));
    float max = -INFINITY;
    for (int64_t t = first; t <= last; ++t) {
      const std::byte* keys =
          store.block(blocks[static_cast<size_t>(t / kBlockTokens)]) + layout.key_offset(layer, kv_head);
      double dot = 0;
      for (int d = 0; d < shape.head_dim; ++d) {
        dot += double{q[d]} * ValueAt(keys, layout.key_dtype, d * kBlockTokens + t % kBlockTokens);
      }
      float& score = scores_[static_cast<size_t>(t - first)];
      score =
          static_cast<float>(dot * ScaleAt(layout, layout.key_dtype, keys, t % kBlockTokens) * shape.scale);
      max = std::max(max, score);
    }
    double total = 0;
    weighted_.assign(static_cast<size_t>(shape.head_dim), 0.0);
    for (int64_t t = first; t <= last; ++t) {
      const double weight = std::exp(scores_[static_cast<size_t>(t - first)] - max);
      total += weight;
      const std::byte* values =
          store.block(blocks[static_cast<size_t>(t / kBlockTokens)]) + layout.value_offset(layer, kv_head);
      const double scaled = weight * ScaleAt(layout, layout.value_dtype, values, t % kBlockTokens);
      for (int d = 0; d < shape.head_dim; ++d) {
        weighted_[static_cast<size_t>(d)] +=
            scaled * ValueAt(values, layout.value_dtype, (t % kBlockTokens) * shape.head_dim + d);
      }
    }
    for (int d = 0; d < shape.head_dim; ++d) {
      out[d] = static_cast<float>(weighted_[static_cast<size_t>(d)] / total);
    }
  }

  // What a slot counts.
  struct Seen {
    std::set<TokenId> prompt;
    std::map<TokenId, int> output;
  };

  // The formulas of sampling::Sampler's order, token by token.
  void Adjust(std::vector<float>& row, const RowDraw& draw, std::span<const TokenBias> biases) const {
    constexpr float kLargest = std::numeric_limits<float>::max();
    const Seen none;
    const Seen& seen = draw.slot < 0 ? none : seen_.at(static_cast<size_t>(draw.slot));
    for (size_t i = 0; i < row.size(); ++i) {
      const TokenId token(static_cast<int32_t>(i));
      const auto found = seen.output.find(token);
      const int count = found == seen.output.end() ? 0 : found->second;
      if (row[i] > kLargest) row[i] = kLargest;
      if (count > 0 || seen.prompt.contains(token)) {
        row[i] = row[i] < 0 ? row[i] * draw.repetition_penalty
                            : std::min(row[i] / draw.repetition_penalty, kLargest);
      }
      if (count > 0) row[i] -= draw.presence_penalty + draw.frequency_penalty * static_cast<float>(count);
    }
    for (const TokenBias& bias :
         biases.subspan(static_cast<size_t>(draw.first_bias), static_cast<size_t>(draw.bias_count))) {
      row[static_cast<size_t>(bias.token)] += bias.bias;
    }
  }

  // As draw.h says it: sorted, weighed, cut three times, and added up until the share is passed.
  static TokenId DrawOne(std::span<const float> logits, const RowDraw& draw) {
    struct Token {
      float logit;
      int32_t id;
      double weight;  // in units of the likeliest one's
    };
    std::vector<Token> order;
    for (size_t i = 0; i < logits.size(); ++i) {
      if (!(logits[i] > -INFINITY)) continue;  // NaN, too
      order.push_back({std::min(logits[i], std::numeric_limits<float>::max()), static_cast<int32_t>(i), 1});
    }
    std::ranges::stable_sort(order, std::greater(), &Token::logit);
    if (order.empty()) return TokenId(-1);
    if (draw.temperature == 0) return TokenId(order.front().id);
    if (draw.top_k > 0 && std::ssize(order) > draw.top_k) order.resize(static_cast<size_t>(draw.top_k));
    double mass = 0;
    for (Token& token : order) {
      token.weight = std::exp((double{token.logit} - double{order.front().logit}) / double{draw.temperature});
      mass += token.weight;
    }
    const double enough = draw.top_p < 1 ? draw.top_p * mass : INFINITY;
    mass = 0;
    size_t kept = 0;
    for (; kept < order.size() && mass < enough && order[kept].weight >= draw.min_p; ++kept) {
      mass += order[kept].weight;
    }
    double passed = 0;
    size_t drawn = 0;
    while ((passed += order[drawn].weight) <= draw.uniform * mass && drawn + 1 < kept) ++drawn;
    return TokenId(order[drawn].id);
  }

  std::vector<float> scores_;       // of one row and head
  std::vector<double> weighted_;    // [head_dim]
  const TokenId* asked_ = nullptr;  // the step's tokens, as the caller has them
  std::vector<TokenId> tokens_;     // and as they are
  std::vector<Seen> seen_;          // by slot
  std::vector<TokenId> last_drawn_;
  std::deque<std::vector<TokenId>> drawn_;  // that nobody has asked for yet
};

}  // namespace

std::unique_ptr<Kernels> MakeReferenceKernels() { return std::make_unique<ReferenceKernels>(); }

}  // namespace baton::kernels
