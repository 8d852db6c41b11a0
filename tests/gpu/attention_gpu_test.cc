// RotateAndStore and Attention on random ragged batches over scattered blocks, for every precision of keys
// and values, against the reference. The two are judged apart: attention reads the very bytes that the
// reference wrote, so a difference is the kernel's own.
#include <algorithm>

#include "engine/kv/store/kv_codec.h"
#include "tests/gpu/gpu.h"

namespace baton::gpu {
namespace {

using kernels::AttentionShape;
using kernels::SequenceRows;
using tensor::DType;

struct Case {
  AttentionShape shape;
  DType keys, values;
  bool qk_norm;
};

std::ostream& operator<<(std::ostream& out, const Case& c) {
  return out << c.shape.heads << " heads, " << c.shape.kv_heads << " KV heads of " << c.shape.head_dim
             << ", window " << c.shape.window << ", keys " << tensor::Name(c.keys) << ", values "
             << tensor::Name(c.values) << (c.qk_norm ? ", normed" : "");
}

struct Lane {
  int64_t past, rows;
};

class AttentionGpuTest : public testing::TestWithParam<Case> {
 protected:
  static constexpr int kLayers = 2, kLayer = 1;
  static constexpr int64_t kContext = 6000;

  void SetUp() override {
    cuda_ = MakeKernels();
    ASSERT_NE(cuda_, nullptr) << "these tests need a GPU";
    const int half = shape_.head_dim / 2;
    for (int64_t p = 0; p < kContext; ++p) {
      for (int i = 0; i < half; ++i) {
        const double angle = static_cast<double>(p) * std::pow(10000.0, -static_cast<double>(i) / half);
        cos_.push_back(static_cast<float>(std::cos(angle)));
        sin_.push_back(static_cast<float>(std::sin(angle)));
      }
    }
    if (GetParam().qk_norm) {
      q_norm_ = Normals(random_, shape_.head_dim);
      k_norm_ = Normals(random_, shape_.head_dim);
    }
    cuda_cos_ = Place(cos_), cuda_sin_ = Place(sin_), cuda_q_norm_ = Place(q_norm_),
    cuda_k_norm_ = Place(k_norm_);
  }
  kernels::Values Place(const std::vector<float>& values) {
    return *kernels::Values::Place(values, cuda_->memory());
  }

  // Runs a batch of lanes on both sides.
  void Check(const std::vector<Lane>& lanes) {
    const int64_t cols = int64_t{shape_.heads + 2 * shape_.kv_heads} * shape_.head_dim;
    const int64_t q_cols = int64_t{shape_.heads} * shape_.head_dim;
    const kv::KvLayout layout{.layers = kLayers,
                              .kv_heads = shape_.kv_heads,
                              .head_dim = shape_.head_dim,
                              .key_dtype = GetParam().keys,
                              .value_dtype = GetParam().values};
    int64_t total = 3, rows = 0;
    for (const Lane& lane : lanes) total += BlocksFor(lane.past + lane.rows), rows += lane.rows;
    auto host_store = *kv::KvStore::Create(layout, total);
    auto device_store = *kv::KvStore::Create(layout, total, cuda_->memory());
    const int64_t bytes = total * layout.block_bytes();
    // Bytes that were never written must not matter: NaNs.
    std::fill_n(host_store.block(BlockId(0)), bytes, std::byte{0xFF});
    std::vector<BlockId> free;
    for (int64_t b = 0; b < total; ++b) free.emplace_back(static_cast<uint32_t>(b));
    std::shuffle(free.begin(), free.end(), random_);
    std::vector<std::vector<BlockId>> blocks;
    std::vector<SequenceRows> past, now;
    int64_t past_rows = 0, row = 0;
    for (const Lane& lane : lanes) {
      blocks.emplace_back();
      for (int64_t b = 0; b < BlocksFor(lane.past + lane.rows); ++b) {
        blocks.back().push_back(free.back());
        free.pop_back();
      }
    }
    for (size_t l = 0; l < lanes.size(); ++l) {
      if (lanes[l].past > 0) past.push_back({past_rows, lanes[l].past, 0, blocks[l]});
      past_rows += lanes[l].past;
      now.push_back({row, lanes[l].rows, lanes[l].past, blocks[l]});
      row += lanes[l].rows;
    }
    const kernels::Kernels::QkNorm norm{q_norm_, k_norm_, 1e-6f};
    const kernels::RopeTable rope{cos_, sin_, shape_.head_dim / 2};
    std::vector<float> old = Rounded(Normals(random_, past_rows * cols));
    judge_->RotateAndStore({old.data(), past_rows, cols, cols}, shape_, norm, rope, past, kLayer, host_store);
    ASSERT_TRUE(
        cuda_->memory().Upload(host_store.block(BlockId(0)), device_store.block(BlockId(0)), bytes).ok());

    std::vector<float> qkv = Rounded(Normals(random_, rows * cols));
    DeviceMatrix device_qkv(cuda_->memory(), qkv, rows, cols, DType::kBF16);
    judge_->RotateAndStore({qkv.data(), rows, cols, cols}, shape_, norm, rope, now, kLayer, host_store);
    cuda_->RotateAndStore(device_qkv.view(), shape_, {cuda_q_norm_.view(), cuda_k_norm_.view(), 1e-6f},
                          {cuda_cos_.view(), cuda_sin_.view(), shape_.head_dim / 2}, now, kLayer,
                          device_store);
    std::vector<float> q, expected_q;
    const std::vector<float> got_qkv = device_qkv.values();
    for (int64_t r = 0; r < rows; ++r) {
      expected_q.insert(expected_q.end(), qkv.begin() + r * cols, qkv.begin() + r * cols + q_cols);
      q.insert(q.end(), got_qkv.begin() + r * cols, got_qkv.begin() + r * cols + q_cols);
    }
    ExpectNear(q, expected_q, 1e-5f, kOneRounding, "rotated Q");
    std::vector<std::byte> stored(static_cast<size_t>(bytes));
    ASSERT_TRUE(cuda_->memory().Download(device_store.block(BlockId(0)), stored.data(), bytes).ok());
    CompareStores(stored, host_store, layout, now);

    ASSERT_TRUE(
        cuda_->memory().Upload(host_store.block(BlockId(0)), device_store.block(BlockId(0)), bytes).ok());
    std::vector<float> same_q = Rounded(expected_q);
    DeviceMatrix device_q(cuda_->memory(), same_q, rows, q_cols, DType::kBF16);
    DeviceMatrix device_out(cuda_->memory(), rows, q_cols, DType::kBF16);
    std::vector<float> expected(same_q.size());
    judge_->Attention({same_q.data(), rows, q_cols, q_cols}, shape_, now, kLayer, host_store,
                      {expected.data(), rows, q_cols, q_cols});
    cuda_->Attention(device_q.view(), shape_, now, kLayer, device_store, device_out.view());
    // Values are of the order of 1. K, V and probabilities are rounded to bf16 for the tensor cores, each off
    // by 2^-9 of itself at most: scores (of the order of 1) by about 2^-8, so probabilities by 2^-8 of
    // themselves.
    ExpectNear(device_out.values(), expected, 0.012f, 3 * kOneRounding, "attention");
  }

  void CheckChunks() {
    Check({{0, 200}});
    Check({{0, 2}, {0, 16}, {0, 33}, {17, 31}, {64, 64}, {100, 129}, {250, 7}});
  }
  void CheckRandomBatches() {
    for (int round = 0; round < 4; ++round) {
      std::vector<Lane> lanes;
      for (size_t l = 0; l < 3 + random_() % 6; ++l) {
        lanes.push_back({static_cast<int64_t>(random_() % 400),
                         random_() % 2 == 0 ? 1 : 1 + static_cast<int64_t>(random_() % 90)});
      }
      Check(lanes);
    }
  }

  // One sequence of `length` tokens whose KV is there: all its rows alone, and chunks of them behind another
  // sequence's.
  void CheckSameBits(int64_t length, const std::vector<Lane>& chunks) {
    const int64_t q_cols = int64_t{shape_.heads} * shape_.head_dim;
    const kv::KvLayout layout{.layers = kLayers,
                              .kv_heads = shape_.kv_heads,
                              .head_dim = shape_.head_dim,
                              .key_dtype = GetParam().keys,
                              .value_dtype = GetParam().values};
    constexpr int64_t kOther = 45;
    std::vector<BlockId> blocks;
    const int64_t own_blocks = BlocksFor(length), total = own_blocks + BlocksFor(kOther);
    for (int64_t b = 0; b < total; ++b) blocks.emplace_back(static_cast<uint32_t>(b));
    std::shuffle(blocks.begin(), blocks.end(), random_);
    const std::span<const BlockId> own = std::span(blocks).first(static_cast<size_t>(own_blocks)),
                                   others = std::span(blocks).subspan(own.size());
    auto host_store = *kv::KvStore::Create(layout, total);
    auto device_store = *kv::KvStore::Create(layout, total, cuda_->memory());
    const SequenceRows both[] = {{0, length, 0, own}, {length, kOther, 0, others}};
    const int64_t cols = int64_t{shape_.heads + 2 * shape_.kv_heads} * shape_.head_dim;
    std::vector<float> kv = Rounded(Normals(random_, (length + kOther) * cols));
    judge_->RotateAndStore({kv.data(), length + kOther, cols, cols}, shape_, {q_norm_, k_norm_, 1e-6f},
                           {cos_, sin_, shape_.head_dim / 2}, both, kLayer, host_store);
    ASSERT_TRUE(cuda_->memory()
                    .Upload(host_store.block(BlockId(0)), device_store.block(BlockId(0)),
                            total * layout.block_bytes())
                    .ok());
    const std::vector<float> q = Rounded(Normals(random_, length * q_cols));
    const std::vector<float> other_q = Rounded(Normals(random_, kOther * q_cols));
    const auto attend = [&](const std::vector<float>& rows, const std::vector<SequenceRows>& sequences) {
      const int64_t count = std::ssize(rows) / q_cols;
      DeviceMatrix in(cuda_->memory(), rows, count, q_cols, DType::kBF16),
          out(cuda_->memory(), count, q_cols, DType::kBF16);
      cuda_->Attention(in.view(), shape_, sequences, kLayer, device_store, out.view());
      return out.values();
    };
    const std::vector<float> whole = attend(q, {{0, length, 0, own}});
    for (const Lane& chunk : chunks) {
      std::vector<float> rows = other_q;
      rows.insert(rows.end(), q.begin() + chunk.past * q_cols,
                  q.begin() + (chunk.past + chunk.rows) * q_cols);
      const std::vector<float> got =
          attend(rows, {{0, kOther, 0, others}, {kOther, chunk.rows, chunk.past, own}});
      const bool same =
          std::equal(got.begin() + kOther * q_cols, got.end(), whole.begin() + chunk.past * q_cols);
      EXPECT_TRUE(same) << "rows " << chunk.past << " to " << chunk.past + chunk.rows;
    }
  }

  // Numbers of the rows of `now`, and every other byte as it was.
  void CompareStores(const std::vector<std::byte>& got, kv::KvStore& expected, const kv::KvLayout& layout,
                     const std::vector<SequenceRows>& now) {
    std::vector<std::byte> rest = got;
    for (const SequenceRows& sequence : now) {
      for (int64_t i = 0; i < sequence.rows; ++i) {
        const int64_t position = sequence.first_position + i;
        const int64_t block = sequence.blocks[static_cast<size_t>(position / kBlockTokens)].value();
        const int64_t token = position % kBlockTokens;
        for (int head = 0; head < layout.kv_heads; ++head) {
          const int64_t keys = block * layout.block_bytes() + layout.layer(kLayer).key_offset(head);
          const int64_t values = block * layout.block_bytes() + layout.layer(kLayer).value_offset(head);
          CompareHead(got, rest, expected, keys, layout.key_dtype, layout, token, kBlockTokens, token,
                      "keys");
          CompareHead(got, rest, expected, values, layout.value_dtype, layout, token, 1,
                      token * layout.head_dim, "values");
        }
      }
    }
    const bool same = std::equal(rest.begin(), rest.end(), expected.block(BlockId(0)));
    EXPECT_TRUE(same) << "bytes beside the rows were written";
  }

  void CompareHead(const std::vector<std::byte>& got, std::vector<std::byte>& rest, kv::KvStore& expected,
                   int64_t at, DType dtype, const kv::KvLayout& layout, int64_t token, int64_t step,
                   int64_t first, const char* what) {
    const auto scale = [&](const std::byte* data) {
      if (!tensor::IsScaled(dtype)) return 1.0f;
      float value;
      std::memcpy(&value, data + kv::ScalesAt(dtype, layout.head_dim) + token * 4, 4);
      return value;
    };
    const std::byte* ours = got.data() + at;
    const std::byte* theirs = expected.block(BlockId(0)) + at;
    if (tensor::IsScaled(dtype)) {
      ASSERT_NEAR(scale(ours), scale(theirs), 1e-5f * scale(theirs)) << what;
      std::memcpy(rest.data() + at + kv::ScalesAt(dtype, layout.head_dim) + token * 4,
                  theirs + kv::ScalesAt(dtype, layout.head_dim) + token * 4, 4);
    }
    for (int d = 0; d < layout.head_dim; ++d) {
      const int64_t index = d * step + first;
      const float a = Value(ours, dtype, index) * scale(ours),
                  b = Value(theirs, dtype, index) * scale(theirs);
      // Where rounding is a close call, it may go the other way: one step.
      const float slack = dtype == DType::kF32    ? 1e-5f + 1e-5f * std::abs(b)
                          : dtype == DType::kBF16 ? 1e-5f + std::abs(b) / 127
                          : dtype == DType::kI8   ? 1.01f * scale(theirs)
                                                  : scale(theirs) / 256 + std::abs(b) / 7;
      ASSERT_NEAR(a, b, slack) << what << " of token " << token << ", d " << d;
      const int size = tensor::SizeOf(dtype);
      std::memcpy(rest.data() + at + index * size, theirs + index * size, static_cast<size_t>(size));
    }
  }
  static float Value(const std::byte* data, DType dtype, int64_t i) {
    switch (dtype) {
      case DType::kF32: {
        float value;
        std::memcpy(&value, data + i * 4, 4);
        return value;
      }
      case DType::kF8:
        return tensor::FromF8(static_cast<uint8_t>(data[i]));
      case DType::kI8:
        return static_cast<int8_t>(data[i]);
      default: {
        uint16_t bits;
        std::memcpy(&bits, data + i * 2, 2);
        return tensor::FromBF16(bits);
      }
    }
  }

  static constexpr uint32_t kAttentionSeed = 81;
  std::mt19937 random_{kAttentionSeed};
  const AttentionShape shape_ = GetParam().shape;
  std::vector<float> cos_, sin_, q_norm_, k_norm_;
  std::unique_ptr<kernels::Kernels> cuda_;
  kernels::Values cuda_cos_, cuda_sin_, cuda_q_norm_, cuda_k_norm_;  // in its memory
  std::unique_ptr<kernels::Kernels> judge_ = kernels::MakeReferenceKernels();
};

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const auto& [heads, kv_heads, dim] :
       {std::tuple{4, 2, 64}, {8, 8, 64}, {8, 1, 128}, {28, 4, 128}, {20, 1, 64}}) {
    for (int64_t window : {0, 100}) {
      cases.push_back({{.heads = heads,
                        .kv_heads = kv_heads,
                        .head_dim = dim,
                        .scale = static_cast<float>(1 / std::sqrt(static_cast<double>(dim))),
                        .window = window},
                       DType::kBF16,
                       DType::kBF16,
                       window != 0});
    }
  }
  for (DType keys : {DType::kF32, DType::kBF16, DType::kF8, DType::kI8}) {
    for (DType values : {DType::kF32, DType::kBF16, DType::kF8, DType::kI8}) {
      if (keys == DType::kBF16 && values == DType::kBF16) continue;
      for (int dim : {64, 128}) {
        cases.push_back({{.heads = 8,
                          .kv_heads = 2,
                          .head_dim = dim,
                          .scale = static_cast<float>(1 / std::sqrt(static_cast<double>(dim)))},
                         keys,
                         values,
                         false});
      }
    }
  }
  return cases;
}

TEST_P(AttentionGpuTest, DecodeRowsOfAllLengths) {
  SCOPED_TRACE(testing::Message() << GetParam() << ", seed " << kAttentionSeed);
  Check({{0, 1},
         {1, 1},
         {15, 1},
         {16, 1},
         {63, 1},
         {64, 1},
         {65, 1},
         {127, 1},
         {255, 1},
         {256, 1},
         {300, 1},
         {2047, 1},
         {2048, 1}});
  Check({{5000, 1}, {3, 1}});
}

TEST_P(AttentionGpuTest, PrefillChunksAtAnyPosition) {
  SCOPED_TRACE(testing::Message() << GetParam() << ", seed " << kAttentionSeed);
  CheckChunks();
}

TEST_P(AttentionGpuTest, BothInOneBatch) {
  SCOPED_TRACE(testing::Message() << GetParam() << ", seed " << kAttentionSeed);
  CheckRandomBatches();
}

INSTANTIATE_TEST_SUITE_P(Shapes, AttentionGpuTest, testing::ValuesIn(Cases()));

// Prefill by wgmma: the same batches, and those that its tiles of 128 keys and two warpgroups of 64 rows
// bring.
class WgmmaGpuTest : public AttentionGpuTest {
 protected:
  void SetUp() override {
    AttentionGpuTest::SetUp();
    if (HasFatalFailure()) return;
    if (!HasWgmma()) GTEST_SKIP() << "this GPU has no wgmma: its compute capability is not 9.0";
    UsePrefill(*cuda_, kernels::cuda::PrefillKernel::kWgmma);
  }
};

TEST_P(WgmmaGpuTest, PrefillChunksAtAnyPosition) {
  SCOPED_TRACE(testing::Message() << GetParam() << ", seed " << kAttentionSeed);
  CheckChunks();
}

// Lengths about the ends of tiles of keys; rows about the ends of warpgroups and tiles of rows, where a group
// of heads divides them and where it does not.
TEST_P(WgmmaGpuTest, EdgesOfItsTiles) {
  SCOPED_TRACE(testing::Message() << GetParam() << ", seed " << kAttentionSeed);
  Check({{0, 127}, {0, 128}, {1, 128}, {126, 2}, {127, 2}, {128, 2}, {255, 3}, {383, 2}});
  const int64_t group = shape_.heads / shape_.kv_heads;
  for (const int64_t rows : {64, 128}) {
    const int64_t tokens = std::max<int64_t>(2, rows / group);
    Check({{30, tokens}, {30, tokens + 1}, {100, std::max<int64_t>(2, tokens - 1)}});
  }
  // Under a window of 150, a tile of keys that all rows of a warpgroup have behind them and only some still
  // see.
  Check({{270, 64}});
}

// A row's bits depend on its sequence alone: the same rows alone, behind others, and in chunks.
TEST_P(WgmmaGpuTest, BitsAreTheSequencesOwn) {
  SCOPED_TRACE(testing::Message() << GetParam() << ", seed " << kAttentionSeed);
  CheckSameBits(300, {{0, 300}});
  CheckSameBits(300, {{0, 130}, {130, 41}, {171, 129}});
  CheckSameBits(300, {{0, 3}, {3, 297}});
}

TEST_P(WgmmaGpuTest, BothInOneBatch) {
  SCOPED_TRACE(testing::Message() << GetParam() << ", seed " << kAttentionSeed);
  CheckRandomBatches();
}

// Windows of more keys than a tile has.
std::vector<Case> LongWindows() {
  std::vector<Case> cases;
  for (const auto& [heads, kv_heads, dim, window] :
       {std::tuple{8, 8, 64, 150}, {6, 2, 128, 128}, {8, 1, 64, 260}}) {
    cases.push_back({{.heads = heads,
                      .kv_heads = kv_heads,
                      .head_dim = dim,
                      .scale = static_cast<float>(1 / std::sqrt(static_cast<double>(dim))),
                      .window = window},
                     DType::kBF16,
                     DType::kBF16,
                     false});
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Shapes, WgmmaGpuTest, testing::ValuesIn(Cases()));
INSTANTIATE_TEST_SUITE_P(LongWindows, WgmmaGpuTest, testing::ValuesIn(LongWindows()));

TEST(WgmmaProofGpuTest, Holds) {
  const auto kernels = MakeKernels();
  ASSERT_NE(kernels, nullptr) << "these tests need a GPU";
  if (!HasWgmma()) GTEST_SKIP() << "this GPU has no wgmma: its compute capability is not 9.0";
  const absl::Status proof = Prove(*kernels);
  EXPECT_TRUE(proof.ok()) << proof;
}

}  // namespace
}  // namespace baton::gpu
