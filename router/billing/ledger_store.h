// LedgerStore: the sums of what was used, by day, tenant, key, model and currency, in one SQLite file. A
// batch is added as a whole or not at all, and once: it carries its writer's name and number, so adding it
// again after a doubtful failure changes nothing. The file survives the death of its process at any moment
// (write-ahead log); a loss of power may take the last batches and never damages it. Several processes may
// use one file. One thread; calls wait for the disk.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "router/billing/token_counts.h"

struct sqlite3;

namespace baton::router::billing {

struct LedgerKey {
  std::string day;  // in UTC, "2026-11-22"
  std::string tenant;
  std::string key;  // id of the API key, or the name in the certificate; empty: anonymous
  std::string model;
  std::string currency;  // empty: the model had no price
  auto operator<=>(const LedgerKey&) const = default;
};

struct LedgerSums {
  int64_t requests = 0;  // that a worker accepted
  int64_t failed = 0;    // of these, those that did not end well
  TokenCounts tokens;
  int64_t units = 0;  // of the currency
  int64_t picos = 0;  // and picounits, fewer than one unit has

  void Add(const LedgerSums& other);
  // A cost in picounits.
  void AddCost(int64_t picounits);
  bool operator==(const LedgerSums&) const = default;
};

using LedgerSheet = std::map<LedgerKey, LedgerSums>;

class LedgerStore {
 public:
  // Opens the file, or makes it. FAILED_PRECONDITION: it is something else, or of a later version.
  static absl::StatusOr<std::unique_ptr<LedgerStore>> Open(const std::string& path);
  // For Read alone. NOT_FOUND if there is no file.
  static absl::StatusOr<std::unique_ptr<LedgerStore>> OpenToRead(const std::string& path);
  ~LedgerStore();

  // Adds the sheet's sums to those in the file, unless the writer has added this batch, or a later one,
  // before. `writer`: unique among all processes that ever write to the file. `day`: today's, after which
  // writers of earlier months are forgotten. RESOURCE_EXHAUSTED: the disk is full.
  absl::Status Add(const std::string& writer, int64_t batch, const std::string& day,
                   const LedgerSheet& sheet);

  // The sums of the days from `first` to `last`, both included; empty: no limit.
  absl::StatusOr<LedgerSheet> Read(const std::string& first, const std::string& last);

 private:
  class Statement;
  struct Closer {
    void operator()(sqlite3* database) const;
  };
  using Database = std::unique_ptr<sqlite3, Closer>;

  LedgerStore(Database database, std::string path);
  static absl::StatusOr<Database> OpenFile(const std::string& path, int flags);
  absl::Status Prepare();
  absl::Status Run(const char* sql);
  absl::Status AddInTransaction(const std::string& writer, int64_t batch, const std::string& day,
                                const LedgerSheet& sheet);
  absl::Status Failure(std::string_view doing) const;

  const Database database_;
  const std::string path_;
  std::unique_ptr<Statement> add_;  // null: only to read
};

}  // namespace baton::router::billing
