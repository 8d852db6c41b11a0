// Costs of the router's process: latency added, CPU per request, memory. Real gRPC on loopback: this process
// is the client, one more hosts the fake workers (which answer at once with two tokens), the third is
// baton-router.
//
// "Added" is the time from the call to its end through the router, less the median of the same call made to a
// fake worker directly. CPU is the router's own, user and system, from /proc. Prompts are random: nobody
// holds a prefix. With --held-blocks every worker says that it holds the beginning of every prompt and that
// peers can fetch it, so that each placement asks the index who holds it for certain.
//
// With --billing it measures something else: the CPU of a router with prices, ledger and audit log whose
// requests have a session and a cache mark, against that of a router without any of it, in alternating
// rounds.
#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "baton/fleet/v1/decode.grpc.pb.h"
#include "baton/v1/inference.grpc.pb.h"
#include "cli/serve/child.h"
#include "common/base/build_info.h"
#include "common/base/check.h"
#include "common/base/ids.h"
#include "common/rpc/channel.h"
#include "protocol/block_hash.h"
#include "tests/bench/router/measured_process.h"
#include "tests/fakes/fake_worker.h"

namespace baton {
namespace {

using bench::AwaitGrpcAddress;
using bench::AwaitLine;
using bench::MeasuredProcess;
using Clock = std::chrono::steady_clock;

constexpr char kModel[] = BATON_SOURCE_DIR "/models/baton-tiny";
constexpr int kVocabulary = 2048;
// Both ends share this machine's cores: slowness is not death.
constexpr rpc::Keepalive kPatient{.interval = absl::Seconds(60), .timeout = absl::Seconds(60)};

double Since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// The beginning of all prompts.
std::vector<TokenId> SharedPrefix(int blocks) {
  std::mt19937 random(7);
  std::vector<TokenId> tokens;
  for (int i = 0; i < blocks * kBlockTokens; ++i) {
    tokens.push_back(TokenId(static_cast<int32_t>(3 + random() % (kVocabulary - 3))));
  }
  return tokens;
}

// In the process of the workers: hosts them until standard input ends.
int HostWorkers(int count, int held_blocks) {
  // As the router hashes for clients without a key.
  const kv::BlockHash root = kv::RootHash("fake", kv::TenantSalt("baton/tenant/default"));
  std::string stored;
  for (const kv::BlockHash& block : kv::HashChain(root, SharedPrefix(held_blocks))) stored += block.bytes();
  std::vector<std::unique_ptr<fakes::FakeWorker>> workers;
  std::string addresses;
  for (int i = 0; i < count; ++i) {
    auto worker = fakes::FakeWorker::Start({.id = fmt::format("fake-{}", i),
                                            .incarnation = static_cast<uint64_t>(i + 1),
                                            .total_blocks = 1 << 20,
                                            .block_hash_domain = "fake",
                                            .peer_fetch = held_blocks > 0,
                                            .stored = stored,
                                            .remember = false});
    BATON_CHECK(worker.ok()) << worker.status();
    addresses += (addresses.empty() ? "" : ",") + (*worker)->address();
    workers.push_back(*std::move(worker));
  }
  fmt::print("workers {}\n", addresses);
  std::fflush(stdout);
  char byte;
  while (read(STDIN_FILENO, &byte, 1) > 0) {
  }
  return 0;
}

// The shipped model's folder but for a context that long prompts fit in; the router reads no weights.
std::string LongModel() {
  static std::atomic<int> made = 0;
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / fmt::format("router_bench_model_{}_{}", getpid(), ++made);
  std::filesystem::create_directories(folder);
  for (const char* name :
       {"tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "generation_config.json"}) {
    std::filesystem::copy_file(std::filesystem::path(kModel) / name, folder / name,
                               std::filesystem::copy_options::overwrite_existing);
  }
  std::ifstream in(std::filesystem::path(kModel) / "config.json");
  nlohmann::json config = nlohmann::json::parse(in);
  config["max_position_embeddings"] = 262'144;
  std::ofstream(folder / "config.json") << config.dump();
  return folder.string();
}

v1::GenerateRequest IdsRequest(std::mt19937& random, int tokens, const std::vector<TokenId>& prefix) {
  v1::GenerateRequest request;
  auto* ids = request.mutable_token_ids()->mutable_ids();
  ids->Reserve(tokens);
  for (const TokenId token : std::span(prefix).first(std::min<size_t>(prefix.size(), tokens - 1))) {
    ids->Add(token.value());
  }
  while (ids->size() < tokens) ids->Add(static_cast<int32_t>(3 + random() % (kVocabulary - 3)));
  request.mutable_stop()->set_max_tokens(2);
  return request;
}

std::string RandomText(std::mt19937& random, int words) {
  static const char* const kWords[] = {"the ",  "light ", "of ",    "a ",    "relay ", "runs ",
                                       "over ", "water ", "house ", "near ", "green ", "and ",
                                       "old ",  "river ", "small ", "day "};
  std::string text;
  for (int i = 0; i < words; ++i) text += kWords[random() % std::size(kWords)];
  return text;
}

double Call(v1::Inference::Stub& stub, const v1::GenerateRequest& request) {
  grpc::ClientContext context;
  const auto start = Clock::now();
  const auto stream = stub.Generate(&context, request);
  v1::GenerateResponse response;
  while (stream->Read(&response)) {
  }
  const grpc::Status status = stream->Finish();
  BATON_CHECK(status.ok()) << status.error_message();
  return Since(start);
}

double CallDirectly(fleet::v1::Decode::Stub& stub, const fleet::v1::DecodeRequest& request) {
  grpc::ClientContext context;
  const auto start = Clock::now();
  const auto stream = stub.Generate(&context, request);
  fleet::v1::DecodeEvent event;
  while (stream->Read(&event)) {
  }
  BATON_CHECK(stream->Finish().ok());
  return Since(start);
}

double At(std::vector<double> values, double share) {
  std::sort(values.begin(), values.end());
  return values[std::min(values.size() - 1, static_cast<size_t>(static_cast<double>(values.size()) * share))];
}

class Bench {
 public:
  Bench(int workers, int held_blocks, const std::string& self, const std::string& router,
        const std::string& policy, const std::vector<std::string>& more = {})
      : model_(LongModel()),
        prefix_(SharedPrefix(held_blocks)),
        hosts_(Spawn(self, {"--host-workers", std::to_string(workers), "--held-blocks",
                            std::to_string(held_blocks)})) {
    const std::string addresses = AwaitLine(hosts_, "workers ").substr(8);
    std::vector<std::string> flags = {"--model",           model_,        "--decode",    addresses,
                                      "--policy",          policy,        "--listen",    "127.0.0.1:0",
                                      "--metrics",         "127.0.0.1:0", "--log-level", "error",
                                      "--exit-with-parent"};
    flags.insert(flags.end(), more.begin(), more.end());
    router_.emplace(Spawn(router, flags));
    process_.pid = router_->pid();
    address_ = AwaitGrpcAddress(*router_);
    stub_ = NewStub();
    direct_ =
        fleet::v1::Decode::NewStub(rpc::MakeChannel(addresses.substr(0, addresses.find(',')), kPatient));
    AwaitWorkers(workers);
  }
  ~Bench() {
    std::error_code ignored;
    std::filesystem::remove_all(model_, ignored);
  }

  // One after the other.
  void Latency(const char* what, int tokens, int requests) {
    fleet::v1::DecodeRequest direct;
    std::vector<double> directly, through;
    for (int i = 0; i < requests; ++i) {
      const v1::GenerateRequest request = IdsRequest(random_, tokens, prefix_);
      *direct.mutable_token_ids() = request.token_ids().ids();
      directly.push_back(CallDirectly(*direct_, direct));
    }
    for (int i = 0; i < requests / 10 + 1; ++i) Call(*stub_, IdsRequest(random_, tokens, prefix_));
    const double cpu = process_.CpuSeconds();
    for (int i = 0; i < requests; ++i) through.push_back(Call(*stub_, IdsRequest(random_, tokens, prefix_)));
    Show(what, requests, through, At(directly, 0.5), process_.CpuSeconds() - cpu);
  }

  void Text(const char* what, int words, int requests) {
    std::vector<double> through;
    int64_t tokens = 0;
    const double cpu = process_.CpuSeconds();
    for (int i = 0; i < requests; ++i) {
      v1::GenerateRequest request;
      request.set_text(RandomText(random_, words));
      request.mutable_stop()->set_max_tokens(2);
      through.push_back(Call(*stub_, request));
    }
    const double used = process_.CpuSeconds() - cpu;
    grpc::ClientContext context;
    v1::TokenizeRequest tokenize;
    tokenize.mutable_generate()->set_text(RandomText(random_, words));
    v1::TokenizeResponse response;
    if (stub_->Tokenize(&context, tokenize, &response).ok()) tokens = response.token_ids_size();
    Show(fmt::format("{} ({} tokens)", what, tokens), requests, through, 0, used);
  }

  // Seconds of the router's CPU for each of so many requests. `billed`: with a session and a mark.
  double CpuEach(int clients, int tokens, int64_t requests, bool billed) {
    std::atomic<int64_t> left = requests;
    const double cpu = process_.CpuSeconds();
    {
      std::vector<std::jthread> threads;
      for (int client = 0; client < clients; ++client) {
        threads.emplace_back([&, client] {
          std::mt19937 random(client + 1);
          const auto stub = NewStub();
          while (left.fetch_sub(1) > 0) {
            v1::GenerateRequest request = IdsRequest(random, tokens, prefix_);
            if (billed) {
              request.mutable_options()->set_session_id(fmt::format("s-{}", client));
              request.mutable_options()->mutable_cache()->set_ttl(v1::CACHE_TTL_1H);
            }
            Call(*stub, request);
          }
        });
      }
    }
    return (process_.CpuSeconds() - cpu) / static_cast<double>(requests);
  }

  void Saturation(int clients, int tokens, int64_t requests) {
    std::atomic<int64_t> left = requests;
    std::vector<std::vector<double>> times(clients);
    const double cpu = process_.CpuSeconds(), rss = process_.RssMiB();
    std::vector<double> resident;
    const auto start = Clock::now();
    {
      std::vector<std::jthread> threads;
      for (int client = 0; client < clients; ++client) {
        threads.emplace_back([&, client] {
          std::mt19937 random(client + 1);
          const auto stub = NewStub();
          for (int64_t at; (at = left.fetch_sub(1)) > 0;) {
            times[client].push_back(Call(*stub, IdsRequest(random, tokens, prefix_)));
            if (at % (requests / 4) == 0) fmt::print("    {} left: RSS {:.0f} MiB\n", at, process_.RssMiB());
          }
        });
      }
    }
    const double wall = Since(start);
    std::vector<double> all;
    for (const auto& some : times) all.insert(all.end(), some.begin(), some.end());
    fmt::print(
        "  {} clients, {} tokens, {} requests: {:.0f} requests/s, p50 {:.2f} ms, p99 {:.2f} ms, router "
        "{:.1f} us of CPU each, RSS {:.0f} -> {:.0f} MiB\n",
        clients, tokens, requests, static_cast<double>(requests) / wall, At(all, 0.5) * 1e3,
        At(all, 0.99) * 1e3, (process_.CpuSeconds() - cpu) / static_cast<double>(requests) * 1e6, rss,
        process_.RssMiB());
  }

 private:
  static cli::Child Spawn(const std::string& program, const std::vector<std::string>& arguments) {
    auto child = cli::Child::Spawn(program, arguments);
    BATON_CHECK(child.ok()) << child.status();
    return *std::move(child);
  }

  std::unique_ptr<v1::Inference::Stub> NewStub() const {
    return v1::Inference::NewStub(rpc::MakeChannel(address_, kPatient));
  }

  void AwaitWorkers(int workers) {
    const auto start = Clock::now();
    while (Since(start) < 300) {
      grpc::ClientContext context;
      v1::ListModelsResponse models;
      const grpc::Status status = stub_->ListModels(&context, {}, &models);
      BATON_CHECK(status.ok()) << status.error_message();
      if (static_cast<int>(models.models(0).ready_decode_workers()) == workers) {
        fmt::print("{} workers known after {:.2f} s; router's RSS {:.0f} MiB\n", workers, Since(start),
                   process_.RssMiB());
        return;
      }
      std::this_thread::yield();
    }
    BATON_CHECK(false) << "the router does not see all workers";
  }

  static void Show(const std::string& what, int requests, const std::vector<double>& through, double direct,
                   double cpu) {
    fmt::print("  {:<34} {:>6} requests: p50 {:.3f} ms, p99 {:.3f} ms", what, requests,
               At(through, 0.5) * 1e3, At(through, 0.99) * 1e3);
    if (direct > 0) {
      fmt::print("; directly p50 {:.3f} ms; added p50 {:.3f} ms, p99 {:.3f} ms", direct * 1e3,
                 (At(through, 0.5) - direct) * 1e3, (At(through, 0.99) - direct) * 1e3);
    }
    fmt::print("; router {:.3f} ms of CPU each\n", cpu / requests * 1e3);
    std::fflush(stdout);
  }

  const std::string model_;
  const std::vector<TokenId> prefix_;
  cli::Child hosts_;
  std::optional<cli::Child> router_;
  std::string address_;
  MeasuredProcess process_;
  std::unique_ptr<v1::Inference::Stub> stub_;
  std::unique_ptr<fleet::v1::Decode::Stub> direct_;
  std::mt19937 random_{1};
};

// A router that bills against one that does not.
void CompareBilling(int workers, const std::string& router, const std::string& policy, int clients,
                    int64_t requests) {
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / fmt::format("router_bench_bills_{}", getpid());
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "prices.json")
      << R"({"currency": "EUR", "models": {"m": {"prompt": "3", "cached": "0.3", "written_5m": "3.75",)"
         R"( "written_1h": "6", "completion": "15"}}})";
  const std::vector<std::string> priced = {"--model-name", "m", "--prices", folder / "prices.json"};
  std::vector<std::string> recorded = priced;
  for (const std::string& flag : {std::string("--ledger"), (folder / "ledger.db").string(),
                                  std::string("--audit-log"), (folder / "audit.log").string()}) {
    recorded.push_back(flag);
  }
  {
    Bench plain(workers, 0, "/proc/self/exe", router, policy, {"--model-name", "m"});
    Bench marked(workers, 0, "/proc/self/exe", router, policy, priced);
    Bench billed(workers, 0, "/proc/self/exe", router, policy, recorded);
    constexpr int kRounds = 7;
    constexpr int kTokens = 1000;
    struct Arm {
      const char* name;
      Bench* bench;
      bool marks;
      std::vector<double> seconds = {}, ratios = {};
    };
    Arm arms[] = {{"without", &plain, false},
                  {"marks, sessions and prices", &marked, true},
                  {"and a ledger and an audit log", &billed, true}};
    for (int round = 0; round <= kRounds; ++round) {
      for (Arm& arm : arms) {
        const double each = arm.bench->CpuEach(clients, kTokens, requests / kRounds, arm.marks);
        if (round == 0) continue;  // warms all
        arm.seconds.push_back(each);
        arm.ratios.push_back(each / arms[0].seconds.back());
      }
    }
    for (const Arm& arm : arms) {
      fmt::print(
          "  {} clients, {} tokens, {}: router {:.1f} us of CPU each, {:.3f} times ({:.3f} to {:.3f})\n",
          clients, kTokens, arm.name, At(arm.seconds, 0.5) * 1e6, At(arm.ratios, 0.5), At(arm.ratios, 0),
          At(arm.ratios, 1));
    }
  }
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace baton

int main(int argc, char** argv) {
  int workers = 10, held_blocks = 0, host = 0, clients = 16;
  int64_t requests = 20'000;
  double share = 1;
  bool billing = false;
  std::string policy = "prefix_affinity", router = BATON_BINARY_DIR "/bin/baton-router";
  CLI::App app("Measures the router's process between real gRPC clients and fake workers.");
  app.add_option("--workers", workers, "Fake decode workers")->capture_default_str();
  app.add_option("--held-blocks", held_blocks,
                 "Leading blocks of every prompt that every worker holds and peers can fetch")
      ->capture_default_str();
  app.add_option("--clients", clients, "Clients at saturation")->capture_default_str();
  app.add_option("--requests", requests, "Requests at saturation")->capture_default_str();
  app.add_option("--share", share, "Of the requests of the latency measurements")->capture_default_str();
  app.add_option("--policy", policy, "Placement")->capture_default_str();
  app.add_option("--router", router, "The router to measure, to compare two builds of it")
      ->capture_default_str();
  app.add_flag("--billing", billing, "Compare a router that bills with one that does not, and nothing else");
  app.add_option("--host-workers", host)->group("");
  CLI11_PARSE(app, argc, argv);
  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
  if (host > 0) return baton::HostWorkers(host, held_blocks);

  fmt::print("commit {}, policy {}, {} cores\n", baton::GetBuildInfo().commit, policy,
             std::thread::hardware_concurrency());
  if (billing) {
    baton::CompareBilling(workers, router, policy, clients, requests);
    return 0;
  }
  baton::Bench bench(workers, held_blocks, "/proc/self/exe", router, policy);
  const auto times = [share](int count) { return std::max(1, static_cast<int>(count * share)); };
  bench.Latency("ids, 200 tokens", 200, times(2000));
  bench.Latency("ids, 1,000 tokens", 1000, times(2000));
  bench.Latency("ids, 100,000 tokens", 100'000, times(100));
  bench.Text("text", 50'000, times(20));
  bench.Saturation(clients, 200, requests);
  return 0;
}
