// UsageTable: the sums of a ledger, grouped and printed. Pure; any thread.
#pragma once

#include <string>
#include <vector>

#include "router/billing/ledger_store.h"

namespace baton::cli {

// By which parts of its key a ledger is grouped. Currencies are never added together.
struct UsageGrouping {
  bool day = false;
  bool tenant = false;
  bool key = false;
  bool model = false;
};

// The names of UsageGrouping's fields.
const std::vector<std::string>& UsageGroupNames();
UsageGrouping UsageGroupingOf(const std::vector<std::string>& names);

// Parts of keys that are not grouped by are empty.
router::billing::LedgerSheet GroupUsage(const router::billing::LedgerSheet& sheet,
                                        const UsageGrouping& grouping);

// A table with a heading, for people. Empty sheets are a sentence.
std::string UsageTable(const router::billing::LedgerSheet& grouped, const UsageGrouping& grouping);
// A JSON list of objects, one a line; costs are decimal text.
std::string UsageJson(const router::billing::LedgerSheet& grouped, const UsageGrouping& grouping);

}  // namespace baton::cli
