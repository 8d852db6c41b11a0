// The cpu backend against its slow twin, `reference`, on ragged random shapes. Both compute in float32 with
// different orders of summation; the tolerances are a small multiple of the rounding that a sum of that
// length has.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <tuple>

#include "common/tensor/dtype.h"
#include "tests/unit/engine/kernels/trial.h"

namespace baton::kernels {
namespace {

using tensor::DType;

// Parameter: instruction set, threads.
class CpuKernelsTest : public testing::TestWithParam<std::tuple<std::string, int>> {
 protected:
  void SetUp() override {
    std::string why;
    cpu_ = TryMakeCpu(std::get<0>(GetParam()), std::get<1>(GetParam()), &why);
    if (cpu_ == nullptr) GTEST_SKIP() << why;
  }
  std::unique_ptr<Kernels> cpu_;
  std::unique_ptr<Kernels> reference_ = MakeReferenceKernels();
};

INSTANTIATE_TEST_SUITE_P(Isa, CpuKernelsTest,
                         testing::Combine(testing::Values("baseline", "avx2", "avx512", "avx512vnni", "amx"),
                                          testing::Values(1, 3)),
                         [](const auto& info) {
                           return std::get<0>(info.param) + "_" + std::to_string(std::get<1>(info.param)) +
                                  "threads";
                         });

// The largest difference, relative to the largest value.
void ExpectClose(const std::vector<float>& actual, const std::vector<float>& expected, double tolerance) {
  ASSERT_EQ(actual.size(), expected.size());
  double largest = 0, difference = 0;
  for (size_t i = 0; i < actual.size(); ++i) {
    ASSERT_TRUE(std::isfinite(actual[i])) << "at " << i;
    largest = std::max(largest, std::abs(double{expected[i]}));
    difference = std::max(difference, std::abs(double{actual[i]} - double{expected[i]}));
  }
  EXPECT_GT(largest, 0);
  EXPECT_LE(difference, tolerance * largest);
}

std::vector<uint16_t> RoundToBF16(const std::vector<float>& values) {
  std::vector<uint16_t> bits;
  for (float value : values) bits.push_back(tensor::ToBF16(value));
  return bits;
}

// Same for float16, by truncation, within its normal range.
std::vector<uint16_t> CutToF16(const std::vector<float>& values) {
  std::vector<uint16_t> bits;
  for (float value : values) {
    const uint32_t raw = std::bit_cast<uint32_t>(value);
    const int exponent = static_cast<int>(raw >> 23 & 0xFF) - 127 + 15;
    bits.push_back(exponent < 1 || exponent > 30
                       ? 0
                       : static_cast<uint16_t>(raw >> 16 & 0x8000) |
                             static_cast<uint16_t>(exponent << 10 | (raw >> 13 & 0x3FF)));
  }
  return bits;
}

TEST_P(CpuKernelsTest, MatMul) {
  constexpr uint64_t kSeed = 11;
  SCOPED_TRACE(testing::Message() << "seed " << kSeed);
  Random random(kSeed);
  const int64_t shapes[][3] = {{1, 1, 1},     {1, 64, 64},    {3, 65, 17},  {6, 128, 300}, {7, 192, 512},
                               {13, 100, 33}, {16, 320, 257}, {33, 63, 64}, {50, 200, 700}};
  for (const auto& [rows, features, depth] : shapes) {
    for (DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
      for (bool with_bias : {false, true}) {
        SCOPED_TRACE(testing::Message() << rows << " x " << features << " x " << depth << " "
                                        << tensor::Name(dtype) << (with_bias ? " bias" : ""));
        // Two parts, as Q, K and V are packed.
        const int64_t first_rows = features / 3;
        const std::vector<float> w = random.Normals(features * depth);
        const std::vector<uint16_t> halves = dtype == DType::kF16 ? CutToF16(w) : RoundToBF16(w);
        const auto part = [&](int64_t row, int64_t count) {
          const void* data = dtype == DType::kF32 ? static_cast<const void*>(w.data() + row * depth)
                                                  : static_cast<const void*>(halves.data() + row * depth);
          return WeightView{data, dtype, count, depth};
        };
        std::vector<WeightView> parts;
        if (first_rows > 0) parts.push_back(part(0, first_rows));
        parts.push_back(part(first_rows, features - first_rows));
        auto packed = cpu_->Pack(parts);
        auto judge = reference_->Pack(parts);
        ASSERT_TRUE(packed.ok() && judge.ok());
        EXPECT_EQ((*packed)->rows(), features);
        EXPECT_EQ((*packed)->cols(), depth);
        const std::vector<float> bias = with_bias ? random.Normals(features) : std::vector<float>();
        std::vector<float> numbers = random.Normals(rows * depth);
        // Products of bfloat16 round activations to it: here they are such numbers already.
        for (float& value : numbers) {
          if (dtype == DType::kBF16) value = tensor::FromBF16(tensor::ToBF16(value));
        }
        OwnedMatrix x = OwnedMatrix::From(numbers, rows, depth, 2);
        OwnedMatrix out(rows, features, 3), expected(rows, features);
        cpu_->MatMul(x.view(), **packed, bias, out.view());
        reference_->MatMul(x.view(), **judge, bias, expected.view());
        ExpectClose(out.values(), expected.values(), 2e-6);
        EXPECT_TRUE(out.GapsIntact());

        std::vector<TokenId> ids;
        for (int i = 0; i < 5; ++i) ids.emplace_back(static_cast<int32_t>(random.Int(0, features - 1)));
        OwnedMatrix rows_out(5, depth, 1), rows_expected(5, depth);
        cpu_->Embed(**packed, ids, 0, rows_out.view());
        reference_->Embed(**judge, ids, 0, rows_expected.view());
        EXPECT_TRUE(SameBits(rows_out.values(), rows_expected.values()));
      }
    }
  }
}

TEST_P(CpuKernelsTest, BF16StaysBF16AndF32StaysF32) {
  const std::vector<uint16_t> w(128 * 32);
  const std::vector<float> wide(128 * 32);
  const WeightView narrow_part{w.data(), DType::kBF16, 128, 32}, wide_part{wide.data(), DType::kF32, 128, 32};
  EXPECT_EQ((*cpu_->Pack({&narrow_part, 1}))->bytes(), 128 * 32 * 2);
  EXPECT_EQ((*cpu_->Pack({&wide_part, 1}))->bytes(), 128 * 32 * 4);
  const WeightView mixed[] = {narrow_part, wide_part};
  EXPECT_EQ((*cpu_->Pack(mixed))->bytes(), 256 * 32 * 4);
}

TEST_P(CpuKernelsTest, PackRefusesPartsThatDontFit) {
  const std::vector<float> w(64);
  const WeightView parts[] = {{w.data(), DType::kF32, 8, 8}, {w.data(), DType::kF32, 16, 4}};
  EXPECT_EQ(cpu_->Pack(parts).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(cpu_->Pack({}).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_P(CpuKernelsTest, NormsAndGate) {
  constexpr uint64_t kSeed = 12;
  SCOPED_TRACE(testing::Message() << "seed " << kSeed);
  Random random(kSeed);
  for (int64_t cols : {1, 7, 16, 40, 192, 513, 5000}) {
    for (int64_t rows : {1, 2, 9, 40}) {
      SCOPED_TRACE(testing::Message() << rows << " x " << cols);
      const std::vector<float> values = random.Normals(rows * cols, 3), more = random.Normals(rows * cols);
      const std::vector<float> weight = random.Normals(cols);
      OwnedMatrix x = OwnedMatrix::From(values, rows, cols, 1), y = OwnedMatrix::From(more, rows, cols, 2);
      OwnedMatrix out(rows, cols, 3), expected(rows, cols);
      cpu_->RmsNorm(x.view(), weight, 1e-5f, out.view());
      reference_->RmsNorm(x.view(), weight, 1e-5f, expected.view());
      ExpectClose(out.values(), expected.values(), 1e-6);
      EXPECT_TRUE(out.GapsIntact());

      OwnedMatrix x2 = OwnedMatrix::From(values, rows, cols);
      cpu_->AddRmsNorm(x.view(), y.view(), weight, 1e-5f, out.view());
      reference_->AddRmsNorm(x2.view(), y.view(), weight, 1e-5f, expected.view());
      EXPECT_TRUE(SameBits(x.values(), x2.values()));
      ExpectClose(out.values(), expected.values(), 1e-6);

      // In place.
      cpu_->RmsNorm(x2.view(), weight, 1e-5f, x2.view());
      EXPECT_TRUE(SameBits(x2.values(), out.values()));

      OwnedMatrix gate_up = OwnedMatrix::From(random.Normals(rows * cols * 2, 4), rows, cols * 2, 1);
      OwnedMatrix gated(rows, cols, 1);
      cpu_->SwiGlu(gate_up.view(), gated.view());
      reference_->SwiGlu(gate_up.view(), expected.view());
      ExpectClose(gated.values(), expected.values(), 1e-6);
      EXPECT_TRUE(gated.GapsIntact());
    }
  }
}

TEST_P(CpuKernelsTest, GateAtTheExtremes) {
  const float inf = std::numeric_limits<float>::infinity();
  const std::vector<float> gates = {0.0f, -0.0f, 88.0f, -88.0f, 1e30f, -1e30f, -127.0f, inf};
  std::vector<float> gate_up = gates;
  gate_up.resize(2 * gates.size(), 1.0f);
  OwnedMatrix x = OwnedMatrix::From(gate_up, 1, static_cast<int64_t>(gate_up.size()));
  OwnedMatrix out(1, static_cast<int64_t>(gates.size()));
  cpu_->SwiGlu(x.view(), out.view());
  for (size_t i = 0; i < gates.size(); ++i) {
    const double exact = double{gates[i]} / (1 + std::exp(-double{gates[i]}));
    if (std::isinf(exact)) {
      EXPECT_EQ(out.values()[i], inf);
    } else {
      EXPECT_NEAR(out.values()[i], exact, 1e-6 * std::abs(exact) + 1e-7) << gates[i];
    }
  }
}

// A sink takes its part of each head's softmax and gives nothing: with z the sum of the others' exponentials,
// out is what it is without, times z / (z + exp(sink)).
TEST_P(CpuKernelsTest, SinksTakeTheirPart) {
  const int64_t kTokens = 150;
  Random random(14);
  LayerShape shape = {.attention = {.heads = 4, .kv_heads = 2, .head_dim = 16, .scale = 0}};
  // All scores are 0, so z is the number of tokens that are seen.
  for (const int64_t window : {int64_t{0}, int64_t{20}}) {
    shape.attention.window = window;
    shape.attention.sinks = {};
    const Workload plain(shape, {kTokens}, random);
    shape.attention.sinks = TrialSinks(4);
    Workload with = plain;
    with.shape = shape;
    for (Kernels* kernels : {cpu_.get(), reference_.get()}) {
      const Served without = Serve(*kernels, plain, {.sequences = {0}}, random)[0];
      const Served found = Serve(*kernels, with, {.sequences = {0}}, random)[0];
      for (int64_t t = 0; t < kTokens; ++t) {
        const auto z = static_cast<double>(window == 0 ? t + 1 : std::min(window, t + 1));
        for (int64_t h = 0; h < 4; ++h) {
          const double part = z / (z + std::exp(double{TrialSinks(4)[static_cast<size_t>(h)]}));
          for (int64_t d = 0; d < 16; ++d) {
            const auto at = static_cast<size_t>((t * 4 + h) * 16 + d);
            ASSERT_NEAR(found.out[at], without.out[at] * part, 2e-6 * (1 + std::abs(without.out[at])))
                << "token " << t << ", head " << h << ", window " << window;
          }
        }
      }
    }
  }
}

TEST_P(CpuKernelsTest, RotateStoreAndAttention) {
  constexpr uint64_t kSeed = 13;
  SCOPED_TRACE(testing::Message() << "seed " << kSeed);
  Random random(kSeed);
  struct Case {
    int heads, kv_heads, head_dim;
    int64_t window;
    bool qk_norm;
    bool sinks = false;
  };
  const Case cases[] = {{1, 1, 16, 0, false},       {4, 2, 24, 0, true},        {6, 6, 40, 0, false},
                        {8, 1, 48, 7, false},       {4, 4, 64, 70, true},       {2, 1, 72, 1, false},
                        {3, 1, 128, 0, false},      {2, 2, 256, 33, false},     {56, 1, 8, 0, false},
                        {8, 2, 64, 0, false, true}, {9, 3, 24, 20, true, true}, {2, 1, 128, 0, false, true},
                        {2, 1, 2, 0, false},        {4, 2, 10, 7, true},        {3, 3, 20, 0, false, true},
                        {4, 2, 100, 0, true},       {2, 1, 126, 20, false},     {2, 2, 250, 0, true}};
  for (const Case& c : cases) {
    for (auto [key, value] : {std::pair{DType::kF32, DType::kF32},
                              {DType::kBF16, DType::kBF16},
                              {DType::kF32, DType::kBF16},
                              {DType::kBF16, DType::kF32},
                              {DType::kI8, DType::kI8},
                              {DType::kI8, DType::kI4},
                              {DType::kI4, DType::kI4},
                              {DType::kBF16, DType::kI8}}) {
      SCOPED_TRACE(testing::Message()
                   << c.heads << "/" << c.kv_heads << " heads of " << c.head_dim << ", window " << c.window
                   << ", " << tensor::Name(key) << "/" << tensor::Name(value));
      const LayerShape shape = {
          .attention = {c.heads, c.kv_heads, c.head_dim, 1.0f / std::sqrt(static_cast<float>(c.head_dim)),
                        c.window, TrialSinks(c.sinks ? c.heads : 0)},
          .key_dtype = key,
          .value_dtype = value,
          .qk_norm = c.qk_norm};
      const Workload work(shape, {1, 5, 16, 100, 150}, random);
      const Schedule schedule = {.sequences = {0, 1, 2, 3, 4}, .longest_chunk = 60};
      // Blocks lie elsewhere for each backend, which must not matter.
      const std::vector<Served> actual = Serve(*cpu_, work, schedule, random);
      const std::vector<Served> expected = Serve(*reference_, work, schedule, random);
      // Rounding to bfloat16 turns a last-bit difference of the rotated key into one of 2^-8, now and then.
      // Integers of the judge are those of this backend, up to such differences; it multiplies them by
      // queries and weights as they are.
      const auto slack = [](DType dtype) {
        return dtype == DType::kI4 ? 0.08 : dtype == DType::kI8 ? 0.03 : dtype == DType::kBF16 ? 5e-3 : 5e-6;
      };
      for (size_t s = 0; s < actual.size(); ++s) {
        ExpectClose(actual[s].q, expected[s].q, 2e-6);
        ExpectClose(actual[s].out, expected[s].out, std::max(slack(key), slack(value)));
      }
    }
  }
}

// The KV bytes themselves: rotation by angle zero leaves K as it is, and V is stored as it comes.
TEST_P(CpuKernelsTest, StoresTheLayoutsBytes) {
  const AttentionShape shape = {.heads = 2, .kv_heads = 2, .head_dim = 24, .scale = 1, .window = 0};
  const std::vector<float> odd = {0.0f,
                                  -0.0f,
                                  1.00390625f,
                                  1.01171875f,
                                  3.3895314e38f,
                                  -1e-40f,
                                  std::numeric_limits<float>::infinity(),
                                  std::numeric_limits<float>::quiet_NaN()};
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    const kv::KvLayout layout = {
        .layers = 1, .kv_heads = 2, .head_dim = 24, .key_dtype = dtype, .value_dtype = dtype};
    kv::KvStore store = *kv::KvStore::Create(layout, 2);
    constexpr int64_t kTokens = 19;
    const int64_t cols = 6 * 24;
    std::vector<float> values(kTokens * cols);
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = i % 5 == 0 ? odd[i / 5 % odd.size()] : 0.1f * static_cast<float>(i);
    // Keys go through a multiply-add with zero, which NaN and infinity don't survive: those are for V only.
    for (int64_t t = 0; t < kTokens; ++t) {
      for (int64_t c = 0; c < 4 * 24; ++c) {
        float& v = values[static_cast<size_t>(t * cols + c)];
        if (!std::isfinite(v) || v == 0) v = 1;
      }
    }
    OwnedMatrix qkv = OwnedMatrix::From(values, kTokens, cols);
    const std::vector<float> cos(kTokens * 12, 1.0f), sin(kTokens * 12, 0.0f);
    const std::vector<BlockId> blocks = {BlockId(1), BlockId(0)};
    const SequenceRows sequence = {.first_row = 0, .rows = kTokens, .first_position = 0, .blocks = blocks};
    cpu_->RotateAndStore(qkv.view(), shape, {}, {cos, sin, 12}, {&sequence, 1}, 0, store);
    for (int64_t t = 0; t < kTokens; ++t) {
      const std::byte* block = store.block(blocks[static_cast<size_t>(t / kBlockTokens)]);
      for (int h = 0; h < 2; ++h) {
        for (int d = 0; d < 24; ++d) {
          const float key = values[static_cast<size_t>(t * cols + (2 + h) * 24 + d)];
          const float value = values[static_cast<size_t>(t * cols + (4 + h) * 24 + d)];
          const int64_t key_at = d * kBlockTokens + t % kBlockTokens, value_at = t % kBlockTokens * 24 + d;
          if (dtype == DType::kBF16) {
            uint16_t bits;
            std::memcpy(&bits, block + layout.layer(0).key_offset(h) + key_at * 2, 2);
            ASSERT_EQ(bits, tensor::ToBF16(key)) << key;
            std::memcpy(&bits, block + layout.layer(0).value_offset(h) + value_at * 2, 2);
            ASSERT_EQ(bits, tensor::ToBF16(value)) << value;
          } else {
            ASSERT_EQ(std::memcmp(block + layout.layer(0).key_offset(h) + key_at * 4, &key, 4), 0);
            ASSERT_EQ(std::memcmp(block + layout.layer(0).value_offset(h) + value_at * 4, &value, 4), 0);
          }
        }
      }
    }
  }
}

// Each layer has the bits that it would have if all were of its precision.
TEST_P(CpuKernelsTest, LayersMayDifferInPrecision) {
  constexpr int64_t kTokens = 19, kCols = 6 * 24;
  Random random(15);
  const AttentionShape shape = {.heads = 2, .kv_heads = 2, .head_dim = 24, .scale = 0.2f, .window = 0};
  const std::vector<float> rows = random.Normals(kTokens * kCols), cos = random.Normals(kTokens * 12),
                           sin = random.Normals(kTokens * 12);
  const std::vector<BlockId> blocks = {BlockId(1), BlockId(0)};
  const SequenceRows sequence = {.first_row = 0, .rows = kTokens, .first_position = 0, .blocks = blocks};
  const auto run = [&](Kernels& kernels, kv::KvStore& store, int layer) {
    OwnedMatrix qkv = OwnedMatrix::From(rows, kTokens, kCols), out(kTokens, 2 * 24);
    kernels.RotateAndStore(qkv.view(), shape, {}, {cos, sin, 12}, {&sequence, 1}, layer, store);
    kernels.Attention(qkv.view(), shape, {&sequence, 1}, layer, store, out.view());
    return out.values();
  };
  kv::KvLayout mixed = {.layers = 3, .kv_heads = 2, .head_dim = 24};
  mixed.exceptions = {{.layer = 1, .key_dtype = DType::kBF16, .value_dtype = DType::kI4},
                      {.layer = 2, .key_dtype = DType::kI8, .value_dtype = DType::kBF16}};
  ASSERT_TRUE(cpu_->CheckLayout(mixed, mixed.head_dim).ok());
  for (Kernels* kernels : {cpu_.get(), reference_.get()}) {
    kv::KvStore store = *kv::KvStore::Create(mixed, 2);
    for (int layer = 0; layer < 3; ++layer) run(*kernels, store, layer);
    for (int layer = 2; layer >= 0; --layer) {
      const kv::KvLayer own = mixed.layer(layer);
      kv::KvStore alike = *kv::KvStore::Create({.layers = 1,
                                                .kv_heads = 2,
                                                .head_dim = 24,
                                                .key_dtype = own.key_dtype,
                                                .value_dtype = own.value_dtype},
                                               2);
      EXPECT_TRUE(SameBits(run(*kernels, store, layer), run(*kernels, alike, 0))) << "layer " << layer;
    }
  }
  mixed.exceptions[0].key_dtype = DType::kF8;
  EXPECT_EQ(cpu_->CheckLayout(mixed, mixed.head_dim).code(), absl::StatusCode::kInvalidArgument);
}

// A broken row stays broken, and breaks no other.
TEST_P(CpuKernelsTest, NotANumberStaysInItsRow) {
  constexpr uint64_t kSeed = 14;
  Random random(kSeed);
  for (DType dtype : {DType::kF32, DType::kBF16, DType::kI8, DType::kI4})
    for (float poison : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
      const LayerShape shape = {
          .attention = {.heads = 4, .kv_heads = 2, .head_dim = 32, .scale = 0.2f, .window = 0},
          .key_dtype = dtype,
          .value_dtype = dtype};
      Workload clean(shape, {90, 90}, random);
      Workload work = clean;
      // Token 60 of sequence 0: later tokens of that sequence see it, earlier ones don't.
      for (int64_t c = 0; c < shape.cols(); ++c)
        work.qkv[0][static_cast<size_t>(60 * shape.cols() + c)] = poison;
      const std::vector<Served> broken = Serve(*cpu_, work, {.sequences = {0, 1}}, random);
      const std::vector<Served> whole = Serve(*cpu_, clean, {.sequences = {0, 1}}, random);
      EXPECT_TRUE(SameBits(broken[1].out, whole[1].out));
      const size_t cols = 4 * 32;
      EXPECT_TRUE(SameBits({broken[0].out.begin(), broken[0].out.begin() + 60 * cols},
                           {whole[0].out.begin(), whole[0].out.begin() + 60 * cols}));
      for (size_t t = 60; t < 90; ++t) EXPECT_FALSE(std::isfinite(broken[0].out[t * cols])) << t;
    }
  const std::vector<float> w = random.Normals(70 * 20);
  const WeightView part{w.data(), DType::kF32, 70, 20};
  auto packed = *cpu_->Pack({&part, 1});
  OwnedMatrix x = OwnedMatrix::From(random.Normals(9 * 20), 9, 20);
  x.view().row(4)[3] = std::numeric_limits<float>::quiet_NaN();
  OwnedMatrix out(9, 70);
  cpu_->MatMul(x.view(), *packed, {}, out.view());
  for (int64_t r = 0; r < 9; ++r) {
    for (float value : out.row(r)) EXPECT_EQ(std::isnan(value), r == 4);
  }
}

TEST(MakeKernelsTest, KnowsItsNames) {
  EXPECT_EQ((*MakeKernels("cpu", 2))->name(), "cpu");
  EXPECT_EQ((*MakeKernels("reference", 0))->name(), "reference");
  EXPECT_EQ(MakeKernels("abacus", 1).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(MakeCpuKernels({.threads = 1, .isa = "mmx"}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(MakeCpuKernels({.threads = -1, .isa = ""}).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace baton::kernels
