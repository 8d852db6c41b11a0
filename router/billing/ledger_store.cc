#include "router/billing/ledger_store.h"

#include <algorithm>
#include <string_view>

#include "absl/strings/numbers.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "router/billing/decimal.h"

namespace baton::router::billing {

void LedgerSums::AddCost(int64_t picounits) {
  units += picounits / kPicosPerUnit;
  picos += picounits % kPicosPerUnit;
  units += picos / kPicosPerUnit;
  picos %= kPicosPerUnit;
}

void LedgerSums::Add(const LedgerSums& other) {
  const int64_t units_before = units, picos_before = picos;
  const auto mine = LedgerColumns(*this);
  const auto theirs = LedgerColumns(other);
  for (size_t i = 0; i < mine.size(); ++i) *mine[i] += *theirs[i];
  units = units_before + other.units;
  picos = picos_before;
  AddCost(other.picos);
}

LedgerSums AddedUse(const AnswerUse& use, std::string* charged) {
  LedgerSums prompt, rest;
  std::vector<int64_t*> columns;
  for (int64_t* column : LedgerColumns(prompt)) columns.push_back(column);
  for (int64_t* column : LedgerColumns(rest)) columns.push_back(column);
  const std::vector<std::string> words = absl::StrSplit(*charged, ' ');
  bool known = words.size() == columns.size();
  for (size_t i = 0; known && i < words.size(); ++i) known = absl::SimpleAtoi(words[i], columns[i]);
  if (!known) prompt = rest = LedgerSums();

  LedgerSums added;
  added.requests = known ? 0 : 1;
  // Once it has ended well, a call that was cut before may say so late.
  const int64_t failed = known ? std::min(rest.failed, use.rest.failed) : use.rest.failed;
  added.failed = failed - rest.failed;
  rest.failed = failed;
  if (prompt.tokens.prompt() == 0) {
    prompt = use.prompt;
    added.Add(prompt);
  }
  const auto more = [](int64_t* had, int64_t has) {
    const int64_t by = std::max<int64_t>(0, has - *had);
    *had += by;
    return by;
  };
  added.tokens.completion += more(&rest.tokens.completion, use.rest.tokens.completion);
  added.tokens.thinking += more(&rest.tokens.thinking, use.rest.tokens.thinking);
  // An answer costs less than 2^63 picounits (CheckPrice).
  const auto picos = [](const LedgerSums& sums) { return sums.units * kPicosPerUnit + sums.picos; };
  int64_t had = picos(rest);
  added.AddCost(more(&had, picos(use.rest)));
  rest.units = had / kPicosPerUnit;
  rest.picos = had % kPicosPerUnit;

  std::vector<int64_t> kept;
  for (const int64_t* column : columns) kept.push_back(*column);
  *charged = absl::StrJoin(kept, " ");
  return added;
}

}  // namespace baton::router::billing
