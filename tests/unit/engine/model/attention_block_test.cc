#include "engine/model/attention_block.h"

#include <gtest/gtest.h>

#include "tests/unit/engine/model/block_fixture.h"

namespace baton::model {
namespace {

using kernels::SequenceRows;

constexpr int kHeads = 2, kDim = 8;
constexpr int64_t kHidden = 5, kContext = 40;

// One layer with two query heads that share a KV head.
class AttentionBlockTest : public testing::Test {
 protected:
  AttentionBlockTest() {
    config_.hidden = kHidden;
    config_.heads = kHeads;
    config_.kv_heads = 1;
    config_.head_dim = kDim;
    config_.windows = {0};
    weights_.qkv = qkv_.Pack(*kernels_);
    weights_.qkv_bias = qkv_bias_.Place(*kernels_);
    weights_.output = output_.Pack(*kernels_);
    for (int64_t p = 0; p < kContext; ++p) {
      for (int i = 0; i < kDim / 2; ++i) {
        cos_.push_back(std::cos(0.3f * static_cast<float>(p * (i + 1))));
        sin_.push_back(std::sin(0.3f * static_cast<float>(p * (i + 1))));
      }
    }
    rope_ = {cos_, sin_, kDim / 2};
  }

  // A head of `row`, from column `first` on, turned by its position.
  std::vector<float> Turned(const Numbers& qkv, int64_t row, int64_t first) const {
    std::vector<float> head;
    for (int64_t i = 0; i < kDim; ++i) {
      const int64_t half = kDim / 2, angle = i % half;
      const float c = cos_[static_cast<size_t>(row * half + angle)],
                  s = sin_[static_cast<size_t>(row * half + angle)];
      const float other = qkv.at(row, first + (i + half) % kDim);
      head.push_back(qkv.at(row, first + i) * c + (i < half ? -other : other) * s);
    }
    return head;
  }
  // The formula of attention_block.h, for the positions from 0 on.
  Numbers Expected(const Numbers& h) const {
    const Numbers qkv = Multiply(h, qkv_, qkv_bias_);
    Numbers attended{.values = {}, .rows = h.rows, .cols = kHeads * kDim};
    for (int64_t r = 0; r < h.rows; ++r) {
      for (int head = 0; head < kHeads; ++head) {
        const std::vector<float> q = Turned(qkv, r, head * kDim);
        std::vector<double> mixed(kDim);
        double total = 0;
        for (int64_t t = 0; t <= r; ++t) {
          const std::vector<float> k = Turned(qkv, t, kHeads * kDim);
          double score = 0;
          for (size_t i = 0; i < kDim; ++i) score += double{q[i]} * k[i];
          const double weight = std::exp(score / std::sqrt(double{kDim}));
          total += weight;
          for (int64_t i = 0; i < kDim; ++i) {
            mixed[static_cast<size_t>(i)] += weight * qkv.at(t, (kHeads + 1) * kDim + i);
          }
        }
        for (const double value : mixed) attended.values.push_back(static_cast<float>(value / total));
      }
    }
    return Multiply(attended, output_, {});
  }

  NumberSource source_;
  std::unique_ptr<kernels::Kernels> kernels_ = kernels::MakeReferenceKernels();
  Rank rank_{*kernels_, nullptr};
  ModelConfig config_;
  AttentionWeights weights_;
  Numbers qkv_ = source_.Make((kHeads + 2) * kDim, kHidden), qkv_bias_ = source_.Make(1, (kHeads + 2) * kDim),
          output_ = source_.Make(kHidden, kHeads*kDim);
  std::vector<float> cos_, sin_;
  kernels::RopeTable rope_;
};

TEST_F(AttentionBlockTest, ComputesItsFormulaInOneChunkOrSeveral) {
  Numbers h = source_.Make(20, kHidden);
  const Numbers expected = Expected(h);
  const AttentionBlock block(config_, 0, weights_, rope_, rank_);
  EXPECT_EQ(block.shape().heads, kHeads);
  const kv::KvLayout layout = {.layers = 1, .kv_heads = 1, .head_dim = kDim};
  for (const int64_t chunk : {20, 7}) {
    kv::KvStore store = *kv::KvStore::Create(layout, 2);
    const std::vector<BlockId> blocks = {BlockId(1), BlockId(0)};
    Arena arena;
    for (int64_t first = 0; first < 20; first += chunk) {
      const int64_t rows = std::min(chunk, 20 - first);
      const SequenceRows sequence{.rows = rows, .first_position = first, .blocks = blocks};
      arena.Reset();
      const AttentionBlock::Scratch scratch = block.Take(arena, rows);
      Numbers out = source_.Make(rows, kHidden);
      block.StoreKv(h.view().Rows(first, rows), {&sequence, 1}, store, scratch);
      block.Attend({&sequence, 1}, store, scratch, out.view());
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t i = 0; i < kHidden; ++i) {
          EXPECT_NEAR(out.at(r, i), expected.at(first + r, i), 1e-4)
              << "row " << first + r << ", chunk " << chunk;
        }
      }
    }
  }
}

// The last layer goes on with few of the rows whose KV it stored.
TEST_F(AttentionBlockTest, TheSecondHalfTakesFewerRows) {
  Numbers h = source_.Make(9, kHidden);
  const Numbers expected = Expected(h);
  const AttentionBlock block(config_, 0, weights_, rope_, rank_);
  kv::KvStore store = *kv::KvStore::Create({.layers = 1, .kv_heads = 1, .head_dim = kDim}, 1);
  const std::vector<BlockId> blocks = {BlockId(0)};
  const SequenceRows all{.rows = 9, .first_position = 0, .blocks = blocks};
  Arena arena;
  AttentionBlock::Scratch scratch = block.Take(arena, 9);
  block.StoreKv(h.view(), {&all, 1}, store, scratch);
  const SequenceRows last{.rows = 1, .first_position = 8, .blocks = blocks};
  scratch = {.qkv = scratch.qkv.Rows(8, 1), .attended = scratch.attended.Rows(0, 1)};
  Numbers out = source_.Make(1, kHidden);
  block.Attend({&last, 1}, store, scratch, out.view());
  for (int64_t i = 0; i < kHidden; ++i) EXPECT_NEAR(out.at(0, i), expected.at(8, i), 1e-4);
}

}  // namespace
}  // namespace baton::model
