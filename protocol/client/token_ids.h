// Token ids between messages, which have int32, and the code, which has TokenId. Pure functions, any thread.
#pragma once

#include <google/protobuf/repeated_field.h>

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "common/base/ids.h"

namespace baton::protocol {

using TokenIds = google::protobuf::RepeatedField<int32_t>;

std::vector<TokenId> TokensOf(const TokenIds& ids);
void AddTokens(std::span<const TokenId> tokens, TokenIds* ids);

// INVALID_ARGUMENT: the first id that is outside a vocabulary of so many tokens, as `field[index]`.
absl::Status CheckTokenIds(const TokenIds& ids, int64_t vocabulary, std::string_view field);

}  // namespace baton::protocol
