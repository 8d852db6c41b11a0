// NgramIndex: where a few tokens in a row were last seen in a text that grows: a table per length, from a
// hash of the tokens to the place behind them. A place that another one has taken over is forgotten, so
// memory is linear in the text and a token costs the same however long that is. Plain data, engine thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "common/base/ids.h"

namespace baton::decode_service::drafting {

class NgramIndex {
 public:
  // The longest first.
  static constexpr std::array<size_t, 3> kLengths = {8, 4, 2};
  static constexpr size_t kLongest = kLengths.front();

  // The text is `text` now: what it was before, and more. Takes in at most `most` of its tokens, so that a
  // long prompt does not hold up a step.
  void Extend(std::span<const TokenId> text, size_t most);

  struct Match {
    size_t next = 0;  // place in the text
    size_t length =
        0;  // of the tokens before it, so many are those at the end of what was looked for; 0: none
  };
  // The latest indexed place of the longest end of `context` that is there and is longer than `longer_than`.
  Match Find(std::span<const TokenId> text, std::span<const TokenId> context, size_t longer_than = 0) const;

  size_t bytes() const;

 private:
  static uint64_t Hash(std::span<const TokenId> tokens);
  void Add(std::span<const TokenId> text, size_t place);
  void Grow(std::span<const TokenId> text);

  // Place of the token behind; 0: none. A power of two of them.
  std::array<std::vector<uint32_t>, kLengths.size()> places_;
  size_t taken_ = 0;  // places up to here are in
};

}  // namespace baton::decode_service::drafting
