// Where kernels find the draws of a step in what is uploaded.
#include "engine/kernels/cuda/draw_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace baton::kernels::cuda {
namespace {

using testing::ElementsAre;

TEST(DrawTableTest, KernelsFindWhatWasAskedFor) {
  const std::vector<RowDraw> rows = {
      {.uniform = 0.25, .row = 3, .top_k = 7, .first_bias = 1, .bias_count = 2},
      {.row = 4, .slot = 9, .repetition_penalty = 1.5f, .first_mask = 1, .mask_words = 2}};
  const std::vector<TokenBias> biases = {{1, 0.5f}, {8, -2}, {5, 3}};
  const std::vector<TokenId> prompt = {TokenId(11), TokenId(12), TokenId(13)}, output = {TokenId(14)};
  const std::vector<SeenTokens> seen = {{9, prompt, output}, {2, {}, prompt}, {1, {}, {}}};
  const std::vector<uint32_t> masks = {21, 22, 23};
  const DrawTable table({rows, biases, seen, masks});
  EXPECT_EQ(DrawTable::BytesOf({rows, biases, seen, masks}), std::ssize(table.bytes()));

  // Kernels see a copy.
  std::vector<RowDraw> memory(table.bytes().size() / sizeof(RowDraw) + 1);
  auto* const base = reinterpret_cast<std::byte*>(memory.data());
  std::ranges::copy(table.bytes(), base);
  const DrawView view = table.View(base);
  ASSERT_EQ(view.row_count, 2);
  EXPECT_FALSE(view.all_greedy);
  EXPECT_EQ(view.rows[0].uniform, 0.25);
  EXPECT_EQ(view.rows[0].row, 3);
  EXPECT_EQ(view.rows[0].top_k, 7);
  EXPECT_EQ(view.rows[1].slot, 9);
  EXPECT_EQ(view.rows[1].repetition_penalty, 1.5f);
  EXPECT_EQ(view.rows[0].mask_words, 0);
  EXPECT_EQ(view.rows[1].mask_words, 2);
  EXPECT_EQ(view.masks[view.rows[1].first_mask], 22u);
  EXPECT_EQ(view.masks[view.rows[1].first_mask + 1], 23u);
  EXPECT_EQ(view.biases[1].token, 8);
  EXPECT_EQ(view.biases[2].bias, 3);
  ASSERT_EQ(view.seen_count, 3);
  const auto tokens_of = [&view](int i) {
    const SeenRun& run = view.seen[i];
    return std::vector<int32_t>(view.tokens + run.first, view.tokens + run.first + run.prompt + run.output);
  };
  EXPECT_EQ(view.seen[0].slot, 9);
  EXPECT_EQ(view.seen[0].prompt, 3);
  EXPECT_THAT(tokens_of(0), ElementsAre(11, 12, 13, 14));
  EXPECT_EQ(view.seen[1].prompt, 0);
  EXPECT_THAT(tokens_of(1), ElementsAre(11, 12, 13));
  EXPECT_EQ(view.seen[2].slot, 1);
  EXPECT_TRUE(tokens_of(2).empty());
}

}  // namespace
}  // namespace baton::kernels::cuda
