// `baton usage`: prints what a router's ledger has added up.
#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "cli/commands.h"
#include "cli/exit_code.h"
#include "cli/show/print.h"
#include "cli/usage/usage_table.h"
#include "common/base/status.h"
#include "router/billing/sqlite_ledger.h"
#include "router/store/redis_ledger.h"
#include "router/store/store_address.h"

namespace baton::cli {
namespace {

constexpr char kUsageExamples[] = R"(
Examples:
  baton usage --ledger ledger.db
      what each tenant used of each model, day by day
  baton usage --ledger router-0.db router-1.db --by key
      by API key, over two routers
  baton usage --ledger ledger.db --by tenant --from 2026-11-01 --to 2026-11-30 --json
      a month's sums for another program

  baton usage --store redis://redis.prod:6379
      of all routers that keep their ledger in a store

A file is what a router's --ledger names; the router may be running. --store and --store-password-file are the router's.)";

struct UsageFlags {
  std::vector<std::string> ledgers;
  std::string store;
  std::string store_password_file;
  std::vector<std::string> by = {"day", "tenant", "model"};
  std::string from;
  std::string to;
  bool json = false;
};

// CLI11's check: an error, or nothing.
std::string CheckDay(const std::string& text) {
  absl::Time time;
  const bool read = absl::ParseTime("%Y-%m-%d", text, &time, nullptr) &&
                    absl::FormatTime("%Y-%m-%d", time, absl::UTCTimeZone()) == text;
  return read ? "" : "is no day; write it as 2026-11-22";
}

absl::Status ShowUsage(const UsageFlags& flags) {
  router::billing::LedgerSheet all;
  if (flags.ledgers.empty() && flags.store.empty()) {
    return absl::InvalidArgumentError("no ledger is named: give --ledger FILE, or --store URL");
  }
  for (const std::string& file : flags.ledgers) {
    BATON_ASSIGN_OR_RETURN(const auto store, router::billing::SqliteLedger::OpenToRead(file));
    BATON_ASSIGN_OR_RETURN(const router::billing::LedgerSheet sheet, store->Read(flags.from, flags.to));
    for (const auto& [key, sums] : sheet) all[key].Add(sums);
  }
  if (!flags.store.empty()) {
    BATON_ASSIGN_OR_RETURN(const auto address, router::store::ParseStoreAddress(flags.store));
    BATON_ASSIGN_OR_RETURN(
        const auto store,
        router::store::RedisLedger::Open({.address = address, .password_file = flags.store_password_file}));
    BATON_ASSIGN_OR_RETURN(const router::billing::LedgerSheet sheet, store->Read(flags.from, flags.to));
    for (const auto& [key, sums] : sheet) all[key].Add(sums);
  }
  const UsageGrouping grouping = UsageGroupingOf(flags.by);
  const router::billing::LedgerSheet grouped = GroupUsage(all, grouping);
  return Put(flags.json ? UsageJson(grouped, grouping) : UsageTable(grouped, grouping));
}

}  // namespace

Command AddUsage(CLI::App& root, const CliContext& context) {
  CLI::App* usage = root.add_subcommand("usage", "Print what a router's ledger has added up");
  usage->footer(kUsageExamples);
  auto flags = std::make_shared<UsageFlags>();
  usage->add_option("--ledger", flags->ledgers, "Files of ledgers, one of each router; they are added up")
      ->type_name("FILE");
  usage
      ->add_option("--store", flags->store,
                   "Redis or Valkey server in which routers keep their ledger (--ledger store)")
      ->type_name("URL");
  usage
      ->add_option("--store-password-file", flags->store_password_file, "File with the password of the store")
      ->type_name("FILE")
      ->check(CLI::ExistingFile);
  usage
      ->add_option("--by", flags->by, "What sums are kept apart by, comma separated: day, tenant, key, model")
      ->delimiter(',')
      ->check(CLI::IsMember(UsageGroupNames()))
      ->type_name("NAMES")
      ->default_str("day,tenant,model");
  usage->add_option("--from", flags->from, "First day, in UTC (default: all)")
      ->type_name("DAY")
      ->check(CheckDay);
  usage->add_option("--to", flags->to, "Last day, included (default: all)")
      ->type_name("DAY")
      ->check(CheckDay);
  usage->add_flag("--json", flags->json, "A JSON list instead of a table");
  return {usage, [flags] {
            const absl::Status status = ShowUsage(*flags);
            return status.ok() ? kExitOk : Fail(status);
          }};
}

}  // namespace baton::cli
