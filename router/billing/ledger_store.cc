#include "router/billing/ledger_store.h"

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

}  // namespace baton::router::billing
