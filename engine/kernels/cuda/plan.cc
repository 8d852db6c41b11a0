#include "engine/kernels/cuda/plan.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "common/base/check.h"
#include "engine/kernels/verify_rows.h"

namespace baton::kernels::cuda {

int64_t RowBucket(int64_t rows) {
  if (rows > kMaxGraphRows) return rows;
  if (rows <= 8)
    return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(rows, 1))));
  const int64_t step = rows <= 64 ? 8 : 32;
  return (rows + step - 1) / step * step;
}

int SplitBucket(int64_t longest) {
  // A shorter row may have more splits than a longer one, by rounding; the bucket holds them all.
  const int64_t full = std::min<int64_t>(kMaxSplits, (longest + kMinSplitTokens - 1) / kMinSplitTokens);
  return static_cast<int>(std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(full, 1))));
}

StepTable::StepTable(std::span<const TokenId> tokens, std::span<const SequenceRows> sequences,
                     std::span<const int64_t> logit_rows, int64_t padded_rows, int group,
                     std::span<const TakenToken> taken)
    : rows_(padded_rows), kept_(static_cast<int64_t>(logit_rows.size())) {
  std::vector<PrefillTile> tiles;
  std::vector<int32_t> blocks;
  words_.assign(static_cast<size_t>(4 * rows_), 0);
  for (size_t i = 0; i < tokens.size(); ++i) words_[i] = tokens[i].value();
  for (const TakenToken& token : taken) words_[static_cast<size_t>(token.row)] = TakenWord(token.draw);
  std::fill_n(words_.begin() + positions_at(), rows_, -1);
  int64_t rows = 0;
  auto wanted = logit_rows.begin();
  for (const SequenceRows& sequence : sequences) {
    BATON_CHECK(sequence.first_row == rows && sequence.rows >= 1);
    const auto first_block = static_cast<int32_t>(blocks.size());
    const int64_t needed = BlocksFor(sequence.first_position + sequence.rows);
    BATON_CHECK(needed <= static_cast<int64_t>(sequence.blocks.size()));
    for (int64_t b = 0; b < needed; ++b) {
      blocks.push_back(static_cast<int32_t>(sequence.blocks[static_cast<size_t>(b)].value()));
    }
    for (int64_t i = 0; i < sequence.rows; ++i) {
      words_[static_cast<size_t>(positions_at() + rows + i)] =
          static_cast<int32_t>(sequence.first_position + i);
      words_[static_cast<size_t>(row_blocks_at() + rows + i)] = first_block;
    }
    const auto first_wanted = wanted;
    while (wanted != logit_rows.end() && *wanted < rows + sequence.rows) ++wanted;
    const bool verify = sequence.rows <= kMaxVerifyRows && wanted - first_wanted == sequence.rows;
    if (sequence.rows == 1 || verify) {
      for (int64_t i = 0; i < sequence.rows; ++i) {
        words_[static_cast<size_t>(decode_rows_at() + decode_rows_++)] = static_cast<int32_t>(rows + i);
      }
      longest_decode_ = std::max(longest_decode_, sequence.first_position + sequence.rows);
    } else {
      // The last tile attends to the most: it goes first, so that the short ones fill the gaps at the end.
      const int64_t packed = sequence.rows * group;
      for (int64_t first = (packed - 1) / kTileRows * kTileRows; first >= 0; first -= kTileRows) {
        tiles.push_back({.first_row = static_cast<int32_t>(rows),
                         .rows = static_cast<int32_t>(sequence.rows),
                         .first_position = static_cast<int32_t>(sequence.first_position),
                         .first_block = first_block,
                         .first = static_cast<int32_t>(first),
                         .padding = {}});
      }
    }
    rows += sequence.rows;
  }
  BATON_CHECK(rows <= rows_);
  if (tiles.empty()) {
    // A graph knows no row count but the padded one: padding rows take part and find position -1.
    for (; rows < rows_; ++rows)
      words_[static_cast<size_t>(decode_rows_at() + decode_rows_++)] = static_cast<int32_t>(rows);
  }
  std::ranges::stable_sort(tiles, std::greater(),
                           [](const PrefillTile& t) { return t.first_position + t.first; });
  tiles_ = static_cast<int64_t>(tiles.size());
  words_.resize(static_cast<size_t>(blocks_at()));
  if (!tiles.empty()) {
    std::memcpy(words_.data() + tiles_at(), tiles.data(), tiles.size() * sizeof(PrefillTile));
  }
  words_.insert(words_.end(), blocks.begin(), blocks.end());
  for (int64_t row : logit_rows) words_.push_back(static_cast<int32_t>(row));
}

}  // namespace baton::kernels::cuda
