// Requests' usage, on real processes: it adds up whichever way a request ends, the ledger, the audit log and
// the clients agree, and a router that is killed loses and repeats nothing.
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <thread>

#include "common/rpc/channel.h"
#include "common/rpc/status.h"
#include "nlohmann/json.hpp"
#include "router/billing/sqlite_ledger.h"
#include "tests/e2e/fleet.h"
#include "tests/patience.h"

namespace baton::e2e {
namespace {

using router::billing::LedgerSheet;
using router::billing::LedgerSums;
using router::billing::SqliteLedger;

constexpr char kPrices[] = R"({"currency": "EUR", "models": {"baton-tiny": {"prompt": "3", "cached": "0.30",
    "written_5m": "3.75", "written_1h": "6", "completion": "15.000001"}}})";

std::vector<int32_t> PromptOf(int size, int seed) {
  std::vector<int32_t> prompt;
  for (int i = 0; i < size; ++i) prompt.push_back(20 + (i * 31 + seed * 97 + i * seed) % 1990);
  return prompt;
}

class BillingTest : public ::testing::Test {
 protected:
  BillingTest() {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    std::ofstream(folder_ + "/prices.json") << kPrices;
  }
  ~BillingTest() override { std::filesystem::remove_all(folder_); }

  void StartRouter(Fleet& fleet, int prefill, int decode) {
    std::string decoders, prefills;
    for (int i = 0; i < decode; ++i) decoders += (i > 0 ? "," : "") + fleet.decode(i).grpc();
    for (int i = 0; i < prefill; ++i) prefills += (i > 0 ? "," : "") + fleet.prefill(i).grpc();
    std::vector<std::string> flags = {"--model",
                                      kModel,
                                      "--decode",
                                      decoders,
                                      "--log-level",
                                      "error",
                                      "--prices",
                                      folder_ + "/prices.json",
                                      "--ledger",
                                      ledger_,
                                      "--audit-log",
                                      audit_,
                                      "--fleet-keepalive",
                                      kPatientKeepalive,
                                      "--default-ttft-deadline",
                                      "0",
                                      "--exit-with-parent"};
    if (prefill > 0) flags.insert(flags.end(), {"--prefill", prefills});
    router_ = std::make_unique<Process>("baton-router", flags);
    stub_ = v1::Inference::NewStub(grpc::CreateChannel(router_->grpc(), grpc::InsecureChannelCredentials()));
    v1::ListModelsResponse models;
    const auto is_ready = [&] {
      grpc::ClientContext context;
      return stub_->ListModels(&context, {}, &models).ok() && models.models_size() == 1 &&
             models.models(0).ready_decode_workers() == static_cast<uint32_t>(decode) &&
             models.models(0).ready_prefill_workers() == static_cast<uint32_t>(prefill);
    };
    ASSERT_TRUE(Await(
        is_ready, [&] { return "all workers at the router, which tells of " + models.ShortDebugString(); }));
    EXPECT_EQ(models.models(0).prices().cached(), "0.3");
  }

  // A call whose stream is read until `stop` says so; then it is cancelled.
  struct Call {
    absl::Status status;
    std::string id;
    std::vector<v1::Finished> finished;
    v1::RequestUsage total;  // the trailer
    bool has_total = false;
  };
  Call Run(const v1::GenerateRequest& request, const std::function<bool(int tokens)>& stop = nullptr,
           std::chrono::milliseconds deadline = Scaled(std::chrono::minutes(2))) {
    Call call;
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + deadline);
    const auto reader = stub_->Generate(&context, request);
    int tokens = 0;
    for (v1::GenerateResponse response; reader->Read(&response);) {
      if (response.has_started()) call.id = response.started().request_id();
      if (response.has_finished()) call.finished.push_back(response.finished());
      tokens += static_cast<int>(response.delta().tokens());
      if (stop != nullptr && stop(tokens)) context.TryCancel();
    }
    call.status = rpc::FromGrpc(reader->Finish());
    const auto& trailers = context.GetServerTrailingMetadata();
    if (const auto found = trailers.find("baton-usage-bin"); found != trailers.end()) {
      call.has_total =
          call.total.ParseFromArray(found->second.data(), static_cast<int>(found->second.size()));
    }
    return call;
  }

  LedgerSums Ledger() {
    auto store = SqliteLedger::OpenToRead(ledger_);
    EXPECT_TRUE(store.ok()) << store.status();
    LedgerSums all;
    const auto sheet = (*store)->Read("", "");
    for (const auto& [key, sums] : *sheet) {
      EXPECT_EQ(key.tenant, "default");
      EXPECT_EQ(key.model, "baton-tiny");
      EXPECT_EQ(key.currency, "EUR");
      all.Add(sums);
    }
    return all;
  }

  // By request id; fails if a request has two lines.
  std::map<std::string, nlohmann::json> AuditLines() {
    std::map<std::string, nlohmann::json> lines;
    std::ifstream file(audit_);
    for (std::string line; std::getline(file, line);) {
      const auto json = nlohmann::json::parse(line, nullptr, false);
      if (json.is_discarded()) continue;  // the last one of a router that was killed
      EXPECT_TRUE(lines.emplace(json["request_id"], json).second) << "a request has two lines";
    }
    return lines;
  }

  const std::string folder_ = ::testing::TempDir() + "/billing_" + std::to_string(getpid());
  const std::string ledger_ = folder_ + "/ledger.db", audit_ = folder_ + "/audit.log";
  std::unique_ptr<Process> router_;
  std::unique_ptr<v1::Inference::Stub> stub_;
};

int64_t Kinds(const v1::Usage& usage) {
  return int64_t{usage.cached_tokens()} + usage.written_five_minutes_tokens() + usage.written_hour_tokens() +
         usage.plain_tokens();
}

int64_t Price(const v1::Usage& usage) {
  return int64_t{usage.plain_tokens()} * 3'000'000 + int64_t{usage.cached_tokens()} * 300'000 +
         int64_t{usage.completion_tokens()} * 15'000'001;
}

TEST_F(BillingTest, UsageAddsUpWhicheverWayARequestEnds) {
  Fleet fleet({.prefill = 2, .decode = 2, .gated = true, .impatient = true});
  StartRouter(fleet, 2, 2);
  std::vector<Call> calls;
  const std::vector<int32_t> prompt = PromptOf(150, 1);
  calls.push_back(Run(TokenRequest(prompt, 8)));           // handed off
  calls.push_back(Run(TokenRequest(prompt, 8)));           // cached
  calls.push_back(Run(TokenRequest(PromptOf(10, 2), 8)));  // computed by the decode worker
  v1::GenerateRequest several = TokenRequest(PromptOf(200, 3), 8);
  several.mutable_options()->set_n(4);
  calls.push_back(Run(several));
  // Answers that their worker does not end: a client leaves, a deadline passes.
  constexpr int64_t kSteps = 23;
  static_assert(kSteps * kStepTokens < 600);
  fleet.decode_gates().Allow(kSteps);
  calls.push_back(Run(TokenRequest(PromptOf(150, 4), 600), [](int tokens) { return tokens >= 20; }));
  EXPECT_EQ(calls.back().status.code(), absl::StatusCode::kCancelled);
  fleet.decode_gates().Close();
  // Short: a router refuses at once if it predicts that the first token comes too late.
  calls.push_back(Run(TokenRequest(PromptOf(20, 5), 200), nullptr, std::chrono::seconds(1)));
  EXPECT_EQ(calls.back().status.code(), absl::StatusCode::kDeadlineExceeded);
  fleet.decode_gates().Open();
  calls.push_back(Run(TokenRequest(PromptOf(4000, 6), 8)));  // refused: longer than the context
  // The decode worker of an answer dies in its middle.
  fleet.ExpectNothingHeld();
  fleet.decode_gates().Allow(kSteps);
  bool killed = false;
  calls.push_back(Run(TokenRequest(PromptOf(150, 7), 600), [&](int tokens) {
    if (tokens >= 20 && !std::exchange(killed, true)) fleet.LoseHeldDecode(SIGKILL);
    return false;
  }));
  EXPECT_EQ(calls.back().finished.at(0).relay().migrations(), 1u);
  // The prefill workers die: the decode worker computes the prompt.
  for (int i = 0; i < 2; ++i) fleet.prefill(i).Signal(SIGKILL);
  calls.push_back(Run(TokenRequest(PromptOf(300, 8), 8)));
  EXPECT_TRUE(calls.back().status.ok()) << calls.back().status;
  router_->Signal(SIGTERM);
  EXPECT_EQ(router_->Wait().value, 0);

  int ended_well = 0;
  const auto lines = AuditLines();
  EXPECT_EQ(lines.size(), calls.size()) << "one line a request, refused ones too";
  for (const Call& call : calls) {
    SCOPED_TRACE(call.status.ToString());
    int64_t cost = 0;
    for (const v1::Finished& finished : call.finished) {
      const v1::Usage& usage = finished.usage();
      EXPECT_EQ(Kinds(usage), usage.prompt_tokens());
      EXPECT_EQ(usage.cached_tokens(), usage.decode_cached_tokens() + usage.prefill_cached_tokens());
      EXPECT_EQ(finished.cost().currency(), "EUR");
      cost += finished.cost().picos();
    }
    if (!call.status.ok()) continue;
    ++ended_well;
    ASSERT_TRUE(call.has_total);
    EXPECT_EQ(Kinds(call.total.usage()), call.total.usage().prompt_tokens());
    EXPECT_EQ(call.total.cost().picos(), cost) << "choices add up to their request";
    EXPECT_EQ(cost, Price(call.total.usage()));
    const nlohmann::json& line = lines.at(call.id);
    EXPECT_EQ(line["completion_tokens"], call.total.usage().completion_tokens());
    EXPECT_EQ(line["cached_tokens"], call.total.usage().cached_tokens());
    EXPECT_EQ(line["prompt_tokens"], call.total.usage().prompt_tokens());
  }
  EXPECT_EQ(ended_well, 6);
  EXPECT_GT(calls[1].total.usage().cached_tokens(), 0u);
  EXPECT_EQ(calls[3].total.usage().completion_tokens(), 32u);
  EXPECT_EQ(calls[3].total.usage().prompt_tokens(), 200u) << "once, for four choices";

  // The ledger is the sum of the lines.
  LedgerSums of_lines;
  for (const auto& [id, line] : lines) {
    if (!line.contains("prompt_tokens")) continue;
    EXPECT_EQ(line["prompt_tokens"].get<int64_t>(),
              line["cached_tokens"].get<int64_t>() + line["written_5m_tokens"].get<int64_t>() +
                  line["written_1h_tokens"].get<int64_t>() + line["plain_tokens"].get<int64_t>());
    ++of_lines.requests;
    of_lines.failed += line["code"] != "OK";
    of_lines.tokens.plain += line["plain_tokens"].get<int64_t>();
    of_lines.tokens.completion += line["completion_tokens"].get<int64_t>();
    of_lines.tokens.decode_cached += line["cached_tokens"].get<int64_t>();
  }
  const LedgerSums sums = Ledger();
  EXPECT_EQ(sums.requests, of_lines.requests);
  EXPECT_EQ(sums.failed, of_lines.failed);
  EXPECT_GE(sums.failed, 1) << "the cancelled answer counts";
  EXPECT_EQ(sums.tokens.plain, of_lines.tokens.plain);
  EXPECT_EQ(sums.tokens.completion, of_lines.tokens.completion);
  EXPECT_EQ(sums.tokens.cached(), of_lines.tokens.decode_cached);
  EXPECT_EQ(
      sums.units * 1'000'000'000'000 + sums.picos,
      sums.tokens.plain * 3'000'000 + sums.tokens.cached() * 300'000 + sums.tokens.completion * 15'000'001);
}

// Three times: some answers end, others are under way, and the router is killed. What clients were told is in
// the ledger, to the token and the picounit, and what was under way is not.
TEST_F(BillingTest, ARouterThatIsKilledLosesNothingThatItToldAndCountsNothingTwice) {
  Fleet fleet({.prefill = 0, .decode = 1, .gated = true, .impatient = true});
  LedgerSums told;
  for (int life = 0; life < 3; ++life) {
    StartRouter(fleet, 0, 1);
    for (int i = 0; i < 4; ++i) {
      const Call call = Run(TokenRequest(PromptOf(40 + i, 10 * life + i), 6));
      ASSERT_TRUE(call.status.ok()) << call.status;
      LedgerSums one;
      one.requests = 1;
      one.tokens = {.decode_cached = call.total.usage().cached_tokens(),
                    .plain = call.total.usage().plain_tokens(),
                    .completion = call.total.usage().completion_tokens()};
      one.AddCost(call.total.cost().picos());
      told.Add(one);
    }
    // The last thing that a client was told: nothing lies between it and the kill. The worker begins with all
    // three answers, and ends none.
    fleet.ExpectNothingHeld();
    fleet.decode_gates().Close();
    std::atomic<int> under_way = 0;
    std::vector<std::thread> clients;
    for (int i = 0; i < 3; ++i) {
      clients.emplace_back([this, i, life, &under_way] {
        bool seen = false;
        const Call call = Run(TokenRequest(PromptOf(60, 100 * life + i), 2000), [&](int tokens) {
          if (tokens > 0 && !std::exchange(seen, true)) ++under_way;
          return false;
        });
        EXPECT_FALSE(call.status.ok());
      });
    }
    Await([&] { return LoadOf(fleet.decode()).queued() == 3; }, "three requests at the worker");
    fleet.decode_gates().Allow(30);
    Await([&] { return under_way >= 3; }, "three answers under way");
    router_->Signal(SIGKILL);
    for (std::thread& client : clients) client.join();
    router_->Wait();
    fleet.decode_gates().Open();
    LedgerSums found = Ledger();
    found.tokens.decode_cached = found.tokens.cached();
    found.tokens.prefill_cached = 0;
    EXPECT_EQ(found, told) << "in life " << life;
    EXPECT_EQ(AuditLines().size(), static_cast<size_t>(told.requests));
  }
  EXPECT_EQ(told.requests, 12);
}

// Clients that call without a pause, and a router that is killed at any moment: what they were told of is
// there, and of what they were not told at most the one request that each of them had under way.
TEST_F(BillingTest, ARouterThatIsKilledAtAnyMomentKeepsWhatItTold) {
  constexpr int kClients = 4;
  Fleet fleet({.prefill = 0, .decode = 1, .impatient = true});
  int64_t told = 0, lives = 0;
  std::map<std::string, int64_t> completions;
  for (; lives < 3; ++lives) {
    StartRouter(fleet, 0, 1);
    std::atomic<int> ended = 0;
    std::vector<std::vector<Call>> calls(kClients);
    std::vector<std::thread> clients;
    for (int i = 0; i < kClients; ++i) {
      clients.emplace_back([this, i, &ended, &mine = calls[i]] {
        for (int n = 0;; ++n) {
          Call call = Run(TokenRequest(PromptOf(20, 7 * i + n), 3));
          if (!call.status.ok()) return;
          mine.push_back(std::move(call));
          ++ended;
        }
      });
    }
    Await([&] { return ended >= 20 + 7 * lives; }, "answers of the router");
    router_->Signal(SIGKILL);
    for (std::thread& client : clients) client.join();
    router_->Wait();
    for (const auto& mine : calls) {
      for (const Call& call : mine) completions[call.id] = call.total.usage().completion_tokens();
    }
    told = static_cast<int64_t>(completions.size());
    const LedgerSums found = Ledger();
    EXPECT_GE(found.requests, told);
    EXPECT_LE(found.requests, told + kClients * (lives + 1));
    const auto lines = AuditLines();
    for (const auto& [id, tokens] : completions) {
      ASSERT_TRUE(lines.contains(id)) << "a request that a client was told of has no line";
      EXPECT_EQ(lines.at(id)["completion_tokens"], tokens);
    }
  }
  EXPECT_GT(told, 20);
}

}  // namespace
}  // namespace baton::e2e
