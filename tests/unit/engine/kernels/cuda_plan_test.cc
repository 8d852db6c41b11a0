// Decisions of the cuda backend on the host; no GPU needed.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

#include "engine/kernels/cuda/plan.h"
#include "engine/kernels/verify_rows.h"

namespace baton::kernels::cuda {
namespace {

TEST(CudaPlanTest, RowBucketsAreFewAndWasteLittle) {
  std::set<int64_t> buckets;
  for (int64_t rows = 1; rows <= kMaxGraphRows; ++rows) {
    const int64_t bucket = RowBucket(rows);
    buckets.insert(bucket);
    EXPECT_GE(bucket, rows);
    EXPECT_LE(bucket, kMaxGraphRows);
    EXPECT_EQ(RowBucket(bucket), bucket);
    EXPECT_LE(bucket, rows <= 4 ? 2 * rows : rows + std::max<int64_t>(7, rows / 2)) << rows;
  }
  EXPECT_LE(buckets.size(), 17u);
  EXPECT_EQ(RowBucket(kMaxGraphRows + 1), kMaxGraphRows + 1);
}

TEST(CudaPlanTest, SplitsCoverEveryLengthOnceAndFitTheirBucket) {
  int most = 0;
  for (int64_t length = 1; length < 300000; length += length < 20000 ? 1 : 997) {
    const int64_t tokens = SplitTokens(length);
    const int splits = SplitCount(length);
    most = std::max(most, splits);
    ASSERT_EQ(tokens % kMinSplitTokens, 0);
    ASSERT_GE(splits * tokens, length);
    ASSERT_LT((splits - 1) * tokens, length);  // none is empty
    ASSERT_LE(splits, SplitBucket(length)) << length;
    // Whatever is shorter, in the same batch, fits the longest's grid.
    ASSERT_LE(splits, SplitBucket(length + 1000));
    ASSERT_LE(SplitBucket(length), kMaxSplits);
  }
  EXPECT_EQ(most, kMaxSplits);
}

struct Batch {
  std::vector<TokenId> tokens;
  std::vector<std::vector<BlockId>> blocks;
  std::vector<SequenceRows> sequences;
};

Batch RandomBatch(std::mt19937& random, bool decode) {
  Batch batch;
  const size_t count = 1 + random() % 9;
  batch.blocks.resize(count);
  for (size_t s = 0; s < count; ++s) {
    const int64_t rows = decode || random() % 3 == 0 ? 1 : 1 + static_cast<int64_t>(random() % 200);
    const int64_t first = static_cast<int64_t>(random() % 400);
    for (int64_t b = 0; b < BlocksFor(first + rows); ++b)
      batch.blocks[s].emplace_back(static_cast<uint32_t>(random() % 5000));
    // A table may be longer than what is needed now.
    batch.blocks[s].emplace_back(77u);
    batch.sequences.push_back({.first_row = static_cast<int64_t>(batch.tokens.size()),
                               .rows = rows,
                               .first_position = first,
                               .blocks = batch.blocks[s]});
    for (int64_t i = 0; i < rows; ++i) batch.tokens.emplace_back(static_cast<int32_t>(random() % 1000));
  }
  return batch;
}

TEST(CudaPlanTest, ATakenTokenIsNoOtherNumber) {
  for (int32_t draw : {0, 1, 255, 100'000}) {
    EXPECT_LT(TakenWord(draw), -1);
    EXPECT_EQ(TakenWord(TakenWord(draw)), draw);
  }
}

TEST(CudaPlanTest, TheTableTellsEveryRow) {
  constexpr uint32_t kSeed = 41;
  SCOPED_TRACE(testing::Message() << "seed " << kSeed);
  std::mt19937 random(kSeed);
  for (int round = 0; round < 200; ++round) {
    const bool decode = round % 2 == 0;
    const int group = 1 + static_cast<int>(random() % 8);
    const Batch batch = RandomBatch(random, decode);
    const auto rows = static_cast<int64_t>(batch.tokens.size());
    const int64_t padded = decode ? RowBucket(rows) : rows;
    const std::vector<int64_t> kept = {0, rows - 1};
    const std::vector<TakenToken> taken = {{.row = static_cast<int32_t>(rows - 1), .draw = round}};
    const StepTable table(batch.tokens, batch.sequences, kept, padded, group,
                          round % 3 == 0 ? taken : std::vector<TakenToken>());
    const auto words = table.words();
    ASSERT_EQ(table.rows(), padded);
    ASSERT_EQ(words[table.kept_at()], 0);
    ASSERT_EQ(words[table.kept_at() + 1], rows - 1);
    std::multiset<int64_t> computed;  // packed (row, head) pairs that some tile or decode row takes
    for (const SequenceRows& sequence : batch.sequences) {
      for (int64_t i = 0; i < sequence.rows; ++i) {
        const int64_t row = sequence.first_row + i;
        const int64_t position = sequence.first_position + i;
        const bool unknown = round % 3 == 0 && row == rows - 1;
        ASSERT_EQ(words[row], unknown ? TakenWord(round) : batch.tokens[row].value());
        ASSERT_EQ(words[table.positions_at() + row], position);
        const int64_t own = table.blocks_at() + words[table.row_blocks_at() + row];
        for (int64_t b = 0; b <= position / kBlockTokens; ++b) {
          ASSERT_EQ(static_cast<uint32_t>(words[own + b]), sequence.blocks[b].value());
        }
      }
    }
    for (int64_t row = rows; row < padded; ++row) ASSERT_EQ(words[table.positions_at() + row], -1);
    for (int64_t i = 0; i < table.decode_rows(); ++i) {
      const int64_t row = words[table.decode_rows_at() + i];
      if (row >= rows) continue;
      ASSERT_LE(words[table.positions_at() + row] + 1, table.longest_decode());
      for (int g = 0; g < group; ++g) computed.insert(row * group + g);
    }
    ASSERT_EQ(table.tiles_at() % 8, 0);
    const auto* tiles = reinterpret_cast<const PrefillTile*>(words.data() + table.tiles_at());
    for (int64_t t = 0; t < table.tiles(); ++t) {
      ASSERT_EQ(tiles[t].first % kTileRows, 0);
      ASSERT_EQ(words[table.positions_at() + tiles[t].first_row], tiles[t].first_position);
      ASSERT_EQ(words[table.row_blocks_at() + tiles[t].first_row], tiles[t].first_block);
      const int64_t end = std::min<int64_t>(tiles[t].first + kTileRows, int64_t{tiles[t].rows} * group);
      for (int64_t p = tiles[t].first; p < end; ++p) computed.insert(int64_t{tiles[t].first_row} * group + p);
    }
    ASSERT_EQ(static_cast<int64_t>(computed.size()), rows * group) << "round " << round;
    for (int64_t p = 0; p < rows * group; ++p) ASSERT_EQ(computed.count(p), 1u) << "round " << round;
    if (decode) {
      ASSERT_EQ(table.decode_rows(), padded);
      ASSERT_EQ(table.tiles(), 0);
    }
  }
}

// A sequence all of whose rows are wanted is as many decode rows, whatever is beside it; a piece of a prompt
// is not.
TEST(CudaPlanTest, RowsOfAVerifyStepAreDecodeRows) {
  std::vector<BlockId> blocks;
  for (uint32_t b = 0; b < 40; ++b) blocks.emplace_back(b + 3);
  const auto table = [&](const std::vector<int64_t>& rows, const std::vector<int64_t>& wanted, bool padded) {
    std::vector<SequenceRows> sequences;
    std::vector<TokenId> tokens;
    for (const int64_t count : rows) {
      sequences.push_back({.first_row = std::ssize(tokens),
                           .rows = count,
                           .first_position = 100 * std::ssize(sequences) + 7,
                           .blocks = blocks});
      tokens.resize(tokens.size() + static_cast<size_t>(count), TokenId(1));
    }
    EXPECT_EQ(IsDecodeStep(std::ssize(tokens), sequences, wanted), padded);
    return StepTable(tokens, sequences, wanted, padded ? RowBucket(std::ssize(tokens)) : std::ssize(tokens),
                     2);
  };
  const auto decode_rows = [](const StepTable& of) {
    const auto words =
        of.words().subspan(static_cast<size_t>(of.decode_rows_at()), static_cast<size_t>(of.decode_rows()));
    return std::vector<int32_t>(words.begin(), words.end());
  };
  const StepTable all = table({3, 1, 2}, {0, 1, 2, 3, 4, 5}, true);
  EXPECT_EQ(all.tiles(), 0);
  EXPECT_EQ(decode_rows(all), (std::vector<int32_t>{0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(all.longest_decode(), 209);
  // Beside a piece of a prompt, of which the last row is wanted.
  const StepTable mixed = table({3, 4, 2}, {0, 1, 2, 6, 7, 8}, false);
  EXPECT_EQ(mixed.tiles(), 1);
  EXPECT_EQ(decode_rows(mixed), (std::vector<int32_t>{0, 1, 2, 7, 8}));
  EXPECT_EQ(mixed.longest_decode(), 209);
  // Not all of its rows, or more than a draft has.
  EXPECT_EQ(table({3}, {1, 2}, false).decode_rows(), 0);
  std::vector<int64_t> many;
  for (int64_t i = 0; i <= kMaxVerifyRows; ++i) many.push_back(i);
  EXPECT_EQ(table({kMaxVerifyRows + 1}, many, false).decode_rows(), 0);
  many.pop_back();
  EXPECT_EQ(table({kMaxVerifyRows}, many, true).decode_rows(), kMaxVerifyRows);
}

}  // namespace
}  // namespace baton::kernels::cuda
