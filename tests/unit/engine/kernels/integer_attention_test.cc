// Attention over KV in integers against its definition (integer_attention-inl.h), computed from the bytes of
// the blocks one number at a time.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <tuple>
#include <vector>

#include "engine/kv/store/kv_codec.h"
#include "tests/unit/engine/kernels/trial.h"

namespace baton::kernels {
namespace {

using tensor::DType;

constexpr int kDim = 40, kHeads = 6;
constexpr int64_t kTokens = 150, kTile = 64;
constexpr float kScale = 0.16f;

// The integers of one stored vector, and their scale.
struct Stored {
  std::vector<int> numbers;
  float scale;
};

Stored Read(DType dtype, bool keys, const std::byte* data, int64_t token) {
  Stored stored = {{}, kv::ScaleOf(dtype, kDim, data, token)};
  for (int d = 0; d < kDim; ++d) {
    if (dtype == DType::kI8) {
      const int64_t at = keys ? d * kBlockTokens + token : token * kDim + d;
      stored.numbers.push_back(std::to_integer<int8_t>(data[at]));
    } else {
      const auto place = keys ? kv::I4KeyPlace(d, token) : kv::I4ValuePlace(d, kDim, token);
      stored.numbers.push_back(kv::kI4Levels[kv::CodeAt(data, place)]);
    }
  }
  return stored;
}

// `numbers` as integers up to `most`, and the scale that takes them back.
std::pair<std::vector<int>, double> Round(const std::vector<double>& numbers, double most) {
  double largest = 0;
  for (double x : numbers) largest = std::max(largest, std::abs(x));
  std::vector<int> rounded;
  for (double x : numbers) rounded.push_back(static_cast<int>(std::nearbyint(x * most / largest)));
  return {rounded, largest / most};
}

// Attention of the query at `position`, which sees all tokens up to its own, and a sink.
std::vector<float> Attend(std::vector<float> q, float sink, int64_t position, DType key, DType value,
                          const std::vector<Stored>& keys, const std::vector<Stored>& values) {
  if (key == DType::kI4) kv::Rotate(q.data(), kDim);
  const auto [a, dq] = Round({q.begin(), q.end()}, 127);
  std::vector<double> out(kDim, 0.0);
  double max = sink, sum = std::isinf(sink) ? 0 : 1;
  for (int64_t start = 0; start <= position; start += kTile) {
    const int64_t end = std::min(start + kTile, position + 1);
    std::vector<double> scores;
    for (int64_t t = start; t < end; ++t) {
      const Stored& k = keys[static_cast<size_t>(t)];
      int dot = 0;
      for (size_t d = 0; d < kDim; ++d) dot += a[d] * k.numbers[d];
      scores.push_back(dot * dq * k.scale * kScale);
    }
    const double old = max;
    max = std::max(max, *std::max_element(scores.begin(), scores.end()));
    const double shrink = std::exp(old - max);
    sum *= shrink;
    for (double& o : out) o *= shrink;
    std::vector<double> weights;
    for (int64_t t = start; t < end; ++t) {
      const double p = std::exp(scores[static_cast<size_t>(t - start)] - max);
      sum += p;
      weights.push_back(p * values[static_cast<size_t>(t)].scale);
    }
    const auto [u, by] = Round(weights, 16383);
    for (size_t d = 0; d < kDim; ++d) {
      int dot = 0;
      for (size_t t = 0; t < u.size(); ++t) {
        dot += u[t] * values[static_cast<size_t>(start) + t].numbers[d];
      }
      out[d] += dot * by;
    }
  }
  std::vector<float> result;
  for (double o : out) result.push_back(static_cast<float>(o / sum));
  if (value == DType::kI4) kv::Rotate(result.data(), kDim);
  return result;
}

class IntegerAttentionTest : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Isa, IntegerAttentionTest,
                         testing::Values("baseline", "avx2", "avx512", "avx512vnni", "amx"),
                         [](const auto& info) { return info.param; });

TEST_P(IntegerAttentionTest, IsItsDefinition) {
  std::string why;
  auto kernels = TryMakeCpu(GetParam(), 2, &why);
  if (kernels == nullptr) GTEST_SKIP() << why;
  Random random(51);
  AttentionShape shape = {.heads = kHeads, .kv_heads = 1, .head_dim = kDim, .scale = kScale, .window = 0};
  for (const auto& [key, value, sinks] : {std::tuple{DType::kI8, DType::kI8, false},
                                          {DType::kI8, DType::kI4, false},
                                          {DType::kI4, DType::kI8, false},
                                          {DType::kI8, DType::kI8, true},
                                          {DType::kI4, DType::kI4, true}}) {
    shape.sinks = TrialSinks(sinks ? kHeads : 0);
    const int64_t cols = int64_t{kHeads + 2} * kDim;
    OwnedMatrix qkv = OwnedMatrix::From(random.Normals(kTokens * cols), kTokens, cols);
    OwnedMatrix out(kTokens, kHeads * kDim);
    const std::vector<float> cos(kTokens * kDim / 2, 1.0f), sin(cos.size(), 0.0f);
    kv::KvStore store = *kv::KvStore::Create(
        {.layers = 1, .kv_heads = 1, .head_dim = kDim, .key_dtype = key, .value_dtype = value}, 10);
    std::vector<BlockId> blocks;
    for (uint32_t b = 0; b < 10; ++b) blocks.emplace_back(9 - b);
    const SequenceRows sequence = {.first_row = 0, .rows = kTokens, .first_position = 0, .blocks = blocks};
    kernels->RotateAndStore(qkv.view(), shape, {}, {cos, sin, kDim / 2}, {&sequence, 1}, 0, store);
    kernels->Attention(qkv.view().Columns(0, kHeads * kDim), shape, {&sequence, 1}, 0, store, out.view());
    std::vector<Stored> keys, values;
    for (int64_t t = 0; t < kTokens; ++t) {
      const std::byte* block = store.block(blocks[static_cast<size_t>(t / kBlockTokens)]);
      keys.push_back(Read(key, true, block + store.layer(0).key_offset(0), t % kBlockTokens));
      values.push_back(Read(value, false, block + store.layer(0).value_offset(0), t % kBlockTokens));
    }
    for (int64_t row : {0, 1, 15, 16, 63, 64, 100, 149}) {
      for (int h = 0; h < kHeads; ++h) {
        const float* q = qkv.view().row(row) + h * kDim;
        const float sink = sinks ? shape.sinks[static_cast<size_t>(h)] : -INFINITY;
        const std::vector<float> expected = Attend({q, q + kDim}, sink, row, key, value, keys, values);
        for (int d = 0; d < kDim; ++d) {
          // A weight that lies between two integers may go to the other one: 1 of 16383.
          EXPECT_NEAR(out.view().row(row)[h * kDim + d], expected[static_cast<size_t>(d)], 3e-4)
              << "row " << row << ", head " << h << ", " << tensor::Name(key) << "/" << tensor::Name(value);
        }
      }
    }
  }
}

}  // namespace
}  // namespace baton::kernels
