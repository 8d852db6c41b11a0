// Two routers as real processes, which share a tenant's limits and the ledger by a real store.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "common/rpc/status.h"
#include "router/store/redis_ledger.h"
#include "tests/e2e/fleet.h"
#include "tests/integration/store/redis_server.h"
#include "tests/patience.h"

namespace baton::e2e {
namespace {

using router::billing::LedgerSheet;
using router::billing::LedgerSums;
using router::store::RedisLedger;
using router::store::RedisServer;
using ::testing::HasSubstr;

class StoreTest : public ::testing::Test {
 protected:
  explicit StoreTest() {
    std::filesystem::create_directories(folder_);
    // So slow that nothing refills during a test.
    std::ofstream(folder_ + "/tenants.json")
        << R"({"tenants": [{"name": "search", "anonymous": true, "tokens_per_day": 2000}]})";
    for (int i = 0; i < 2; ++i) {
      routers_.push_back(std::make_unique<Process>(
          "baton-router",
          std::vector<std::string>{"--model", kModel, "--decode", fleet_.decode().grpc(), "--log-level",
                                   "error", "--tenants", folder_ + "/tenants.json", "--store", server_.url(),
                                   "--ledger", "store", "--exit-with-parent"}));
      stubs_.push_back(v1::Inference::NewStub(
          grpc::CreateChannel(routers_.back()->grpc(), grpc::InsecureChannelCredentials())));
    }
    AwaitMetric("baton_router_store_routers", 2);
  }
  ~StoreTest() override { std::filesystem::remove_all(folder_); }

  void AwaitMetric(const std::string& name, double value) {
    for (const auto& router : routers_) {
      Await([&] { return Metric(*router, name) == value; }, name);
      EXPECT_EQ(Metric(*router, name), value) << name;
    }
  }
  // 100 tokens in all.
  absl::Status Ask(int router) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + Scaled(std::chrono::minutes(2)));
    const auto reader = stubs_.at(static_cast<size_t>(router))
                            ->Generate(&context, TokenRequest(std::vector<int32_t>(90, 20 + router), 10));
    for (v1::GenerateResponse response; reader->Read(&response);) {
    }
    return rpc::FromGrpc(reader->Finish());
  }
  LedgerSums Ledger() {
    const auto ledger = RedisLedger::Open(server_.options());
    const auto sheet = (*ledger)->Read("", "");
    LedgerSums all;
    if (!sheet.ok()) return all;
    for (const auto& [key, sums] : *sheet) {
      EXPECT_EQ(key.tenant, "search");
      all.Add(sums);
    }
    return all;
  }

  const std::string folder_ = ::testing::TempDir() + "/store_e2e_" + std::to_string(getpid());
  RedisServer server_;
  Fleet fleet_{{.prefill = 0}};
  std::vector<std::unique_ptr<Process>> routers_;
  std::vector<std::unique_ptr<v1::Inference::Stub>> stubs_;
};

// A quota of 2,000 tokens lets 20 requests of 100 through, whichever router they come by, and not 20 by each.
TEST_F(StoreTest, AQuotaAndALedgerHoldForBothRouters) {
  int admitted = 0;
  absl::Status refused;
  for (int i = 0; i < 60; ++i) {
    const absl::Status status = Ask(i % 2);
    admitted += status.ok() ? 1 : 0;
    if (!status.ok()) refused = status;
  }
  EXPECT_GE(admitted, 17);  // an answer is expected to be longer than these are, until its length is known
  EXPECT_LE(admitted, 21);
  EXPECT_TRUE(absl::IsResourceExhausted(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("2000 tokens per day"));
  const LedgerSums all = Ledger();
  EXPECT_EQ(all.requests, admitted);
  EXPECT_EQ(all.tokens.prompt(), 90 * admitted);
  EXPECT_EQ(all.tokens.completion, 10 * admitted);
}

// Without the store requests go on, and what they used is written when it is back.
TEST_F(StoreTest, TheStoreDiesAndComesBack) {
  EXPECT_TRUE(Ask(0).ok());
  server_.Signal(SIGKILL);
  server_.AwaitEnd();
  AwaitMetric("baton_router_store_up", 0);
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(Ask(i % 2).ok());
  server_.Start();
  AwaitMetric("baton_router_store_up", 1);
  Await([&] { return Ledger().requests >= 4; }, "four requests in the ledger");
  EXPECT_EQ(Ledger().requests, 4);  // the first one's went with the store, which keeps nothing here
  EXPECT_EQ(Ledger().tokens.completion, 40);
}

}  // namespace
}  // namespace baton::e2e
