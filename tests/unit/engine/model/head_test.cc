#include "engine/model/head.h"

#include <gtest/gtest.h>

#include "engine/kernels/collective.h"
#include "tests/unit/engine/model/block_fixture.h"

namespace baton::model {
namespace {

constexpr int64_t kHeadHidden = 4, kVocabulary = 7;

TEST(HeadTest, OnTheHostLogitsAreWrittenWhereTheCallerWantsThem) {
  const auto kernels = kernels::MakeReferenceKernels();
  const Rank rank(*kernels, nullptr);
  NumberSource source;
  const Numbers w = source.Make(kVocabulary, kHeadHidden);
  const auto packed = w.Pack(*kernels);
  const Head head(*packed, kVocabulary, rank);
  Numbers h = source.Make(3, kHeadHidden);
  std::vector<float> logits(3 * kVocabulary);
  Arena arena;
  const kernels::Matrix place = head.Place(logits, 3, 8, arena);
  EXPECT_EQ(place.data, logits.data());
  EXPECT_EQ(arena.bytes(), 0);
  head.Compute(h.view(), place);
  head.Gather(place);
  const Numbers expected = Multiply(h, w, {});
  for (size_t i = 0; i < logits.size(); ++i) EXPECT_NEAR(logits[i], expected.values[i], 1e-5);
  // They are there already.
  const std::vector<float> before = logits;
  const std::vector<int64_t> rows = {0, 2};
  head.Deliver(place, rows, logits);
  EXPECT_EQ(logits, before);
}

TEST(HeadTest, RanksComputeTheirColumns) {
  auto group = kernels::MakeInProcessGroup(2);
  const auto kernels = kernels::MakeReferenceKernels();
  NumberSource source;
  const Numbers w = source.Make(kVocabulary, kHeadHidden);
  Numbers h = source.Make(2, kHeadHidden);
  const Numbers expected = Multiply(h, w, {});
  std::vector<float> logits(2 * kVocabulary);
  Arena arena;
  for (int r = 0; r < 2; ++r) {
    const Rank rank(*kernels, group[static_cast<size_t>(r)].get());
    const Range own = rank.shard.Of(kVocabulary);
    const kernels::WeightView view{w.values.data() + own.begin * kHeadHidden, tensor::DType::kF32, own.count,
                                   kHeadHidden};
    const auto packed = *kernels->Pack({&view, 1});
    const Head head(*packed, kVocabulary, rank);
    const kernels::Matrix place = head.Place(logits, 2, 2, arena);
    EXPECT_EQ(head.Own(place).cols, own.count);
    head.Compute(h.view(), place);
  }
  for (size_t i = 0; i < logits.size(); ++i) EXPECT_NEAR(logits[i], expected.values[i], 1e-5);
}

TEST(HeadTest, RowsThatLieElsewhereAreCopied) {
  const auto kernels = kernels::MakeReferenceKernels();
  const Rank rank(*kernels, nullptr);
  NumberSource source;
  const auto packed = source.Make(kVocabulary, kHeadHidden).Pack(*kernels);
  const Head head(*packed, kVocabulary, rank);
  Numbers computed = source.Make(4, kVocabulary);
  for (const std::vector<int64_t>& rows : {std::vector<int64_t>{0, 3}, {1, 2}, {}}) {
    std::vector<float> to(4 * kVocabulary, -7);
    head.Deliver(computed.view(), rows, to);
    for (int64_t r = 0; r < 4; ++r) {
      const bool asked = std::ranges::find(rows, r) != rows.end();
      for (int64_t i = 0; i < kVocabulary; ++i) {
        EXPECT_EQ(to[static_cast<size_t>(r * kVocabulary + i)], asked ? computed.at(r, i) : -7)
            << "row " << r;
      }
    }
  }
}

}  // namespace
}  // namespace baton::model
