// Price: what the tokens of one model cost, by kind, and PriceTable: the prices of models, from a file of the
// operator's. Integers alone: 1 currency unit per million tokens is 1,000,000 picounits per token, so a price
// of six digits behind the point is a whole number of picounits, and so is every cost. No price is assumed: a
// model that is not in the table has none. Immutable, any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "router/billing/token_counts.h"

namespace baton::router::billing {

// Picounits per token, which is millionths of the currency per million tokens.
struct Price {
  std::string currency;  // an ISO 4217 code
  int64_t prompt = 0;    // of TokenCounts::plain
  int64_t cached = 0;
  int64_t written_5m = 0;
  int64_t written_1h = 0;
  int64_t completion = 0;

  bool operator==(const Price&) const = default;
};

// In picounits. CheckPrice says up to how many tokens it can't overflow.
int64_t CostOf(const Price& price, const TokenCounts& counts);

// OUT_OF_RANGE if a request of so many tokens could cost more than int64_t picounits (some 9 million units).
absl::Status CheckPrice(const Price& price, int64_t most_tokens);

class PriceTable {
 public:
  PriceTable() = default;

  // JSON: {"currency": "EUR", "models": {"NAME": {"prompt": "3", "cached": "0.30", "written_5m": "3.75",
  // "written_1h": "6", "completion": "15"}}}, per million tokens. All five have to be there. INVALID_ARGUMENT
  // names the file, the field and what is wrong. `file` is for messages.
  static absl::StatusOr<PriceTable> Parse(std::string_view text, std::string_view file);

  // Null: the model has no price.
  const Price* Find(std::string_view model) const;
  const std::map<std::string, Price, std::less<>>& models() const { return models_; }

 private:
  std::map<std::string, Price, std::less<>> models_;
};

}  // namespace baton::router::billing
