// Prompts of token ids that differ by their salt.
#pragma once

#include <cstdint>
#include <vector>

namespace baton::e2e {

inline std::vector<int32_t> SaltedPrompt(int size, int salt = 0) {
  std::vector<int32_t> tokens;
  for (int i = 0; i < size; ++i) tokens.push_back(20 + (i * 31 + salt * 7) % 1990);
  return tokens;
}

}  // namespace baton::e2e
