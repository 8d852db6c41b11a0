// Clients whose connections are cut and whose routers are killed, on real processes: every answer is whole,
// and the ledger that the routers share has it once.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <memory>
#include <random>
#include <sstream>
#include <thread>

#include "common/rpc/status.h"
#include "nlohmann/json.hpp"
#include "router/billing/sqlite_ledger.h"
#include "tests/e2e/cut_proxy.h"
#include "tests/e2e/fleet.h"
#include "tests/e2e/http_get.h"
#include "tests/patience.h"
#include "tests/seed.h"
#include "tests/unit/common/telemetry/http_peer.h"

namespace baton::e2e {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kRouters = 2;
constexpr int kClients = 6;
constexpr int kKinds = 24;  // of requests

class ResumeTest : public ::testing::Test {
 protected:
  struct Expected {
    v1::GenerateRequest request;
    std::vector<int32_t> tokens;
    std::string text;
    uint32_t prompt = 0;
  };
  struct Counts {
    std::atomic<int> messages{0}, calls{0}, resumed{0}, continued{0}, kills{0}, cuts{0};
  };

  ResumeTest() {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  ~ResumeTest() override { std::filesystem::remove_all(folder_); }

  void StartRouter(size_t i) {
    std::string decoders;
    for (int d = 0; d < kDecode; ++d) decoders += (d > 0 ? "," : "") + fleet_.decode(d).grpc();
    routers_[i] = std::make_unique<Process>(
        "baton-router", std::vector<std::string>{"--model", kModel, "--decode", decoders, "--prefill",
                                                 fleet_.prefill().grpc(), "--log-level", "error", "--ledger",
                                                 folder_ + "/ledger", "--fleet-keepalive", kPatientKeepalive,
                                                 "--default-ttft-deadline", "0", "--exit-with-parent"});
    const auto stub =
        v1::Inference::NewStub(grpc::CreateChannel(routers_[i]->grpc(), grpc::InsecureChannelCredentials()));
    const auto is_ready = [&] {
      grpc::ClientContext context;
      v1::ListModelsResponse models;
      return stub->ListModels(&context, {}, &models).ok() && models.models_size() == 1 &&
             models.models(0).ready_decode_workers() == kDecode;
    };
    ASSERT_TRUE(Await(is_ready, "all workers at the router"));
    if (proxies_[i] == nullptr) {
      proxies_[i] = std::make_unique<CutProxy>(routers_[i]->grpc());
    } else {
      proxies_[i]->SetTarget(routers_[i]->grpc());
    }
  }

  // Learns the answer to each request when nothing happens to it.
  void AskForExpected() {
    for (int kind = 0; kind < kKinds; ++kind) {
      Expected expected;
      expected.request.set_text("Tell me of number " + std::to_string(kind * 7919));
      expected.request.mutable_sampling()->set_seed(1000 + static_cast<uint64_t>(kind));
      expected.request.mutable_sampling()->set_temperature(1);
      expected.request.mutable_stop()->set_max_tokens(static_cast<uint32_t>(8 + kind));
      expected.request.mutable_output()->set_token_ids(true);
      const Answer answer = fleet_.Generate(expected.request);
      ASSERT_TRUE(answer.status.ok()) << answer.status;
      expected.tokens = answer.tokens;
      expected.text = answer.text;
      expected.prompt = answer.end().usage().prompt_tokens();
      expected_.push_back(std::move(expected));
    }
  }

  // One answer, as a client gets it that goes on after every cut. `draw`: random numbers.
  void Fetch(const Expected& expected, const std::string& key, std::mt19937_64& random, Counts& counts) {
    v1::GenerateRequest request = expected.request;
    request.mutable_options()->set_idempotency_key(key);
    std::vector<int32_t> tokens;
    std::string text, id, build;
    std::optional<v1::Finished> finished;
    const auto take = [&](const auto& message) {
      ++counts.messages;
      if (message.has_started()) {
        EXPECT_EQ(message.started().seed(), expected.request.sampling().seed());
        id = message.started().request_id();
        build = message.started().build();
      }
      if (message.has_delta()) {
        tokens.insert(tokens.end(), message.delta().token_ids().begin(), message.delta().token_ids().end());
        text += message.delta().text();
      }
      if (message.has_finished()) finished = message.finished();
    };
    grpc::Status status;
    for (int attempt = 0;; ++attempt) {
      ASSERT_LT(attempt, 500) << "no end: " << status.error_message();
      ++counts.calls;
      finished.reset();
      grpc::ChannelArguments own;
      own.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
      for (const char* backoff : {GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, GRPC_ARG_MIN_RECONNECT_BACKOFF_MS,
                                  GRPC_ARG_MAX_RECONNECT_BACKOFF_MS}) {
        own.SetInt(backoff, 100);
      }
      const auto channel = grpc::CreateCustomChannel(proxies_[random() % kRouters]->address(),
                                                     grpc::InsecureChannelCredentials(), own);
      // A router that was killed comes back. One long WaitForConnected could wait for ever: it does not see a
      // connection that is made and cut before it looks, and then asks for no other.
      const auto connected = [&channel] {
        const auto soon = std::chrono::system_clock::now() + Scaled(std::chrono::milliseconds(500));
        return channel->WaitForConnected(soon);
      };
      ASSERT_TRUE(Await(connected, "a connection to a router"));
      const auto stub = v1::Inference::NewStub(channel);
      grpc::ClientContext context;
      context.set_deadline(std::chrono::system_clock::now() + Scaled(std::chrono::seconds(60)));
      if (id.empty()) {
        const auto reader = stub->Generate(&context, request);
        v1::GenerateResponse message;
        while (reader->Read(&message)) take(message);
        status = reader->Finish();
      } else {
        ++counts.resumed;
        v1::ResumeRequest resume;
        resume.set_request_id(id);
        resume.add_after_tokens(static_cast<uint32_t>(tokens.size()));
        // At first it hopes that the router has it.
        const bool brings = random() % 2 == 0;
        if (brings) {
          *resume.mutable_generate() = request;
          resume.mutable_generate()->mutable_options()->set_build(build);
        }
        const size_t before = tokens.size();
        const auto reader = stub->Resume(&context, resume);
        v1::ResumeResponse message;
        while (reader->Read(&message)) take(message);
        status = reader->Finish();
        if (tokens.size() > before) ++counts.continued;
      }
      if (status.ok()) break;
      ASSERT_THAT(status.error_code(),
                  testing::AnyOf(grpc::StatusCode::UNAVAILABLE, grpc::StatusCode::CANCELLED,
                                 grpc::StatusCode::NOT_FOUND, grpc::StatusCode::RESOURCE_EXHAUSTED,
                                 grpc::StatusCode::INTERNAL, grpc::StatusCode::UNKNOWN))
          << status.error_message();
    }
    ASSERT_TRUE(finished.has_value());
    EXPECT_EQ(tokens, expected.tokens) << key;
    EXPECT_EQ(text, expected.text) << key;
    EXPECT_EQ(finished->usage().completion_tokens(), expected.tokens.size());
    EXPECT_EQ(finished->usage().prompt_tokens(), expected.prompt);
  }

  // So many answers, while something happens to routers and connections.
  void Run(int answers, bool kill) {
    AskForExpected();
    for (size_t i = 0; i < kRouters; ++i) StartRouter(i);
    const uint64_t seed = TestSeed();
    SCOPED_TRACE(seed);
    Counts counts;
    std::atomic<int> next{0}, running{kClients};
    std::vector<std::thread> clients;
    for (uint64_t client = 0; client < kClients; ++client) {
      clients.emplace_back([&, client] {
        std::mt19937_64 random(seed + client);
        for (int answer = next++; answer < answers && !HasFatalFailure(); answer = next++) {
          Fetch(expected_[static_cast<size_t>(answer % kKinds)], "answer " + std::to_string(answer), random,
                counts);
        }
        --running;
      });
    }
    std::mt19937_64 random(seed + 99);
    while (running > 0) {
      // In the middle of something.
      const int next = counts.messages + static_cast<int>(random() % 30);
      if (!Await([&] { return running == 0 || counts.messages >= next; }, "messages")) break;
      const size_t victim = random() % kRouters;
      if (kill && random() % 40 == 0) {
        routers_[victim]->Signal(SIGKILL);
        routers_[victim]->Wait();
        ++counts.kills;
        StartRouter(victim);
      } else if (proxies_[victim]->Cut()) {
        ++counts.cuts;
      }
    }
    for (std::thread& client : clients) client.join();
    ExpectChargedOnce(answers);
    printf(
        "%d answers by %d calls, of which %d resumed (%d got tokens); %d connections cut, %d routers "
        "killed\n",
        answers, counts.calls.load(), counts.resumed.load(), counts.continued.load(), counts.cuts.load(),
        counts.kills.load());
    EXPECT_GT(counts.continued, 0) << "nothing was cut in its middle";
    EXPECT_EQ(counts.kills > 0, kill);
    fleet_.ExpectNothingHeld();
  }

  // The same over HTTP, through a gateway, whose clients know of nothing: so many answers at least, and until
  // so many have gone on at another router.
  void RunBehindAGateway(int answers, int resumed) {
    AskForExpected();
    for (size_t i = 0; i < kRouters; ++i) StartRouter(i);
    Process gateway("baton-gateway",
                    {"--router", proxies_[0]->address() + "," + proxies_[1]->address(), "--listen",
                     "127.0.0.1:0", "--log-level", "error", "--exit-with-parent"});
    const auto has_resumed = [&] { return Metric(gateway, R"(baton_gateway_tries_total{how="resumed"} )"); };
    const uint64_t seed = TestSeed();
    SCOPED_TRACE(seed);
    std::atomic<int> next{0}, running{kClients};
    std::atomic<bool> enough = false;
    std::vector<std::thread> clients;
    for (int client = 0; client < kClients; ++client) {
      clients.emplace_back([&] {
        while (!HasFatalFailure()) {
          const int answer = next++;
          if (answer >= answers && enough) break;
          FetchOverHttp(gateway.grpc(), expected_[static_cast<size_t>(answer % kKinds)]);
        }
        --running;
      });
    }
    std::mt19937_64 random(seed);
    int kills = 0, cuts = 0;
    while (running > 0) {
      // While others are in the middle of theirs.
      const int more = next + static_cast<int>(random() % 3);
      if (!Await([&] { return running == 0 || next >= more; }, "answers")) break;
      const size_t victim = random() % kRouters;
      if (random() % 20 == 0) {
        routers_[victim]->Signal(kills++ % 2 == 0 ? SIGKILL : SIGTERM);
        routers_[victim]->Wait();
        StartRouter(victim);
      } else if (proxies_[victim]->Cut()) {
        ++cuts;
      }
      enough = kills > 1 && has_resumed() >= resumed;
    }
    for (std::thread& client : clients) client.join();
    printf("%d answers, %.0f resumed; %d connections cut, %d routers killed\n", next - kClients,
           has_resumed(), cuts, kills);
    ExpectChargedOnce(next - kClients);
    fleet_.ExpectNothingHeld();
  }

  // An answer of a client that does not try again.
  void FetchOverHttp(const std::string& gateway, const Expected& expected) {
    const Json body = {{"prompt", expected.request.text()},
                       {"seed", expected.request.sampling().seed()},
                       {"temperature", 1},
                       {"max_tokens", expected.request.stop().max_tokens()},
                       {"stream", true},
                       {"stream_options", {{"include_usage", true}}}};
    const std::string content = body.dump();
    telemetry::HttpPeer peer(gateway);
    ASSERT_TRUE(
        peer.Send(fmt::format("POST /v1/completions HTTP/1.1\r\nHost: h\r\nConnection: close\r\n"
                              "Content-Length: {}\r\n\r\n{}",
                              content.size(), content)));
    const std::string stream = peer.ReadToEnd();
    ASSERT_TRUE(stream.starts_with("HTTP/1.1 200 ")) << stream;
    EXPECT_NE(stream.find("data: [DONE]\n\n"), std::string::npos) << stream;
    std::string text;
    int64_t prompt = -1, completion = -1;
    std::istringstream lines(stream);
    for (std::string line; std::getline(lines, line);) {
      if (!line.starts_with("data: {")) continue;
      const Json piece = Json::parse(line.substr(6));
      for (const Json& choice : piece.value("choices", Json::array())) text += choice.value("text", "");
      if (!piece.contains("usage") || piece["usage"].is_null()) continue;
      prompt = piece["usage"]["prompt_tokens"];
      completion = piece["usage"]["completion_tokens"];
    }
    EXPECT_EQ(text, expected.text);
    EXPECT_EQ(prompt, expected.prompt);
    EXPECT_EQ(completion, static_cast<int64_t>(expected.tokens.size()));
  }

  static double Metric(const Process& process, const std::string& line) {
    const std::string page = HttpGet(process.metrics(), "/metrics");
    const size_t at = page.find(line);
    return at == std::string::npos ? 0 : std::stod(page.substr(at + line.size()));
  }

  // The ledger has the answers once, once the routers have gone.
  void ExpectChargedOnce(int answers) {
    int64_t prompt = 0, completion = 0;
    for (int answer = 0; answer < answers; ++answer) {
      const Expected& expected = expected_[static_cast<size_t>(answer % kKinds)];
      prompt += expected.prompt;
      completion += static_cast<int64_t>(expected.tokens.size());
    }
    // Calls that were cut may be recorded late.
    for (const auto& router : routers_) router->Signal(SIGTERM);
    for (const auto& router : routers_) router->Wait();
    router::billing::LedgerSums sums;
    const auto sheet = (*router::billing::SqliteLedger::OpenToRead(folder_ + "/ledger"))->Read("", "");
    ASSERT_TRUE(sheet.ok()) << sheet.status();
    for (const auto& [name, one] : *sheet) sums.Add(one);
    EXPECT_EQ(sums.requests, answers);
    EXPECT_EQ(sums.failed, 0);
    EXPECT_EQ(sums.tokens.prompt(), prompt);
    EXPECT_EQ(sums.tokens.completion, completion);
  }

  static constexpr int kDecode = 2;
  const std::string folder_ = testing::TempDir() + "/resume_" + std::to_string(getpid());
  Fleet fleet_{{.prefill = 1, .decode = kDecode}};
  std::array<std::unique_ptr<Process>, kRouters> routers_;
  std::array<std::unique_ptr<CutProxy>, kRouters> proxies_;
  std::vector<Expected> expected_;
};

TEST_F(ResumeTest, ClientsGoOnAfterCuts) { Run(150, /*kill=*/false); }

TEST_F(ResumeTest, ClientsOfAGatewaySeeNothingOfCutsAndDeathsOfRouters) { RunBehindAGateway(60, 30); }

TEST_F(ResumeTest, ClientsGoOnAfterCutsAndDeathsOfRouters) { Run(BATON_RESUMED_ANSWERS, /*kill=*/true); }

}  // namespace
}  // namespace baton::e2e
