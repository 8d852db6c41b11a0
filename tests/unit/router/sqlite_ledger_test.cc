#include "router/billing/sqlite_ledger.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sqlite3.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>

#include "common/base/random.h"
#include "tests/seed.h"

namespace baton::router::billing {
namespace {

using ::testing::HasSubstr;

constexpr char kToday[] = "2026-11-22";

LedgerKey Key(const std::string& tenant, const std::string& day = kToday) {
  return {.day = day, .tenant = tenant, .key = "k", .model = "m", .currency = "EUR"};
}

LedgerSums Sums(int64_t plain, int64_t picos) {
  LedgerSums sums;
  sums.requests = 1;
  sums.tokens.plain = plain;
  sums.AddCost(picos);
  return sums;
}

class SqliteLedgerTest : public ::testing::Test {
 protected:
  SqliteLedgerTest() {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  ~SqliteLedgerTest() override { std::filesystem::remove_all(folder_); }

  LedgerSheet Read() { return *(*SqliteLedger::OpenToRead(file_))->Read("", ""); }

  const std::string folder_ = ::testing::TempDir() + "/ledger_store_" + std::to_string(getpid());
  const std::string file_ = folder_ + "/ledger.db";
};

// A process that does something when it is told to. It is made before this one opens a file, because SQLite's
// knowledge of locks would be copied, and the locks would not.
class Another {
 public:
  explicit Another(const std::function<bool()>& what) {
    EXPECT_EQ(pipe(told_), 0);
    pid_ = fork();
    if (pid_ != 0) return;
    char go = 0;
    _exit(read(told_[0], &go, 1) == 1 && what() ? 0 : 1);
  }
  bool Do() {
    int status = -1;
    const bool done = write(told_[1], "", 1) == 1 && waitpid(pid_, &status, 0) == pid_ && status == 0;
    for (const int end : told_) close(end);
    return done;
  }

 private:
  int told_[2];
  pid_t pid_ = -1;
};

TEST_F(SqliteLedgerTest, AProcessThatLeavesTakesNothingFromAnother) {
  Another leaves([&] {
    auto other = SqliteLedger::Open(file_);
    return other.ok() && (*other)->Add("leaves", 1, kToday, {{Key("a"), Sums(10, 1)}}).ok();
  });
  Another reads([&] {
    LedgerSums all = Sums(111, 3);
    all.requests = 3;
    return Read() == LedgerSheet{{Key("a"), all}};
  });
  auto store = SqliteLedger::Open(file_);
  ASSERT_TRUE(store.ok()) << store.status();
  ASSERT_TRUE((*store)->Add("stays", 1, kToday, {{Key("a"), Sums(1, 1)}}).ok());
  EXPECT_TRUE(leaves.Do());
  ASSERT_TRUE((*store)->Add("stays", 2, kToday, {{Key("a"), Sums(100, 1)}}).ok());
  EXPECT_TRUE(reads.Do());
}

TEST_F(SqliteLedgerTest, SumsAreThereAfterItWasOpenedAgain) {
  for (int64_t batch : {1, 2}) {
    auto store = SqliteLedger::Open(file_);
    ASSERT_TRUE(store.ok()) << store.status();
    ASSERT_TRUE((*store)->Add("w" + std::to_string(batch), 1, kToday, {{Key("a"), Sums(3, 5)}}).ok());
  }
  LedgerSums both = Sums(6, 10);
  both.requests = 2;
  EXPECT_EQ(Read(), (LedgerSheet{{Key("a"), both}}));
}

TEST_F(SqliteLedgerTest, ABatchCountsOnceHoweverOftenItIsAdded) {
  auto store = *SqliteLedger::Open(file_);
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(store->Add("w", 1, kToday, {{Key("a"), Sums(3, 5)}}).ok());
  }
  EXPECT_EQ(Read().at(Key("a")).requests, 1);
  ASSERT_TRUE(store->Add("w", 2, kToday, {{Key("a"), Sums(3, 5)}}).ok());
  ASSERT_TRUE(store->Add("w", 1, kToday, {{Key("a"), Sums(3, 5)}}).ok()) << "an earlier one again";
  ASSERT_TRUE(store->Add("other", 1, kToday, {{Key("a"), Sums(3, 5)}}).ok());
  EXPECT_EQ(Read().at(Key("a")).requests, 3);
}

TEST_F(SqliteLedgerTest, PicounitsCarryIntoUnits) {
  auto store = *SqliteLedger::Open(file_);
  const uint64_t seed = TestSeed();
  SCOPED_TRACE(seed);
  __int128 all = 0;
  for (int64_t batch = 1; batch <= 200; ++batch) {
    const auto picos = static_cast<int64_t>(UniformAt(seed, static_cast<uint64_t>(batch)) * 9e18);
    all += picos;
    ASSERT_TRUE(store->Add("w", batch, kToday, {{Key("a"), Sums(0, picos)}}).ok());
  }
  const LedgerSums sums = Read().at(Key("a"));
  EXPECT_LT(sums.picos, 1'000'000'000'000);
  EXPECT_TRUE(__int128{sums.units} * 1'000'000'000'000 + sums.picos == all) << "more than int64_t holds";
}

TEST_F(SqliteLedgerTest, ReadsTheDaysThatAreAskedFor) {
  auto store = *SqliteLedger::Open(file_);
  ASSERT_TRUE(store
                  ->Add("w", 1, kToday,
                        {{Key("a", "2026-11-20"), Sums(1, 0)},
                         {Key("a", "2026-11-21"), Sums(2, 0)},
                         {Key("a", "2026-11-22"), Sums(3, 0)}})
                  .ok());
  EXPECT_EQ(store->Read("2026-11-21", "2026-11-21")->size(), 1u);
  EXPECT_EQ(store->Read("2026-11-21", "")->size(), 2u);
  EXPECT_EQ(store->Read("", "2026-11-21")->size(), 2u);
}

TEST_F(SqliteLedgerTest, RefusesWhatIsNoLedger) {
  std::ofstream(file_) << "once upon a time, in a house beside the river, there lived a file of text";
  EXPECT_EQ(SqliteLedger::Open(file_).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(SqliteLedger::OpenToRead(folder_ + "/none.db").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(SqliteLedger::Open(folder_ + "/no/such/folder.db").status().code(),
            absl::StatusCode::kUnavailable);
}

// A file may not grow beyond the limit, as on a full disk: the batch is refused whole, and goes in later.
TEST_F(SqliteLedgerTest, AFileThatWasMovedAwayHasAllThatWasToldAndAnotherIsBegun) {
  const auto store = SqliteLedger::Open(file_);
  ASSERT_TRUE(store.ok()) << store.status();
  ASSERT_TRUE((*store)->Add("w", 1, kToday, {{Key("a"), Sums(3, 5)}}).ok());
  std::filesystem::rename(file_, file_ + ".old");
  ASSERT_TRUE((*store)->Add("w", 2, kToday, {{Key("b"), Sums(4, 6)}}).ok());
  EXPECT_EQ(Read(), (LedgerSheet{{Key("b"), Sums(4, 6)}}));
  auto old = SqliteLedger::OpenToRead(file_ + ".old");
  ASSERT_TRUE(old.ok()) << old.status();
  EXPECT_EQ(*(*old)->Read("", ""), (LedgerSheet{{Key("a"), Sums(3, 5)}}));
  std::filesystem::remove(file_);
  ASSERT_TRUE((*store)->Add("w", 3, kToday, {{Key("c"), Sums(5, 7)}}).ok());
  EXPECT_EQ(Read(), (LedgerSheet{{Key("c"), Sums(5, 7)}}));
}

TEST_F(SqliteLedgerTest, OfTwoRoutersNeitherLosesAnythingToAMove) {
  for (const bool first_again : {true, false}) {
    auto one = SqliteLedger::Open(file_), two = SqliteLedger::Open(file_);
    ASSERT_TRUE(one.ok() && two.ok());
    ASSERT_TRUE((*one)->Add("1", 1, kToday, {{Key("a"), Sums(3, 5)}}).ok());
    ASSERT_TRUE((*two)->Add("2", 1, kToday, {{Key("b"), Sums(4, 6)}}).ok());
    std::filesystem::rename(file_, file_ + ".old");
    ASSERT_TRUE((*one)->Add("1", 2, kToday, {{Key("c"), Sums(5, 7)}}).ok());
    const auto add_again = [&] { ASSERT_TRUE((*one)->Add("1", 3, kToday, {{Key("e"), Sums(7, 9)}}).ok()); };
    if (first_again) add_again();
    ASSERT_TRUE((*two)->Add("2", 2, kToday, {{Key("d"), Sums(6, 8)}}).ok());
    if (!first_again) add_again();
    EXPECT_EQ(Read(), (LedgerSheet{{Key("c"), Sums(5, 7)}, {Key("d"), Sums(6, 8)}, {Key("e"), Sums(7, 9)}}));
    EXPECT_EQ(*(*SqliteLedger::OpenToRead(file_ + ".old"))->Read("", ""),
              (LedgerSheet{{Key("a"), Sums(3, 5)}, {Key("b"), Sums(4, 6)}}));
    std::filesystem::remove(file_ + ".old");
    one->reset();
    two->reset();
    std::filesystem::remove(file_);
  }
}

TEST_F(SqliteLedgerTest, AFileThatWasOverwrittenIsSaidAndNotWrittenTo) {
  const auto store = SqliteLedger::Open(file_);
  ASSERT_TRUE(store.ok()) << store.status();
  ASSERT_TRUE((*store)->Add("w", 1, kToday, {{Key("a"), Sums(3, 5)}}).ok());
  const std::string garbage(20'000, 'g');
  std::ofstream(file_, std::ios::binary) << garbage;
  const absl::Status refused = (*store)->Add("w", 2, kToday, {{Key("b"), Sums(4, 6)}});
  EXPECT_TRUE(absl::IsFailedPrecondition(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("overwritten"));
  std::filesystem::rename(file_, file_ + ".garbage");
  ASSERT_TRUE((*store)->Add("w", 2, kToday, {{Key("b"), Sums(4, 6)}}).ok());
  EXPECT_EQ(Read(), (LedgerSheet{{Key("b"), Sums(4, 6)}}));
}

TEST_F(SqliteLedgerTest, AFullDiskRefusesABatchWhole) {
  auto store = *SqliteLedger::Open(file_);
  LedgerSheet large;
  for (int i = 0; i < 5000; ++i) large[Key("tenant " + std::to_string(i))] = Sums(i, i);
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small = {.rlim_cur = 64 << 10, .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const absl::Status full = store->Add("w", 1, kToday, large);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, SIG_DFL);
  EXPECT_FALSE(full.ok());
  EXPECT_TRUE(Read().empty());
  ASSERT_TRUE(store->Add("w", 1, kToday, large).ok());
  EXPECT_EQ(Read(), large);
}

// A process that dies by SIGKILL while it writes as fast as it can: what it was told is written is there, and
// nothing twice.
TEST_F(SqliteLedgerTest, SurvivesTheDeathOfItsProcess) {
  for (int round = 0; round < 5; ++round) {
    int told[2];
    ASSERT_EQ(pipe(told), 0);
    const std::string writer = "w" + std::to_string(round);
    const LedgerKey key = Key(writer);
    const pid_t child = fork();
    if (child == 0) {
      close(told[0]);
      auto store = SqliteLedger::Open(file_);
      if (!store.ok()) _exit(1);
      for (int64_t batch = 1;; ++batch) {
        if (!(*store)->Add(writer, batch, kToday, {{key, Sums(1, 1)}}).ok()) _exit(2);
        if (write(told[1], &batch, sizeof(batch)) != sizeof(batch)) _exit(3);
      }
    }
    close(told[1]);
    int64_t last = 0, batch = 0;
    for (int64_t until = 50 + 37 * round; last < until; last = batch) {
      ASSERT_EQ(read(told[0], &batch, sizeof(batch)), static_cast<ssize_t>(sizeof(batch)));
    }
    kill(child, SIGKILL);
    while (read(told[0], &batch, sizeof(batch)) == static_cast<ssize_t>(sizeof(batch))) last = batch;
    close(told[0]);
    waitpid(child, nullptr, 0);
    const int64_t found = Read().at(key).requests;
    EXPECT_GE(found, last) << "what was written is gone";
    EXPECT_LE(found, last + 1) << "more than one that it could not tell of any more";
  }
}

AnswerUse Use(const std::string& answer, int64_t prompt, int64_t completion, bool failed = false) {
  AnswerUse use{.answer = answer, .key = Key("a"), .prompt = {}, .rest = {}};
  use.prompt.tokens.plain = prompt;
  use.prompt.AddCost(prompt * 3);
  use.rest.tokens.completion = completion;
  use.rest.AddCost(completion * 500'000'000'000);
  use.rest.failed = failed ? 1 : 0;
  return use;
}

TEST_F(SqliteLedgerTest, WhatSeveralCallsKnowOfAnAnswerIsAddedOnce) {
  auto one = *SqliteLedger::Open(file_);
  auto two = *SqliteLedger::Open(file_);
  ASSERT_TRUE(one->Add("1", 1, kToday, {}, {Use("t/x", 10, 3, true)}).ok());
  ASSERT_TRUE(one->Add("1", 1, kToday, {}, {Use("t/x", 10, 3, true)}).ok()) << "the batch again";
  // Another router computed it from its beginning, and found a part of the prompt in caches.
  AnswerUse whole = Use("t/x", 4, 8);
  whole.prompt.tokens.decode_cached = 6;
  ASSERT_TRUE(two->Add("2", 1, kToday, {{Key("a"), Sums(1, 1)}}, {whole, Use("t/y", 10, 2)}).ok());
  // The first one notices late how far it had come.
  ASSERT_TRUE(one->Add("1", 2, kToday, {}, {Use("t/x", 10, 5)}).ok());
  const LedgerSums all = one->Read("", "")->at(Key("a"));
  EXPECT_EQ(all.requests, 3);
  EXPECT_EQ(all.failed, 0);
  EXPECT_EQ(all.tokens.decode_cached, 0);
  EXPECT_EQ(all.tokens.plain, 20 + Sums(1, 1).tokens.plain);
  EXPECT_EQ(all.tokens.completion, 10 + Sums(1, 1).tokens.completion);
  EXPECT_EQ(all.units, 5);
  EXPECT_EQ(all.picos, 60 + Sums(1, 1).picos);
}

TEST_F(SqliteLedgerTest, AFileOfEarlierVersionsTakesAnswers) {
  {
    auto store = *SqliteLedger::Open(file_);
    ASSERT_TRUE(store->Add("w", 1, kToday, {{Key("a"), Sums(3, 5)}}).ok());
  }
  sqlite3* database = nullptr;
  ASSERT_EQ(sqlite3_open(file_.c_str(), &database), SQLITE_OK);
  ASSERT_EQ(sqlite3_exec(database, "DROP TABLE answers", nullptr, nullptr, nullptr), SQLITE_OK);
  sqlite3_close(database);
  auto store = *SqliteLedger::Open(file_);
  EXPECT_TRUE(store->Add("w", 2, kToday, {}, {Use("t/x", 10, 3)}).ok());
}

}  // namespace
}  // namespace baton::router::billing
