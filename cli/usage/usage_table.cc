#include "cli/usage/usage_table.h"

#include <fmt/format.h>

#include <algorithm>

#include "nlohmann/json.hpp"
#include "router/billing/decimal.h"

namespace baton::cli {
namespace {

using router::billing::LedgerKey;
using router::billing::LedgerSheet;
using router::billing::LedgerSums;

struct Group {
  const char* name;
  bool UsageGrouping::*wanted;
  std::string LedgerKey::*value;
};
constexpr Group kGroups[] = {{"day", &UsageGrouping::day, &LedgerKey::day},
                             {"tenant", &UsageGrouping::tenant, &LedgerKey::tenant},
                             {"key", &UsageGrouping::key, &LedgerKey::key},
                             {"model", &UsageGrouping::model, &LedgerKey::model}};

struct Count {
  const char* name;   // in JSON
  const char* title;  // in the table
  int64_t (*of)(const LedgerSums&);
};
constexpr Count kCounts[] = {
    {"requests", "requests", [](const LedgerSums& sums) { return sums.requests; }},
    {"failed", "failed", [](const LedgerSums& sums) { return sums.failed; }},
    {"prompt_tokens", "prompt", [](const LedgerSums& sums) { return sums.tokens.prompt(); }},
    {"cached_tokens", "cached", [](const LedgerSums& sums) { return sums.tokens.cached(); }},
    {"written_5m_tokens", "written 5m", [](const LedgerSums& sums) { return sums.tokens.written_5m; }},
    {"written_1h_tokens", "written 1h", [](const LedgerSums& sums) { return sums.tokens.written_1h; }},
    {"plain_tokens", "plain", [](const LedgerSums& sums) { return sums.tokens.plain; }},
    {"completion_tokens", "completion", [](const LedgerSums& sums) { return sums.tokens.completion; }},
    {"thinking_tokens", "thinking", [](const LedgerSums& sums) { return sums.tokens.thinking; }}};

std::string Cost(const LedgerSums& sums) { return router::billing::FormatAmount(sums.units, sums.picos); }

}  // namespace

const std::vector<std::string>& UsageGroupNames() {
  static const auto* const kNames = new std::vector<std::string>{"day", "tenant", "key", "model"};
  return *kNames;
}

UsageGrouping UsageGroupingOf(const std::vector<std::string>& names) {
  UsageGrouping grouping;
  for (const Group& group : kGroups) {
    grouping.*group.wanted = std::find(names.begin(), names.end(), group.name) != names.end();
  }
  return grouping;
}

LedgerSheet GroupUsage(const LedgerSheet& sheet, const UsageGrouping& grouping) {
  LedgerSheet grouped;
  for (const auto& [key, sums] : sheet) {
    LedgerKey kept{.currency = key.currency};
    for (const Group& group : kGroups) {
      if (grouping.*group.wanted) kept.*group.value = key.*group.value;
    }
    grouped[kept].Add(sums);
  }
  return grouped;
}

std::string UsageTable(const LedgerSheet& grouped, const UsageGrouping& grouping) {
  if (grouped.empty()) return "No request has used anything.\n";
  std::vector<std::vector<std::string>> rows(1);
  size_t texts = 0;  // columns of text, which come first
  for (const Group& group : kGroups) {
    if (!(grouping.*group.wanted)) continue;
    rows[0].push_back(group.name);
    ++texts;
  }
  for (const Count& count : kCounts) rows[0].push_back(count.title);
  rows[0].push_back("cost");
  for (const auto& [key, sums] : grouped) {
    std::vector<std::string>& row = rows.emplace_back();
    for (const Group& group : kGroups) {
      if (!(grouping.*group.wanted)) continue;
      const std::string& value = key.*group.value;
      row.push_back(value.empty() ? "-" : value);
    }
    for (const Count& count : kCounts) row.push_back(fmt::format("{}", count.of(sums)));
    row.push_back(key.currency.empty() ? "-" : fmt::format("{} {}", Cost(sums), key.currency));
  }
  std::vector<size_t> widths(rows[0].size(), 0);
  for (const auto& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      if (i > 0) line += "  ";
      line += i < texts ? fmt::format("{:<{}}", row[i], widths[i]) : fmt::format("{:>{}}", row[i], widths[i]);
    }
    text += line + "\n";
  }
  return text;
}

std::string UsageJson(const LedgerSheet& grouped, const UsageGrouping& grouping) {
  std::string text = "[";
  for (const auto& [key, sums] : grouped) {
    nlohmann::ordered_json row;
    for (const Group& group : kGroups) {
      if (grouping.*group.wanted) row[group.name] = key.*group.value;
    }
    for (const Count& count : kCounts) row[count.name] = count.of(sums);
    if (!key.currency.empty()) {
      row["cost"] = Cost(sums);
      row["currency"] = key.currency;
    }
    text += text.size() > 1 ? ",\n " : "\n ";
    text += row.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  }
  return text + (grouped.empty() ? "]\n" : "\n]\n");
}

}  // namespace baton::cli
