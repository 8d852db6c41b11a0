#include "router/billing/sqlite_ledger.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <sqlite3.h>
#include <sys/stat.h>

#include <array>
#include <filesystem>
#include <string_view>
#include <utility>

#include "common/base/status.h"

namespace baton::router::billing {
namespace {

constexpr int kVersion = 1;
constexpr int kApplication = 0x6261746e;  // "batn": what `file` and other programs see
// Another process may be writing to the file.
constexpr int kBusyMilliseconds = 2000;

constexpr char kSchema[] = R"(
CREATE TABLE usage (
  day TEXT NOT NULL, tenant TEXT NOT NULL, key TEXT NOT NULL, model TEXT NOT NULL, currency TEXT NOT NULL,
  requests INTEGER NOT NULL, failed INTEGER NOT NULL,
  decode_cached INTEGER NOT NULL, prefill_cached INTEGER NOT NULL, written_5m INTEGER NOT NULL,
  written_1h INTEGER NOT NULL, plain INTEGER NOT NULL, completion INTEGER NOT NULL, thinking INTEGER NOT NULL,
  cost_units INTEGER NOT NULL, cost_picos INTEGER NOT NULL,
  PRIMARY KEY (day, tenant, key, model, currency)) WITHOUT ROWID, STRICT;
CREATE TABLE writers (
  writer TEXT NOT NULL PRIMARY KEY, batch INTEGER NOT NULL, day TEXT NOT NULL) WITHOUT ROWID, STRICT;
)";

// Answers that a call may yet go on with (AddedUse). Files that were made before there were any get it,
// too.
constexpr char kAnswersSchema[] = R"(
CREATE TABLE IF NOT EXISTS answers (
  answer TEXT NOT NULL PRIMARY KEY, charged TEXT NOT NULL, at INTEGER NOT NULL) WITHOUT ROWID, STRICT;
CREATE INDEX IF NOT EXISTS answers_at ON answers (at);
)";

constexpr char kAdd[] = R"(
INSERT INTO usage VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16)
ON CONFLICT DO UPDATE SET
  requests = requests + ?6, failed = failed + ?7,
  decode_cached = decode_cached + ?8, prefill_cached = prefill_cached + ?9, written_5m = written_5m + ?10,
  written_1h = written_1h + ?11, plain = plain + ?12, completion = completion + ?13, thinking = thinking + ?14,
  cost_units = cost_units + ?15 + (cost_picos + ?16) / 1000000000000,
  cost_picos = (cost_picos + ?16) % 1000000000000;
)";

}  // namespace

// Device and inode. Zeros: there is no file.
std::pair<dev_t, ino_t> FileAt(const std::string& path) {
  struct stat info = {};
  return stat(path.c_str(), &info) == 0 ? std::pair(info.st_dev, info.st_ino) : std::pair(dev_t{0}, ino_t{0});
}

// A prepared statement that is used again and again.
class SqliteLedger::Statement {
 public:
  static absl::StatusOr<std::unique_ptr<Statement>> Prepare(const SqliteLedger& store, const char* sql) {
    sqlite3_stmt* made = nullptr;
    if (sqlite3_prepare_v3(store.database_.get(), sql, -1, SQLITE_PREPARE_PERSISTENT, &made, nullptr) !=
        SQLITE_OK) {
      return store.Failure("preparing a statement");
    }
    return std::unique_ptr<Statement>(new Statement(made));
  }
  ~Statement() { sqlite3_finalize(statement_); }
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;

  // From 1 on. The text outlives the statement's next Reset.
  void Bind(int place, std::string_view text) {
    sqlite3_bind_text(statement_, place, text.data(), static_cast<int>(text.size()), SQLITE_STATIC);
  }
  void Bind(int place, int64_t value) { sqlite3_bind_int64(statement_, place, value); }
  // SQLITE_ROW, SQLITE_DONE or an error.
  int Step() { return sqlite3_step(statement_); }
  void Reset() { sqlite3_reset(statement_); }
  // From 0 on.
  int64_t Integer(int column) const { return sqlite3_column_int64(statement_, column); }
  std::string Text(int column) const {
    const auto* const text = reinterpret_cast<const char*>(sqlite3_column_text(statement_, column));
    return text == nullptr ? std::string()
                           : std::string(text, static_cast<size_t>(sqlite3_column_bytes(statement_, column)));
  }

 private:
  explicit Statement(sqlite3_stmt* statement) : statement_(statement) {}
  sqlite3_stmt* statement_;
};

bool SqliteLedger::IsLedger() const {
  constexpr std::string_view kMagic("SQLite format 3\0", 16);
  std::array<char, 72> head = {};
  sqlite3_file* file = nullptr;
  if (sqlite3_file_control(database_.get(), "main", SQLITE_FCNTL_FILE_POINTER, &file) != SQLITE_OK ||
      file == nullptr || file->pMethods == nullptr ||
      file->pMethods->xRead(file, head.data(), static_cast<int>(head.size()), 0) != SQLITE_OK) {
    return false;
  }
  int application = 0;
  for (size_t i = 68; i < 72; ++i) application = application << 8 | static_cast<unsigned char>(head[i]);
  return std::string_view(head.data(), kMagic.size()) == kMagic && application == kApplication;
}

void SqliteLedger::Closer::operator()(sqlite3* database) const { sqlite3_close_v2(database); }

SqliteLedger::SqliteLedger(Database database, std::string path)
    : database_(std::move(database)), path_(std::move(path)) {}

SqliteLedger::~SqliteLedger() {
  // SQLite does that itself, unless the file was moved.
  if (database_ != nullptr && add_ != nullptr) (void)Run("PRAGMA wal_checkpoint(TRUNCATE)");
}

absl::Status SqliteLedger::Failure(std::string_view doing) const {
  const int code = sqlite3_errcode(database_.get()) & 0xff;
  const std::string words =
      fmt::format("{}: {}: {}", path_, doing, std::string(sqlite3_errmsg(database_.get())));
  if (code == SQLITE_FULL) return absl::ResourceExhaustedError(words);
  if (code == SQLITE_NOTADB || code == SQLITE_CORRUPT) return absl::FailedPreconditionError(words);
  return absl::UnavailableError(words);
}

absl::StatusOr<SqliteLedger::Database> SqliteLedger::OpenFile(const std::string& path, int flags) {
  sqlite3* opened = nullptr;
  const int code = sqlite3_open_v2(path.c_str(), &opened, flags | SQLITE_OPEN_NOMUTEX, nullptr);
  Database database(opened);
  if (code != SQLITE_OK) {
    return absl::UnavailableError(
        fmt::format("{}: can't be opened: {}", path,
                    std::string(opened == nullptr ? "no memory" : sqlite3_errmsg(opened))));
  }
  sqlite3_busy_timeout(opened, kBusyMilliseconds);
  return database;
}

absl::Status SqliteLedger::Run(const char* sql) {
  if (sqlite3_exec(database_.get(), sql, nullptr, nullptr, nullptr) == SQLITE_OK) return absl::OkStatus();
  return Failure("writing");
}

absl::Status SqliteLedger::Prepare() {
  BATON_ASSIGN_OR_RETURN(auto version, Statement::Prepare(*this, "PRAGMA user_version"));
  if (version->Step() != SQLITE_ROW) return Failure("reading");
  const int64_t found = version->Integer(0);
  version = nullptr;
  if (found > kVersion) {
    return absl::FailedPreconditionError(
        fmt::format("{}: a ledger of version {}, and this program knows version {}", path_, found, kVersion));
  }
  if (found == kVersion) return absl::OkStatus();
  BATON_ASSIGN_OR_RETURN(auto tables, Statement::Prepare(*this, "SELECT count(*) FROM sqlite_schema"));
  if (tables->Step() != SQLITE_ROW) return Failure("reading");
  const int64_t others = tables->Integer(0);
  tables = nullptr;
  if (others == 0) return absl::NotFoundError(fmt::format("{}: an empty file, not a ledger", path_));
  return absl::FailedPreconditionError(fmt::format("{}: a database of something else", path_));
}

absl::StatusOr<std::unique_ptr<SqliteLedger>> SqliteLedger::Open(const std::string& path) {
  BATON_ASSIGN_OR_RETURN(Database database, OpenFile(path, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE));
  std::unique_ptr<SqliteLedger> store(new SqliteLedger(std::move(database), path));
  BATON_RETURN_IF_ERROR(store->Run("PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL;"));
  // If two processes make the file at once, one waits for the other and finds it made.
  BATON_RETURN_IF_ERROR(store->Run("BEGIN IMMEDIATE"));
  absl::Status prepared = store->Prepare();
  if (absl::IsNotFound(prepared)) {
    prepared = store->Run(fmt::format("{} PRAGMA user_version = {}; PRAGMA application_id = {};", kSchema,
                                      kVersion, kApplication)
                              .c_str());
  }
  if (prepared.ok()) prepared = store->Run(kAnswersSchema);
  if (prepared.ok()) prepared = store->Run("COMMIT");
  BATON_RETURN_IF_ERROR(prepared);
  // The file's head says what it is from now on (FindFile), and not only the log. Other processes that are at
  // work on it do the same.
  BATON_RETURN_IF_ERROR(store->Run("PRAGMA wal_checkpoint(TRUNCATE)"));
  for (const char* const suffix : {"", "-wal", "-shm"}) store->files_[suffix] = FileAt(path + suffix);
  store->headed_ = store->IsLedger();  // not if another process kept the log busy
  BATON_ASSIGN_OR_RETURN(store->add_, Statement::Prepare(*store, kAdd));
  return store;
}

absl::StatusOr<std::unique_ptr<SqliteLedger>> SqliteLedger::OpenToRead(const std::string& path) {
  struct stat info = {};
  if (stat(path.c_str(), &info) != 0)
    return absl::NotFoundError(fmt::format("{}: there is no such file", path));
  // The log of a router that was killed can only be read by one that may write it.
  auto database = OpenFile(path, SQLITE_OPEN_READWRITE);
  if (!database.ok()) database = OpenFile(path, SQLITE_OPEN_READONLY);
  BATON_RETURN_IF_ERROR(database.status());
  std::unique_ptr<SqliteLedger> store(new SqliteLedger(*std::move(database), path));
  BATON_RETURN_IF_ERROR(store->Prepare());
  return store;
}

// SQLite goes on writing to a file that was moved away, whose log keeps the old name: what is in that log
// alone would be lost.
absl::Status SqliteLedger::FindFile() {
  if (database_ == nullptr || FileAt(path_) != files_.at("")) return BeginAnother();
  if (!headed_ || IsLedger()) return absl::OkStatus();
  return absl::FailedPreconditionError(fmt::format(
      "{}: it was overwritten with something else: move that away, and a new ledger is begun", path_));
}

absl::Status SqliteLedger::BeginAnother() {
  if (database_ != nullptr) {
    spdlog::warn("{}: the ledger was moved away or removed: a new one is begun there", path_);
    LetGo();
  }
  BATON_ASSIGN_OR_RETURN(const auto another, Open(path_));
  database_ = std::move(another->database_);
  add_ = std::move(another->add_);
  files_ = another->files_;
  headed_ = another->headed_;
  return absl::OkStatus();
}

// The file gets what only its log has, wherever it is now. SQLite leaves the log of a file that was
// moved under the old name, and a new file there would take it for its own.
void SqliteLedger::LetGo() {
  (void)Run("PRAGMA wal_checkpoint(TRUNCATE)");
  // Another process that has the same log open waits here, and then finds other files, or none.
  if (Run("BEGIN IMMEDIATE").ok()) {
    for (const char* const suffix : {"-wal", "-shm"}) {
      if (FileAt(path_ + suffix) == files_[suffix]) std::filesystem::remove(path_ + suffix);
    }
    (void)Run("ROLLBACK");
  }
  add_ = nullptr;
  database_ = nullptr;
}

absl::Status SqliteLedger::Add(const std::string& writer, int64_t batch, const std::string& day,
                               const LedgerSheet& sheet, const std::vector<AnswerUse>& uses) {
  BATON_RETURN_IF_ERROR(FindFile());
  BATON_RETURN_IF_ERROR(Run("BEGIN IMMEDIATE"));
  absl::Status added = AddInTransaction(writer, batch, day, sheet, uses);
  if (added.ok()) added = Run("COMMIT");
  // Some failures have ended the transaction already.
  if (!added.ok() && sqlite3_get_autocommit(database_.get()) == 0) (void)Run("ROLLBACK");
  return added;
}

absl::Status SqliteLedger::AddInTransaction(const std::string& writer, int64_t batch, const std::string& day,
                                            const LedgerSheet& sheet, const std::vector<AnswerUse>& uses) {
  BATON_ASSIGN_OR_RETURN(
      auto mark,
      Statement::Prepare(*this,
                         "INSERT INTO writers VALUES (?1, ?2, ?3) ON CONFLICT DO UPDATE SET batch = ?2, "
                         "day = ?3 WHERE batch < ?2"));
  mark->Bind(1, writer);
  mark->Bind(2, batch);
  mark->Bind(3, day);
  if (mark->Step() != SQLITE_DONE) return Failure("writing");
  if (sqlite3_changes(database_.get()) == 0) return absl::OkStatus();  // it was added before
  mark = nullptr;
  BATON_ASSIGN_OR_RETURN(auto forget,
                         Statement::Prepare(*this, "DELETE FROM writers WHERE day < date(?1, '-31 days')"));
  forget->Bind(1, day);
  if (forget->Step() != SQLITE_DONE) return Failure("writing");
  forget = nullptr;
  for (const auto& [key, sums] : sheet) BATON_RETURN_IF_ERROR(AddRow(key, sums));
  return uses.empty() ? absl::OkStatus() : AddUses(uses);
}

absl::Status SqliteLedger::AddRow(const LedgerKey& key, const LedgerSums& sums) {
  int place = 1;
  for (const std::string* text : {&key.day, &key.tenant, &key.key, &key.model, &key.currency}) {
    add_->Bind(place++, *text);
  }
  for (const int64_t* sum : LedgerColumns(sums)) add_->Bind(place++, *sum);
  const bool added = add_->Step() == SQLITE_DONE;
  const absl::Status failure = added ? absl::OkStatus() : Failure("writing");
  add_->Reset();
  return failure;
}

absl::Status SqliteLedger::AddUses(const std::vector<AnswerUse>& uses) {
  BATON_ASSIGN_OR_RETURN(auto find,
                         Statement::Prepare(*this, "SELECT charged FROM answers WHERE answer = ?1"));
  BATON_ASSIGN_OR_RETURN(auto keep,
                         Statement::Prepare(*this,
                                            "INSERT INTO answers VALUES (?1, ?2, unixepoch()) ON CONFLICT DO "
                                            "UPDATE SET charged = ?2, at = unixepoch()"));
  for (const AnswerUse& use : uses) {
    std::string charged;
    find->Bind(1, use.answer);
    const int found = find->Step();
    if (found == SQLITE_ROW) charged = find->Text(0);
    if (found != SQLITE_ROW && found != SQLITE_DONE) return Failure("reading");
    find->Reset();
    BATON_RETURN_IF_ERROR(AddRow(use.key, AddedUse(use, &charged)));
    keep->Bind(1, use.answer);
    keep->Bind(2, charged);
    if (keep->Step() != SQLITE_DONE) return Failure("writing");
    keep->Reset();
  }
  BATON_ASSIGN_OR_RETURN(auto forget,
                         Statement::Prepare(*this, "DELETE FROM answers WHERE at < unixepoch() - ?1"));
  forget->Bind(1, int64_t{kAnswerSeconds});
  return forget->Step() == SQLITE_DONE ? absl::OkStatus() : Failure("writing");
}

absl::StatusOr<LedgerSheet> SqliteLedger::Read(const std::string& first, const std::string& last) {
  BATON_ASSIGN_OR_RETURN(
      auto rows, Statement::Prepare(
                     *this, "SELECT * FROM usage WHERE (?1 = '' OR day >= ?1) AND (?2 = '' OR day <= ?2)"));
  rows->Bind(1, first);
  rows->Bind(2, last);
  LedgerSheet sheet;
  int code = rows->Step();
  for (; code == SQLITE_ROW; code = rows->Step()) {
    LedgerSums& sums = sheet[{.day = rows->Text(0),
                              .tenant = rows->Text(1),
                              .key = rows->Text(2),
                              .model = rows->Text(3),
                              .currency = rows->Text(4)}];
    int column = 5;
    for (int64_t* sum : LedgerColumns(sums)) *sum = rows->Integer(column++);
  }
  if (code != SQLITE_DONE) return Failure("reading");
  return sheet;
}

}  // namespace baton::router::billing
