// The shipped model on a GPU: logits against the reference, and graphs against plain launches.
//
// Activations are rounded to bf16 (2^-9) some ten times per layer, over six layers, and random tokens leave
// the model unsure, so that a few rows of logits move far. How far is measured on an implementation that is
// not ours (bf16_error.py); twice that is allowed.
#include <algorithm>
#include <optional>

#include "engine/model/decoder.h"
#include "tests/gpu/gpu.h"

namespace baton::gpu {
namespace {

using kernels::SequenceRows;
using tensor::DType;

constexpr uint32_t kDecoderSeed = 91;
// How far a row of logits is off: the norm of the difference, relative to the row's.
struct Bounds {
  double median, nine_of_ten, worst;
};
constexpr Bounds kBf16 = {.median = 2 * 0.021, .nine_of_ten = 2 * 0.078, .worst = 2 * 0.32};

struct Lane {
  std::vector<TokenId> tokens;
  std::vector<BlockId> blocks;
  int64_t computed = 0;
};

class Engine {
 public:
  Engine(kernels::Kernels& kernels, DType keys, DType values) : kernels_(kernels) {
    auto decoder = model::Decoder::Load(Model(), kernels);
    EXPECT_TRUE(decoder.ok()) << decoder.status();
    decoder_ = *std::move(decoder);
    auto store = kv::KvStore::Create(decoder_->LayoutFor(keys, values), 200, kernels.memory());
    EXPECT_TRUE(store.ok()) << store.status();
    store_.emplace(*std::move(store));
  }

  // Computes `rows` more tokens of each lane; logits of the last row of each.
  std::vector<float> Step(std::vector<Lane*> lanes, const std::vector<int64_t>& rows) {
    std::vector<TokenId> tokens;
    std::vector<SequenceRows> sequences;
    std::vector<int64_t> wanted;
    for (size_t i = 0; i < lanes.size(); ++i) {
      Lane& lane = *lanes[i];
      sequences.push_back({static_cast<int64_t>(tokens.size()), rows[i], lane.computed, lane.blocks});
      const auto first = lane.tokens.begin() + lane.computed;
      tokens.insert(tokens.end(), first, first + rows[i]);
      lane.computed += rows[i];
      wanted.push_back(static_cast<int64_t>(tokens.size()) - 1);
    }
    std::vector<float> logits(static_cast<size_t>(decoder_->config().vocabulary) * wanted.size());
    int layers = 0;
    decoder_->Forward({tokens, sequences, wanted}, *store_, logits,
                      [&](int layer) { EXPECT_EQ(layer, layers++); });
    EXPECT_EQ(layers, decoder_->config().layers);
    return logits;
  }
  int64_t vocabulary() const { return decoder_->config().vocabulary; }

 private:
  kernels::Kernels& kernels_;
  std::unique_ptr<model::Decoder> decoder_;
  std::optional<kv::KvStore> store_;
};

std::vector<Lane> MakeLanes(int64_t vocabulary, const std::vector<int64_t>& prompts, int64_t steps) {
  std::mt19937 random(kDecoderSeed);
  std::vector<BlockId> free;
  for (uint32_t b = 0; b < 200; ++b) free.emplace_back(b);
  std::shuffle(free.begin(), free.end(), random);
  std::vector<Lane> lanes(prompts.size());
  for (size_t l = 0; l < lanes.size(); ++l) {
    for (int64_t i = 0; i < prompts[l] + steps; ++i) {
      lanes[l].tokens.emplace_back(static_cast<int32_t>(random() % static_cast<uint64_t>(vocabulary)));
    }
    for (int64_t b = 0; b < BlocksFor(prompts[l] + steps); ++b) {
      lanes[l].blocks.push_back(free.back());
      free.pop_back();
    }
  }
  return lanes;
}

constexpr int64_t kSteps = 8;
const std::vector<int64_t> kPrompts = {5, 130, 47, 300, 1};

// Prompts in two uneven chunks, then all lanes decode together. Logits of every step, one after the other.
std::vector<float> Serve(Engine& engine) {
  std::vector<Lane> lanes = MakeLanes(engine.vocabulary(), kPrompts, kSteps);
  std::vector<Lane*> all;
  std::vector<int64_t> first, rest;
  std::vector<Lane*> longer;
  for (size_t l = 0; l < lanes.size(); ++l) {
    all.push_back(&lanes[l]);
    first.push_back((kPrompts[l] + 1) / 2);
    if (kPrompts[l] / 2 > 0) longer.push_back(&lanes[l]), rest.push_back(kPrompts[l] / 2);
  }
  std::vector<float> logits = engine.Step(all, first);
  const auto add = [&](const std::vector<float>& more) {
    logits.insert(logits.end(), more.begin(), more.end());
  };
  add(engine.Step(longer, rest));
  for (int64_t step = 0; step < kSteps; ++step) add(engine.Step(all, std::vector<int64_t>(all.size(), 1)));
  return logits;
}

void Compare(const std::vector<float>& got, const std::vector<float>& expected, int64_t vocabulary,
             const Bounds& bounds) {
  ASSERT_EQ(got.size(), expected.size());
  std::vector<double> errors;
  for (size_t at = 0; at < got.size(); at += static_cast<size_t>(vocabulary)) {
    double difference = 0, norm = 0;
    for (size_t i = at; i < at + static_cast<size_t>(vocabulary); ++i) {
      const double d = double{got[i]} - expected[i];
      difference += d * d;
      norm += double{expected[i]} * expected[i];
    }
    errors.push_back(std::sqrt(difference / norm));
    ASSERT_FALSE(std::isnan(errors.back())) << "row " << errors.size() - 1;
  }
  std::ranges::sort(errors);
  EXPECT_LE(errors[errors.size() / 2], bounds.median);
  EXPECT_LE(errors[errors.size() * 9 / 10], bounds.nine_of_ten);
  EXPECT_LE(errors.back(), bounds.worst);
}

struct Case {
  const char* name;
  DType keys, values;
  // Scaled KV is coarser: int8 about as fine as bf16, e4m3 with three bits of mantissa far less.
  double coarser;
};

class DecoderGpuTest : public testing::TestWithParam<Case> {};

TEST_P(DecoderGpuTest, LogitsAreThoseOfTheReference) {
  auto cuda = MakeKernels();
  ASSERT_NE(cuda, nullptr) << "these tests need a GPU";
  const auto judge = kernels::MakeReferenceKernels();
  Engine fast(*cuda, GetParam().keys, GetParam().values), slow(*judge, DType::kF32, DType::kF32);
  const double coarser = GetParam().coarser;
  Compare(Serve(fast), Serve(slow), fast.vocabulary(),
          {coarser * kBf16.median, coarser * kBf16.nine_of_ten, kBf16.worst});
  EXPECT_GT(Replays(*cuda), 0) << "no step was a replay";
}

INSTANTIATE_TEST_SUITE_P(Kv, DecoderGpuTest,
                         testing::Values(Case{"bf16", DType::kBF16, DType::kBF16, 1},
                                         Case{"i8", DType::kI8, DType::kI8, 1.5},
                                         Case{"bf16_and_f8", DType::kBF16, DType::kF8, 3},
                                         Case{"i8_and_f8", DType::kI8, DType::kF8, 3}),
                         [](const auto& info) { return info.param.name; });

TEST(DecoderOnGpuTest, AGraphComputesWhatPlainLaunchesDo) {
  auto graphs = MakeKernels(true), plain = MakeKernels(false);
  ASSERT_TRUE(graphs != nullptr && plain != nullptr) << "these tests need a GPU";
  Engine with(*graphs, DType::kBF16, DType::kBF16), without(*plain, DType::kBF16, DType::kBF16);
  // Rows are padded in one and not in the other, so products may be summed in another order.
  Compare(Serve(with), Serve(without), with.vocabulary(),
          {.median = 0.04, .nine_of_ten = 0.04, .worst = 0.04});
  EXPECT_EQ(Replays(*graphs), kSteps - 2) << "the first step is plain, the second is captured";
  EXPECT_EQ(Replays(*plain), 0);
}

TEST(DecoderOnGpuTest, TheSameStepTwiceGivesTheSameBits) {
  auto first = MakeKernels(), second = MakeKernels();
  ASSERT_TRUE(first != nullptr && second != nullptr) << "these tests need a GPU";
  Engine a(*first, DType::kBF16, DType::kBF16), b(*second, DType::kBF16, DType::kBF16);
  EXPECT_EQ(Serve(a), Serve(b));
}

}  // namespace
}  // namespace baton::gpu
