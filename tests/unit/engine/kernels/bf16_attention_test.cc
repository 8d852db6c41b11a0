// Attention over KV in bfloat16 (cpu-kv-bf16x32/1) against its definition in plain code (bf16_attention.h):
// the same bits for every instruction set, head, window and chunk.
#include "engine/kernels/cpu/bf16_attention.h"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "engine/kernels/cpu/amx.h"
#include "engine/kernels/cpu/attention.h"
#include "engine/kernels/cpu/bf16_tiles.h"
#include "engine/kv/store/kv_codec.h"
#include "tests/unit/engine/kernels/trial.h"

namespace baton::kernels {
namespace {

using tensor::DType;

constexpr int64_t kTile = 64;
constexpr float kLog2E = 1.44269504088896341f;

bool Same(float a, float b) {
  return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b) || (std::isnan(a) && std::isnan(b));
}

float Rounded(float x) {
  return tensor::FromBF16(tensor::ToBF16(std::fabs(x) < 0x1p-126f ? std::copysign(0.0f, x) : x));
}

// C + the products of `count` columns, where column(k) is a pair of factors: by blocks of 32 for bfloat16
// (bf16_tiles.h), else one by one.
template <class Column>
float Sum(DType dtype, float c, size_t count, const Column& column) {
  if (dtype == DType::kF32) {
    for (size_t k = 0; k < count; ++k) c = std::fma(column(k).first, column(k).second, c);
    return c;
  }
  for (size_t block = 0; block < count; block += 32) {
    float halves[2] = {};
    for (size_t k = block; k < std::min(count, block + 32); ++k) {
      float& half = halves[(k - block) / 16];
      half = std::fma(Rounded(column(k).first), column(k).second, half);
    }
    c += halves[0] + halves[1];
  }
  return c;
}

// 2^x as vector_math-inl.h has it.
float Exp2(float x) {
  const bool underflow = x < -126.0f;
  x = std::min(127.0f, std::max(-126.0f, x));
  const float n = std::nearbyint(x), r = x - n;
  float p = 0.0001545316294512069f;
  for (const float c : {0.0013390863364671234f, 0.009618082557277852f, 0.05550357114219078f,
                        0.24022650760568126f, 0.6931471880262288f, 1.0f}) {
    p = std::fma(p, r, c);
  }
  return underflow ? 0 : p * std::ldexp(1.0f, static_cast<int>(n));
}

struct Head {
  DType keys, values;
  int dim;
  float scale;
  int64_t window;
  float sink;                            // -infinity: none
  std::vector<std::vector<float>> k, v;  // [tokens][dim], as they are stored
};

// Attention of the query at `position`.
std::vector<float> Attend(const Head& head, const float* q, int64_t position) {
  const cpu::FlushesDenormals flushes;
  const auto dim = static_cast<size_t>(head.dim);
  const int64_t first = head.window > 0 ? std::max<int64_t>(0, position - head.window + 1) : 0;
  std::vector<float> scaled(dim), out(dim, 0.0f);
  for (size_t d = 0; d < dim; ++d) scaled[d] = q[d] * (head.scale * kLog2E);
  std::array<float, 16> sum{};
  float max = -std::numeric_limits<float>::infinity();
  if (!std::isinf(head.sink)) {
    max = head.sink * kLog2E;
    sum[0] = 1;
  }
  for (int64_t start = first / kTile * kTile; start <= position; start += kTile) {
    std::array<float, kTile> p{};
    const auto seen = [&](size_t t) {
      return start + static_cast<int64_t>(t) >= first && start + static_cast<int64_t>(t) <= position;
    };
    const auto at = [&](size_t t) { return static_cast<size_t>(start) + t; };
    const float old = max;
    for (size_t t = 0; t < kTile; ++t) {
      if (!seen(t)) continue;
      p[t] = Sum(head.keys, 0, dim, [&](size_t d) { return std::pair(scaled[d], head.k[at(t)][d]); });
      max = std::max(max, p[t]);
    }
    const float shrink = Exp2(old - max);
    for (float& part : sum) part *= shrink;
    for (float& o : out) o *= shrink;
    for (size_t t = 0; t < kTile; ++t) {
      if (seen(t)) p[t] = Exp2(p[t] - max);
      sum[t % 16] += p[t];
    }
    // In float32 a chain has those that are seen alone, in bfloat16 all of a tile.
    const bool all = head.values == DType::kBF16;
    const auto begin = static_cast<size_t>(all ? 0 : std::max<int64_t>(0, first - start));
    const auto end = static_cast<size_t>(all ? kTile : std::min(kTile, position + 1 - start));
    for (size_t d = 0; d < dim; ++d) {
      out[d] = Sum(head.values, out[d], end - begin, [&](size_t i) {
        const size_t t = begin + i;
        return seen(t) ? std::pair(p[t], head.v[at(t)][d]) : std::pair(0.0f, 0.0f);
      });
    }
  }
  for (size_t half = 8; half > 0; half /= 2) {
    for (size_t i = 0; i < half; ++i) sum[i] += sum[i + half];
  }
  for (float& o : out) o = (head.values == DType::kBF16 ? o + 0.0f : o) / sum[0];
  return out;
}

// A sequence of `tokens` in a store whose blocks were full of NaNs.
class Sequence {
 public:
  Sequence(Kernels& kernels, const LayerShape& shape, std::vector<float> rows)
      : kernels_(kernels),
        shape_(shape),
        tokens_(std::ssize(rows) / shape.cols()),
        qkv_(OwnedMatrix::From(rows, tokens_, shape.cols())),
        store_(*kv::KvStore::Create({.layers = 1,
                                     .kv_heads = shape.attention.kv_heads,
                                     .head_dim = kv::StoredHeadDim(shape.attention.head_dim),
                                     .key_dtype = shape.key_dtype,
                                     .value_dtype = shape.value_dtype},
                                    BlocksFor(tokens_))) {
    for (int64_t b = 0; b < BlocksFor(tokens_); ++b) {
      blocks_.emplace_back(static_cast<uint32_t>(BlocksFor(tokens_) - 1 - b));
      std::memset(store_.block(blocks_.back()), 0xFF, static_cast<size_t>(store_.layout().block_bytes()));
    }
    const int half = shape.attention.head_dim / 2;
    const std::vector<float> cos(static_cast<size_t>(tokens_ * half), 1.0f), sin(cos.size(), 0.0f);
    const SequenceRows all = Rows(0, tokens_);
    kernels.RotateAndStore(qkv_.view(), shape.attention, {}, {cos, sin, half}, {&all, 1}, 0, store_);
  }

  // Attention of the tokens [first, first + count): [count][heads * head_dim].
  OwnedMatrix Attend(int64_t first, int64_t count) {
    const int64_t width = int64_t{shape_.attention.heads} * shape_.attention.head_dim;
    OwnedMatrix out(count, width);
    const SequenceRows rows = Rows(first, count);
    kernels_.Attention(qkv_.view().Rows(first, count).Columns(0, width), shape_.attention, {&rows, 1}, 0,
                       store_, out.view());
    return out;
  }
  const float* q(int64_t token, int head) {
    return qkv_.view().row(token) + head * shape_.attention.head_dim;
  }
  // Reads back a KV head's keys or values: [tokens][head_dim].
  std::vector<std::vector<float>> Stored(int head, bool keys) const {
    const kv::KvLayer& layer = store_.layer(0);
    std::vector<std::vector<float>> all;
    for (int64_t t = 0; t < tokens_; ++t) {
      const std::byte* block = store_.block(blocks_[static_cast<size_t>(t / kBlockTokens)]);
      std::vector<float> vector(static_cast<size_t>(layer.head_dim));
      if (keys) {
        kv::LoadKey(layer.key_dtype, block + layer.key_offset(head), layer.head_dim, t % kBlockTokens,
                    vector.data());
      } else {
        kv::LoadValue(layer.value_dtype, block + layer.value_offset(head), layer.head_dim, t % kBlockTokens,
                      vector.data());
      }
      vector.resize(static_cast<size_t>(shape_.attention.head_dim));
      all.push_back(std::move(vector));
    }
    return all;
  }

 private:
  SequenceRows Rows(int64_t first, int64_t count) const {
    return {.first_row = 0, .rows = count, .first_position = first, .blocks = blocks_};
  }

  Kernels& kernels_;
  const LayerShape shape_;
  const int64_t tokens_;
  OwnedMatrix qkv_;
  kv::KvStore store_;
  std::vector<BlockId> blocks_;
};

class BF16AttentionTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    std::string why;
    kernels_ = TryMakeCpu(GetParam(), 2, &why);
    if (kernels_ == nullptr) GTEST_SKIP() << why;
  }
  std::unique_ptr<Kernels> kernels_;
};
INSTANTIATE_TEST_SUITE_P(Isa, BF16AttentionTest, testing::Values("avx2", "avx512", "avx512vnni", "amx"),
                         [](const auto& info) { return info.param; });

TEST_P(BF16AttentionTest, HasTheBitsOfItsDefinition) {
  constexpr uint64_t kSeed = 61;
  SCOPED_TRACE(testing::Message() << "seed " << kSeed);
  Random random(kSeed);
  struct Case {
    int heads, kv_heads, dim;
    int64_t window;
    bool sinks;
    DType keys, values;
    float size;         // of keys and queries
    float values_size;  // and of values
  };
  for (const Case& c : {Case{6, 1, 64, 0, false, DType::kBF16, DType::kBF16, 1, 1},
                        {10, 2, 40, 0, true, DType::kBF16, DType::kBF16, 1, 1},
                        {3, 3, 128, 37, false, DType::kBF16, DType::kBF16, 1, 1},
                        {4, 1, 50, 90, true, DType::kBF16, DType::kBF16, 1, 1},
                        {7, 1, 256, 0, false, DType::kBF16, DType::kBF16, 1, 1},
                        {2, 1, 24, 0, false, DType::kBF16, DType::kBF16, 0x1p-63f, 1},
                        {5, 1, 96, 0, false, DType::kBF16, DType::kF32, 1, 1},
                        {8, 1, 72, 33, false, DType::kF32, DType::kBF16, 1, 1},
                        // Products and sums come close to 2^-126, or below.
                        {6, 2, 32, 0, false, DType::kBF16, DType::kBF16, 1, 0x1p-122f},
                        {3, 1, 40, 0, true, DType::kF32, DType::kBF16, 1, 0x1p-122f},
                        {5, 1, 64, 50, false, DType::kBF16, DType::kF32, 1, 0x1p-122f}}) {
    const LayerShape shape = {.attention = {.heads = c.heads,
                                            .kv_heads = c.kv_heads,
                                            .head_dim = c.dim,
                                            .scale = 1 / std::sqrt(static_cast<float>(c.dim)),
                                            .window = c.window,
                                            .sinks = TrialSinks(c.sinks ? c.heads : 0)},
                              .key_dtype = c.keys,
                              .value_dtype = c.values};
    constexpr int64_t kTokens = 150;
    std::vector<float> rows = random.Normals(kTokens * shape.cols(), c.size);
    const int64_t values_at = shape.cols() - int64_t{c.kv_heads} * c.dim;
    for (size_t i = 0; i < rows.size(); ++i) {
      if (static_cast<int64_t>(i) % shape.cols() >= values_at) rows[i] *= c.values_size / c.size;
    }
    Sequence sequence(*kernels_, shape, rows);
    const int group = c.heads / c.kv_heads;
    for (const auto& [first, count] : {std::pair<int64_t, int64_t>{0, kTokens}, {40, 1}, {63, 3}, {149, 1}}) {
      OwnedMatrix out = sequence.Attend(first, count);
      const int64_t step = count > 3 ? 7 : 1;
      for (int h = 0; h < c.heads; ++h) {
        const Head head = {.keys = c.keys,
                           .values = c.values,
                           .dim = c.dim,
                           .scale = shape.attention.scale,
                           .window = c.window,
                           .sink = c.sinks ? shape.attention.sinks[static_cast<size_t>(h)] : -INFINITY,
                           .k = sequence.Stored(h / group, true),
                           .v = sequence.Stored(h / group, false)};
        for (int64_t token = first; token < first + count; token += step) {
          const std::vector<float> expected = Attend(head, sequence.q(token, h), token);
          for (int d = 0; d < c.dim; ++d) {
            ASSERT_TRUE(Same(out.view().row(token - first)[h * c.dim + d], expected[static_cast<size_t>(d)]))
                << out.view().row(token - first)[h * c.dim + d] << " is not "
                << expected[static_cast<size_t>(d)] << ": token " << token << " of " << first << " + "
                << count << ", head " << h << ", number " << d << " of " << c.dim;
          }
        }
      }
    }
  }
}

// A row that does not see a token has the bits that it has without it, whatever the token's value is, and
// whichever rows share its pass.
TEST_P(BF16AttentionTest, WhatARowDoesNotSeeNeverTouchesIt) {
  constexpr uint64_t kSeed = 62;
  SCOPED_TRACE(testing::Message() << "seed " << kSeed);
  Random random(kSeed);
  for (const int64_t window : {0, 20}) {
    const LayerShape shape = {
        .attention = {.heads = 5, .kv_heads = 1, .head_dim = 40, .scale = 0.2f, .window = window},
        .key_dtype = DType::kBF16,
        .value_dtype = DType::kBF16};
    constexpr int64_t kTokens = 100;
    const std::vector<float> rows = random.Normals(kTokens * shape.cols());
    Sequence whole(*kernels_, shape, rows);
    OwnedMatrix expected = whole.Attend(0, kTokens);
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    // Tokens of even and of odd numbers, since KV is read in pairs.
    for (const auto& [at, poison] : {std::pair{int64_t{70}, std::numeric_limits<float>::quiet_NaN()},
                                     {71, kInfinity},
                                     {64, -kInfinity},
                                     {79, std::numeric_limits<float>::quiet_NaN()}}) {
      std::vector<float> broken = rows;
      for (int d = 0; d < 40; ++d) broken[static_cast<size_t>((at + 1) * shape.cols() - 1 - d)] = poison;
      Sequence sequence(*kernels_, shape, broken);
      OwnedMatrix out = sequence.Attend(0, kTokens);
      for (int64_t t = 0; t < kTokens; ++t) {
        const bool sees = t >= at && (window == 0 || t < at + window);
        if (sees) {
          for (const float value : out.row(t)) EXPECT_FALSE(std::isfinite(value)) << t;
        } else {
          EXPECT_TRUE(SameBits(out.row(t), expected.row(t))) << t;
        }
        EXPECT_TRUE(sees || SameBits(sequence.Attend(t, 1).row(0), expected.row(t))) << t;
      }
    }
  }
}

// A processor may have several kinds of passes: AttentionTilesFor takes those that are faster.
TEST(BF16AttentionPassesTest, OtherInstructionsGiveTheBitsOfMultiplyAdds) {
#if defined(__x86_64__)
  const cpu::BF16Way adds = cpu::AttentionTilesFor(cpu::Isa::kAvx2).bf16;
  std::vector<std::pair<std::string, cpu::BF16Way>> others;
  if (cpu::HasBF16Dot()) {
    const cpu::BF16Tiles& tiles = cpu::kBF16DotTiles;
    others.push_back({"dot",
                      {.rows = cpu::kSideBySide,
                       .x_block_bytes = tiles.x_block_bytes,
                       .round = tiles.round,
                       .passes = &cpu::kBF16DotAttention}});
  }
  if (cpu::Amx().usable) others.push_back({"amx", cpu::AttentionTilesFor(cpu::Isa::kAmx).bf16_many});
  if (others.empty()) GTEST_SKIP() << "this machine has no instruction for bfloat16";
  constexpr uint64_t kSeed = 63;
  SCOPED_TRACE(testing::Message() << "seed " << kSeed);
  Random random(kSeed);
  for (const int dim : {8, 24, 64, 104, 128, 256}) {
    const auto numbers = [&](int64_t count) {
      std::vector<uint16_t> all;
      for (const float value : random.Normals(count)) all.push_back(tensor::ToBF16(value));
      return all;
    };
    std::vector<std::vector<uint16_t>> blocks;
    cpu::TileOfBlocks tile = {.now = {}, .next = {}, .ahead = true};
    for (int b = 0; b < cpu::kTileBlocks; ++b) blocks.push_back(numbers(dim * kBlockTokens));
    for (size_t b = 0; b < blocks.size(); ++b) {
      tile.now[b] = reinterpret_cast<const std::byte*>(blocks[b].data());
      tile.next[b] = reinterpret_cast<const std::byte*>(blocks[blocks.size() - 1 - b].data());
    }
    for (const int rows : {1, 2, 3, 4, 5, 6, 13, 16, 31, 32, 33, 47, 48}) {
      const std::vector<float> q = random.Normals(rows * dim), p = random.Normals(rows * kTile);
      const std::vector<float> begun = random.Normals((dim / 64 + 1) * cpu::kQueryTile * kTile);
      for (const cpu::TokenRange range : {cpu::TokenRange{0, 64}, {5, 64}, {17, 50}, {31, 32}, {0, 33}}) {
        const auto run = [&](const cpu::BF16Way& way) {
          const int64_t q_stride = cpu::BF16Blocks(dim) * way.x_block_bytes, p_stride = 2 * way.x_block_bytes;
          std::vector<std::byte> q_rows(static_cast<size_t>(rows * q_stride)),
              p_rows(static_cast<size_t>(rows * p_stride));
          for (int r = 0; r < rows; ++r) {
            std::array<float, kTile> weights{};
            for (int t = range.begin; t < range.end; ++t)
              weights[static_cast<size_t>(t)] = p[static_cast<size_t>(r * kTile + t)];
            way.round(q.data() + r * dim, dim, q_rows.data() + r * q_stride);
            way.round(weights.data(), kTile, p_rows.data() + r * p_stride);
          }
          const cpu::FlushesDenormals flushes;
          std::vector<float> scores(static_cast<size_t>(rows * kTile)), out = begun, seen;
          for (int first = 0; first < rows; first += way.rows) {
            const int some = std::min(way.rows, rows - first);
            way.passes->score({.rows = some,
                               .x = q_rows.data() + first * q_stride,
                               .x_stride = q_stride,
                               .head_dim = dim,
                               .keys = &tile,
                               .first_block = range.begin / 16,
                               .end_block = (range.end + 15) / 16,
                               .scores = scores.data() + first * kTile});
            way.passes->mix({.rows = some,
                             .x = p_rows.data() + first * p_stride,
                             .x_stride = p_stride,
                             .range = range,
                             .values = &tile,
                             .head_dim = dim,
                             .out = out.data() + first * kTile});
          }
          for (int r = 0; r < rows; ++r) {
            for (int t = range.begin; t < range.end; ++t)
              seen.push_back(scores[static_cast<size_t>(r * kTile + t)]);
            for (int d = 0; d < dim; ++d)
              seen.push_back(out[static_cast<size_t>(cpu::OutPanel(d) + r * 64 + d % 64)]);
          }
          return seen;
        };
        const std::vector<float> expected = run(adds);
        for (const auto& [name, way] : others) {
          EXPECT_TRUE(SameBits(run(way), expected))
              << name << ", " << rows << " rows, " << dim << " numbers, tokens " << range.begin << " to "
              << range.end;
        }
      }
    }
  }
#else
  GTEST_SKIP() << "no instruction for bfloat16 here";
#endif
}

TEST_P(BF16AttentionTest, LeavesTheThreadsArithmeticAsItWas) {
  const LayerShape shape = {.attention = {.heads = 1, .kv_heads = 1, .head_dim = 8, .scale = 1, .window = 0},
                            .key_dtype = DType::kBF16,
                            .value_dtype = DType::kBF16};
  Sequence(*kernels_, shape, std::vector<float>(24, 1.0f)).Attend(0, 1);
  volatile float small = 0x1p-130f;
  EXPECT_GT(small * 0.5f, 0.0f);
}

TEST_P(BF16AttentionTest, HasAClassOfItsOwn) {
  kv::KvLayout layout = {.layers = 3, .kv_heads = 1, .head_dim = 8};
  EXPECT_EQ(kernels_->KvNumerics(layout), "");
  layout.value_dtype = DType::kBF16;
  EXPECT_EQ(kernels_->KvNumerics(layout), "cpu-kv-bf16x32/1");
  layout.exceptions = {{.layer = 1, .key_dtype = DType::kI8, .value_dtype = DType::kI4}};
  EXPECT_EQ(kernels_->KvNumerics(layout), "cpu-kv-bf16x32/1+cpu-kv-i8/1");
}

}  // namespace
}  // namespace baton::kernels
