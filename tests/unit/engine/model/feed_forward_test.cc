#include "engine/model/feed_forward.h"

#include <gtest/gtest.h>

#include "tests/unit/engine/model/block_fixture.h"

namespace baton::model {
namespace {

TEST(FeedForwardTest, ComputesItsFormula) {
  constexpr int64_t kRows = 3, kHidden = 4, kWide = 6;
  const auto kernels = kernels::MakeReferenceKernels();
  const Rank rank(*kernels, nullptr);
  NumberSource source;
  const Numbers gate_up = source.Make(2 * kWide, kHidden), gate_up_bias = source.Make(1, 2 * kWide),
                down = source.Make(kHidden, kWide), down_bias = source.Make(1, kHidden);
  FeedForwardWeights weights;
  weights.gate_up = gate_up.Pack(*kernels);
  weights.gate_up_bias = gate_up_bias.Place(*kernels);
  weights.down = down.Pack(*kernels);
  weights.down_bias = down_bias.Place(*kernels);
  Numbers h = source.Make(kRows, kHidden), out = source.Make(kRows, kHidden);

  Arena arena;
  const FeedForward block(weights, rank);
  block.Forward(h.view(), block.Take(arena, kRows), out.view());

  const Numbers wide = Multiply(h, gate_up, gate_up_bias);
  Numbers activated{.values = {}, .rows = kRows, .cols = kWide};
  for (int64_t r = 0; r < kRows; ++r) {
    for (int64_t i = 0; i < kWide; ++i) {
      const float gate = wide.at(r, i);
      activated.values.push_back(gate / (1 + std::exp(-gate)) * wide.at(r, kWide + i));
    }
  }
  const Numbers expected = Multiply(activated, down, down_bias);
  for (size_t i = 0; i < expected.values.size(); ++i) EXPECT_NEAR(out.values[i], expected.values[i], 1e-5);
}

}  // namespace
}  // namespace baton::model
