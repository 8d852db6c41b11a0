#include "lab/bench/prompt.h"

#include <algorithm>

#include "common/base/check.h"
#include "common/base/random.h"

namespace baton::lab::bench {

void AppendTokens(const Segment& segment, uint64_t seed, int32_t vocabulary, std::vector<int32_t>* tokens) {
  BATON_CHECK(vocabulary > 0);
  const std::array<uint32_t, 2> key = {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)};
  // Four tokens per call; positions within a segment fit 34 bits.
  for (int64_t at = 0; at < segment.tokens; at += 4) {
    const auto random =
        Philox4x32({static_cast<uint32_t>(segment.id), static_cast<uint32_t>(segment.id >> 32),
                    static_cast<uint32_t>(segment.source), static_cast<uint32_t>(at / 4)},
                   key);
    const int64_t run = std::min<int64_t>(4, segment.tokens - at);
    for (int64_t i = 0; i < run; ++i) {
      tokens->push_back(static_cast<int32_t>(uint64_t{random[i]} * static_cast<uint64_t>(vocabulary) >> 32));
    }
  }
}

int64_t TokensIn(const std::vector<Segment>& segments) {
  int64_t total = 0;
  for (const Segment& segment : segments) total += segment.tokens;
  return total;
}

}  // namespace baton::lab::bench
