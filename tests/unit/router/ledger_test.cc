#include "router/billing/ledger.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "absl/synchronization/notification.h"
#include "nlohmann/json.hpp"
#include "router/billing/sqlite_ledger.h"
#include "tests/patience.h"

namespace baton::router::billing {
namespace {

using ::testing::HasSubstr;

UsageRecord Record(const std::string& tenant = "a") {
  UsageRecord record;
  record.ended = absl::FromUnixSeconds(1'795'305'600);  // 2026-11-22
  record.request_id = "r1";
  record.method = "Chat";
  record.tenant = tenant;
  record.key = "k1";
  record.model = "m";
  record.counted = true;
  record.tokens = {.decode_cached = 16, .plain = 4, .completion = 3, .thinking = 1};
  record.currency = "EUR";
  record.picos = 1'500'000;
  return record;
}

class LedgerTest : public ::testing::Test {
 protected:
  LedgerTest() {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  ~LedgerTest() override { std::filesystem::remove_all(folder_); }

  std::unique_ptr<Ledger> Open() {
    auto ledger = Ledger::Open({.ledger_file = ledger_, .audit_file = audit_}, probe_);
    EXPECT_TRUE(ledger.ok()) << ledger.status();
    return *std::move(ledger);
  }
  LedgerSheet Sheet() { return *(*SqliteLedger::OpenToRead(ledger_))->Read("", ""); }
  std::vector<std::string> Lines() {
    std::vector<std::string> lines;
    std::ifstream file(audit_);
    for (std::string line; std::getline(file, line);) lines.push_back(line);
    return lines;
  }

  const std::string folder_ = ::testing::TempDir() + "/ledger_" + std::to_string(getpid());
  const std::string ledger_ = folder_ + "/ledger.db", audit_ = folder_ + "/audit.log";
  telemetry::Metrics metrics_;
  LedgerProbe probe_{metrics_};
};

TEST_F(LedgerTest, ACallerIsReleasedWhenItsRecordIsWritten) {
  auto ledger = Open();
  absl::Notification written;
  ledger->Record(Record(), [&] {
    const LedgerSheet sheet = Sheet();
    ASSERT_EQ(sheet.size(), 1u);
    EXPECT_EQ(sheet.begin()->first.day, "2026-11-22");
    EXPECT_EQ(sheet.begin()->second.tokens, Record().tokens);
    EXPECT_EQ(Lines().size(), 1u);
    written.Notify();
  });
  written.WaitForNotification();
}

TEST_F(LedgerTest, AnAuditLineHasTheCountsAndNoContent) {
  UsageRecord record = Record("t\xff");
  record.ended = absl::FromUnixMillis(1'795'305'600'125);
  record.code = absl::StatusCode::kDeadlineExceeded;
  record.finish_reasons = {"LENGTH"};
  record.ttft = 0.25;
  const std::string line = AuditLine(record);
  EXPECT_EQ(line.find('\n'), line.size() - 1) << "one line, whatever the names are";
  const auto json = nlohmann::json::parse(line);
  EXPECT_EQ(json["time"], "2026-11-22T00:00:00.125Z");
  EXPECT_EQ(json["code"], "DEADLINE_EXCEEDED");
  EXPECT_EQ(json["prompt_tokens"], 20);
  EXPECT_EQ(json["cached_tokens"], 16);
  EXPECT_EQ(json["completion_tokens"], 3);
  EXPECT_EQ(json["thinking_tokens"], 1);
  EXPECT_EQ(json["cost"], "0.0000015");
  EXPECT_EQ(json["currency"], "EUR");
  EXPECT_EQ(json["finish_reasons"], nlohmann::json({"LENGTH"}));
  EXPECT_FALSE(json.contains("removed_context_tokens"));
  record.counted = false;
  record.removed_context_tokens = 700;
  record.clamped_max_tokens = 30;
  const auto other = nlohmann::json::parse(AuditLine(record));
  EXPECT_FALSE(other.contains("prompt_tokens"));
  EXPECT_EQ(other["removed_context_tokens"], 700);
  EXPECT_EQ(other["clamped_max_tokens"], 30);
}

TEST_F(LedgerTest, AddsUpWhatManyThreadsRecord) {
  {
    auto ledger = Open();
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&ledger, t] {
        for (int i = 0; i < 250; ++i) {
          UsageRecord record = Record("tenant" + std::to_string(t % 2));
          record.code = i % 10 == 0 ? absl::StatusCode::kUnavailable : absl::StatusCode::kOk;
          ledger->Record(std::move(record), [] {});
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  const LedgerSheet sheet = Sheet();
  ASSERT_EQ(sheet.size(), 2u);
  for (const auto& [key, sums] : sheet) {
    EXPECT_EQ(sums.requests, 500);
    EXPECT_EQ(sums.failed, 50);
    EXPECT_EQ(sums.tokens.plain, 4 * 500);
    EXPECT_EQ(sums.picos, 1'500'000 * 500);
  }
  EXPECT_EQ(Lines().size(), 1000u);
  EXPECT_THAT(metrics_.Text(), HasSubstr("baton_router_ledger_requests_total 1000\n"));
  EXPECT_THAT(metrics_.Text(), HasSubstr("baton_router_ledger_failing 0\n"));
}

TEST_F(LedgerTest, ARequestThatNoWorkerAcceptedHasALineAndNoSums) {
  {
    auto ledger = Open();
    UsageRecord record = Record();
    record.counted = false;
    ledger->Record(std::move(record), [] {});
  }
  EXPECT_TRUE(Sheet().empty());
  EXPECT_EQ(Lines().size(), 1u);
}

TEST_F(LedgerTest, AFileThatWasMovedAwayIsMadeAgain) {
  auto ledger = Open();
  for (int i = 0; i < 2; ++i) {
    absl::Notification written;
    ledger->Record(Record(), [&] { written.Notify(); });
    written.WaitForNotification();
    EXPECT_EQ(Lines().size(), 1u);
    std::filesystem::rename(audit_, audit_ + ".1");
  }
}

TEST_F(LedgerTest, ALineThatWasCutByADeathIsEnded) {
  std::ofstream(audit_) << "{\"half\": ";
  {
    Open()->Record(Record(), [] {});
  }
  ASSERT_EQ(Lines().size(), 2u);
  EXPECT_TRUE(nlohmann::json::accept(Lines()[1]));
}

// The audit log can't be written: callers go on, its lines wait, and the sums are kept.
TEST_F(LedgerTest, ADiskThatFailsHoldsNobody) {
  auto ledger = Open();
  std::filesystem::remove(audit_);
  std::filesystem::create_directory(audit_);  // it can't be made again
  absl::Notification first, second;
  ledger->Record(Record(), [&] { first.Notify(); });
  first.WaitForNotification();
  EXPECT_THAT(metrics_.Text(), HasSubstr("baton_router_ledger_failing 1\n"));
  bool at_once = false;
  ledger->Record(Record(), [&] { at_once = true; });
  EXPECT_TRUE(at_once) << "nobody waits for a disk that has failed";
  std::filesystem::remove(audit_);
  ledger = nullptr;
  EXPECT_EQ(Lines().size(), 2u) << "they were kept";
  ASSERT_EQ(Sheet().size(), 1u);
  EXPECT_EQ(Sheet().begin()->second.requests, 2);
}

// A pipe that nobody reads takes some lines and then hangs, as a disk may.
TEST_F(LedgerTest, ADiskThatHangsHoldsACallerForAShortTime) {
  ASSERT_EQ(mkfifo(audit_.c_str(), 0600), 0);
  auto ledger = Ledger::Open({.audit_file = audit_}, probe_);
  ASSERT_TRUE(ledger.ok()) << ledger.status();
  UsageRecord large = Record();
  large.request_id = std::string(1 << 20, 'x');
  absl::Notification released;
  (*ledger)->Record(std::move(large), [&] { released.Notify(); });
  EXPECT_TRUE(released.WaitForNotificationWithTimeout(Scaled(absl::Seconds(30))));
  EXPECT_THAT(metrics_.Text(), HasSubstr("baton_router_ledger_failing 1\n"));
  // A reader comes, so that the writer can end.
  std::thread reader([this] {
    std::ifstream pipe(audit_);
    std::string line;
    std::getline(pipe, line);
  });
  *ledger = nullptr;
  reader.join();
}

}  // namespace
}  // namespace baton::router::billing
