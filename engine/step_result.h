// StepResult: what one step of the engine gave: for each sequence of the batch, in the order in which the
// batch has them, a drawn token or a row of logits per logit row that was asked for. Plain data, engine
// thread. The logits belong to the engine and are valid until its next Launch or Forward.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "common/base/check.h"
#include "common/base/ids.h"

namespace baton::engine {

// How many rows of a step are one sequence's, and which rows of the step's logits.
struct SequenceShare {
  int64_t rows = 0;
  int64_t first_logit_row = 0;
  int64_t logit_rows = 0;  // of the last so many of its rows
};

class StepResult {
 public:
  StepResult() = default;
  // drawn: by logit row of the step; -1 where no token was drawn. logits: [drawn.size(), vocabulary], or
  // empty if the step after this one was launched before this one was finished.
  StepResult(std::vector<SequenceShare> shares, std::vector<TokenId> drawn, std::span<const float> logits,
             int64_t vocabulary)
      : shares_(std::move(shares)), drawn_(std::move(drawn)), logits_(logits), vocabulary_(vocabulary) {}

  int64_t sequences() const { return std::ssize(shares_); }
  // Rows that the step computed of a sequence.
  int64_t rows(int64_t sequence) const { return shares_[static_cast<size_t>(sequence)].rows; }
  int64_t logit_rows(int64_t sequence) const { return shares_[static_cast<size_t>(sequence)].logit_rows; }

  // `row` counts a sequence's logit rows: row logit_rows(sequence) - 1 is its last row in the step.
  // The token that the backend drew. None if it was not asked to draw, or could not: then logits() has the
  // row.
  std::optional<TokenId> drawn(int64_t sequence, int64_t row = 0) const {
    const TokenId token = drawn_[LogitRow(sequence, row)];
    if (token == kNotDrawn) return std::nullopt;
    return token;
  }
  // [vocabulary]. Unspecified values if a token was drawn. Empty if another step was launched before this one
  // was finished, whose logits are in their place.
  std::span<const float> logits(int64_t sequence, int64_t row = 0) const {
    const size_t logit_row = LogitRow(sequence, row);
    if (logits_.empty()) return {};
    const auto width = static_cast<size_t>(vocabulary_);
    return logits_.subspan(logit_row * width, width);
  }
  // [logit rows of all sequences, vocabulary].
  std::span<const float> logits() const { return logits_; }

  static constexpr TokenId kNotDrawn = TokenId(-1);

 private:
  size_t LogitRow(int64_t sequence, int64_t row) const {
    const SequenceShare& share = shares_[static_cast<size_t>(sequence)];
    BATON_CHECK(row >= 0 && row < share.logit_rows);
    return static_cast<size_t>(share.first_logit_row + row);
  }

  std::vector<SequenceShare> shares_;
  std::vector<TokenId> drawn_;
  std::span<const float> logits_;
  int64_t vocabulary_ = 0;
};

}  // namespace baton::engine
