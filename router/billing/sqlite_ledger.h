// SqliteLedger: a ledger in one SQLite file. It survives the death of its process at any moment (write-ahead
// log); a loss of power may take the last batches and never damages it.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "router/billing/ledger_store.h"

struct sqlite3;

namespace baton::router::billing {

class SqliteLedger : public LedgerStore {
 public:
  // Opens the file, or makes it. FAILED_PRECONDITION: it is something else, or of a later version.
  static absl::StatusOr<std::unique_ptr<SqliteLedger>> Open(const std::string& path);
  // For Read alone. NOT_FOUND if there is no file.
  static absl::StatusOr<std::unique_ptr<SqliteLedger>> OpenToRead(const std::string& path);
  ~SqliteLedger() override;

  absl::Status Add(const std::string& writer, int64_t batch, const std::string& day,
                   const LedgerSheet& sheet) override;
  absl::StatusOr<LedgerSheet> Read(const std::string& first, const std::string& last) override;

 private:
  class Statement;
  struct Closer {
    void operator()(sqlite3* database) const;
  };
  using Database = std::unique_ptr<sqlite3, Closer>;

  SqliteLedger(Database database, std::string path);
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
