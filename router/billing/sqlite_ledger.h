// SqliteLedger: a ledger in one SQLite file. It survives the death of its process at any moment (write-ahead
// log); a loss of power may take the last batches and never damages it. A file that was moved away or removed
// keeps what it has, and another is begun in its place.
#pragma once

#include <sys/types.h>

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

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

  // FAILED_PRECONDITION: the file was overwritten with something else; UNAVAILABLE or RESOURCE_EXHAUSTED: it
  // can't be written now. Nothing of the batch is added then.
  using LedgerStore::Add;
  absl::Status Add(const std::string& writer, int64_t batch, const std::string& day, const LedgerSheet& sheet,
                   const std::vector<AnswerUse>& uses) override;
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
  // Before a batch: the file at the path is the one that is open, or is from now on.
  absl::Status FindFile();
  // The file begins as a ledger does, with SQLite's words and, at byte 68, big endian, the application's id
  // (SQLite's file format, 1.3). False also if it can't be read. It is read by SQLite's own descriptor: POSIX
  // ends the locks of a process on a file when any descriptor of it is closed, and a process that leaves then
  // takes the log away from those that still write to it.
  bool IsLedger() const;
  absl::Status BeginAnother();
  void LetGo();
  absl::Status Run(const char* sql);
  absl::Status AddInTransaction(const std::string& writer, int64_t batch, const std::string& day,
                                const LedgerSheet& sheet, const std::vector<AnswerUse>& uses);
  absl::Status AddRow(const LedgerKey& key, const LedgerSums& sums);
  absl::Status AddUses(const std::vector<AnswerUse>& uses);
  absl::Status Failure(std::string_view doing) const;

  Database database_;  // null: it was moved away, and no other could be begun yet
  const std::string path_;
  // Devices and inodes of the files that are written to, by what follows the path in their names: "", "-wal"
  // and "-shm".
  std::map<std::string, std::pair<dev_t, ino_t>> files_;
  bool headed_ = false;             // its head said that it is a ledger
  std::unique_ptr<Statement> add_;  // null: only to read
};

}  // namespace baton::router::billing
