#include "protocol/client/token_ids.h"

#include <fmt/format.h>

namespace baton::protocol {

std::vector<TokenId> TokensOf(const TokenIds& ids) {
  std::vector<TokenId> tokens;
  tokens.reserve(static_cast<size_t>(ids.size()));
  for (const int32_t id : ids) tokens.emplace_back(id);
  return tokens;
}

void AddTokens(std::span<const TokenId> tokens, TokenIds* ids) {
  ids->Reserve(ids->size() + static_cast<int>(tokens.size()));
  for (const TokenId token : tokens) ids->Add(token.value());
}

absl::Status CheckTokenIds(const TokenIds& ids, int64_t vocabulary, std::string_view field) {
  for (int i = 0; i < ids.size(); ++i) {
    if (ids.Get(i) >= 0 && ids.Get(i) < vocabulary) continue;
    return absl::InvalidArgumentError(
        fmt::format("{}[{}]: token id {} is outside the vocabulary of {}", field, i, ids.Get(i), vocabulary));
  }
  return absl::OkStatus();
}

}  // namespace baton::protocol
