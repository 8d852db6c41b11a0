// Decisions that the cuda backend makes on the host before a launch: how rows are padded, how attention is
// cut into pieces, and the table of a step that is uploaded once. No CUDA in here: it is built and tested
// everywhere. Plain functions and data, any thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/kernels/cuda/tiling.h"
#include "engine/kernels/kernels.h"

namespace baton::kernels::cuda {

// Decode steps are padded to one of these row counts, so that few CUDA graphs serve all batches. Beyond the
// largest, rows are left as they are and no graph is used.
inline constexpr int64_t kMaxGraphRows = 256;
int64_t RowBucket(int64_t rows);

// The grid is made for a power of two of splits: six sizes of graph per row bucket.
int SplitBucket(int64_t longest);

// All that kernels need to know of a step's rows, as one run of 32-bit words:
//   tokens[rows]  positions[rows]  row_blocks[rows]  decode_rows[rows]  tiles[...]  blocks[...]  kept[...]
// The first four have a fixed place for a given number of rows, so a graph finds them again. tokens[r] is an
// id, or TakenWord(i): draw number i of the step before gives it.
class StepTable {
 public:
  // `tokens` and `logit_rows` (ascending) may be empty; a sequence all of whose rows are wanted is decode
  // rows (verify_rows.h). Rows from the sequences' end to `padded_rows` are padding: position -1. `group`:
  // query heads per KV head.
  StepTable(std::span<const TokenId> tokens, std::span<const SequenceRows> sequences,
            std::span<const int64_t> logit_rows, int64_t padded_rows, int group,
            std::span<const TakenToken> taken = {});

  std::span<const int32_t> words() const { return words_; }
  int64_t rows() const { return rows_; }
  // Rows that are a sequence of one row, or of a verify step: those go to the split-KV kernel. In a padded
  // step, all of them.
  int64_t decode_rows() const { return decode_rows_; }
  int64_t tiles() const { return tiles_; }
  // Keys that the longest decode row attends to, windows aside.
  int64_t longest_decode() const { return longest_decode_; }

  // Offsets in words.
  int64_t positions_at() const { return rows_; }
  int64_t row_blocks_at() const { return 2 * rows_; }
  int64_t decode_rows_at() const { return 3 * rows_; }
  int64_t tiles_at() const { return (4 * rows_ + 7) / 8 * 8; }  // 32-byte aligned
  int64_t blocks_at() const { return tiles_at() + tiles_ * 8; }
  int64_t kept_at() const { return static_cast<int64_t>(words_.size()) - kept_; }

 private:
  int64_t rows_;
  int64_t decode_rows_ = 0;
  int64_t tiles_ = 0;
  int64_t longest_decode_ = 0;
  int64_t kept_ = 0;  // logit rows
  std::vector<int32_t> words_;
};

}  // namespace baton::kernels::cuda
