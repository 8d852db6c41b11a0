#include "engine/kernels/cuda/draw_table.h"

#include <algorithm>
#include <cstring>

namespace baton::kernels::cuda {
namespace {

// Parts follow in this order, and none is aligned worse than the one before it.
static_assert(alignof(RowDraw) == 8 && sizeof(RowDraw) % 8 == 0 && alignof(TokenBias) == 4 &&
              alignof(SeenRun) == 4);

template <typename T>
size_t Append(std::span<const T> values, std::vector<std::byte>& bytes) {
  const size_t begin = bytes.size();
  const auto added = std::as_bytes(values);
  bytes.insert(bytes.end(), added.begin(), added.end());
  return begin;
}

}  // namespace

DrawTable::DrawTable(const StepDraws& draws)
    : row_count_(static_cast<int>(draws.rows.size())),
      all_greedy_(std::ranges::all_of(draws.rows, [](const RowDraw& row) { return row.temperature == 0; })),
      seen_count_(static_cast<int>(draws.seen.size())) {
  std::vector<SeenRun> runs;
  std::vector<int32_t> tokens;
  for (const SeenTokens& seen : draws.seen) {
    runs.push_back({.slot = seen.slot,
                    .first = static_cast<int32_t>(tokens.size()),
                    .prompt = static_cast<int32_t>(seen.prompt.size()),
                    .output = static_cast<int32_t>(seen.output.size())});
    for (TokenId token : seen.prompt) tokens.push_back(token.value());
    for (TokenId token : seen.output) tokens.push_back(token.value());
  }
  Append(draws.rows, bytes_);
  biases_ = Append(draws.biases, bytes_);
  seen_ = Append(std::span<const SeenRun>(runs), bytes_);
  tokens_ = Append(std::span<const int32_t>(tokens), bytes_);
  masks_ = Append(draws.masks, bytes_);
}

int64_t DrawTable::BytesOf(const StepDraws& draws) {
  size_t bytes = draws.rows.size_bytes() + draws.biases.size_bytes() + draws.seen.size() * sizeof(SeenRun) +
                 draws.masks.size_bytes();
  for (const SeenTokens& seen : draws.seen)
    bytes += (seen.prompt.size() + seen.output.size()) * sizeof(int32_t);
  return static_cast<int64_t>(bytes);
}

DrawView DrawTable::View(const std::byte* base) const {
  return {.rows = reinterpret_cast<const RowDraw*>(base),
          .row_count = row_count_,
          .all_greedy = all_greedy_,
          .biases = reinterpret_cast<const TokenBias*>(base + biases_),
          .seen = reinterpret_cast<const SeenRun*>(base + seen_),
          .seen_count = seen_count_,
          .tokens = reinterpret_cast<const int32_t*>(base + tokens_),
          .masks = reinterpret_cast<const uint32_t*>(base + masks_)};
}

}  // namespace baton::kernels::cuda
