#include "engine/chunk_planner.h"

#include <gtest/gtest.h>

#include "common/base/ids.h"

namespace baton::engine {
namespace {

TEST(ChunkPlannerTest, AChunkEachUntilTheBudgetIsSpent) {
  ChunkPlanner chunks({.chunk_tokens = 64, .token_budget = 150});
  EXPECT_EQ(chunks.Take(0, 1000), 64);
  EXPECT_EQ(chunks.Take(32, 20), 20);
  EXPECT_EQ(chunks.Take(0, 100), 64);
  EXPECT_EQ(chunks.Take(0, 100), 2) << "what is left of the budget";
  EXPECT_EQ(chunks.Take(0, 1), 0);
}

TEST(ChunkPlannerTest, ChunksThatAreShippedEndWithABlock) {
  ChunkPlanner chunks({.chunk_tokens = 40, .token_budget = 75, .whole_blocks = true});
  EXPECT_EQ(chunks.Take(0, 100), 32) << "two blocks of 16 fit into 40 rows";
  EXPECT_EQ(chunks.Take(16, 33), 33) << "the end of a prompt needs no whole block";
  EXPECT_EQ(chunks.Take(0, 100), 0) << "10 rows are no block";
}

TEST(ChunkPlannerTest, ANegativeBudgetTakesNothing) {
  ChunkPlanner chunks({.chunk_tokens = 64, .token_budget = -3});
  EXPECT_EQ(chunks.Take(0, 10), 0);
}

TEST(ChunkPlannerTest, StaysWithinTheSecondsInWholeBlocks) {
  // A row takes a millisecond; 50 ms are left.
  const forecast::StepCost cost = {.base = 0, .sequence = 0, .context = 0, .token = 1e-3, .pair = 0};
  ChunkPlanner chunks({.chunk_tokens = 512, .token_budget = 512, .seconds = 0.0505}, cost);
  EXPECT_EQ(chunks.Take(0, 20), 20);
  EXPECT_EQ(chunks.Take(0, 500), 16) << "30 rows are left, which is one block";
  EXPECT_EQ(chunks.Take(0, 500), 0);
}

TEST(ChunkPlannerTest, PairsOfALongPrefixTakeTimeToo) {
  const forecast::StepCost cost = {.base = 0, .sequence = 0, .context = 0, .token = 0, .pair = 1e-6};
  ChunkPlanner cheap({.chunk_tokens = 512, .token_budget = 512, .seconds = 0.1}, cost);
  ChunkPlanner dear({.chunk_tokens = 512, .token_budget = 512, .seconds = 0.1}, cost);
  EXPECT_GT(cheap.Take(0, 512), dear.Take(2000, 512));
}

TEST(ChunkPlannerTest, TheFirstPromptGetsABlockInAnyCase) {
  const forecast::StepCost cost = {.base = 0, .sequence = 0, .context = 0, .token = 1e-3, .pair = 0};
  ChunkPlanner late({.chunk_tokens = 512, .token_budget = 512, .seconds = -1}, cost);
  EXPECT_EQ(late.Take(0, 500), kBlockTokens);
  EXPECT_EQ(late.Take(0, 500), 0) << "a second prompt waits";
}

}  // namespace
}  // namespace baton::engine
