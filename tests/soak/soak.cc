// baton-soak: random faults on a fleet of real processes, for as many requests as one likes. Clients ask,
// some leave early, some set deadlines that can't be met; meanwhile workers are killed, stopped, let go on
// and restarted. Every answer is compared with the undisturbed one, bit for bit. At the end nothing is held,
// and the router's memory and file descriptors are what they were after the first tenth.
#include <gtest/gtest.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <map>
#include <mutex>
#include <random>
#include <thread>

#include "common/rpc/status.h"
#include "tests/e2e/fleet.h"
#include "tests/patience.h"
#include "tests/process_status.h"

namespace baton::e2e {
namespace {

struct Options {
  int requests = 2000;
  int clients = 4;
  uint32_t seed = 1;
};

struct Counts {
  std::atomic<int> asked = 0, answered = 0, left = 0, late = 0, lost = 0, wrong = 0;
  std::atomic<int> migrations = 0, failovers = 0, faults = 0;
};

constexpr int kPrompts = 8;

v1::GenerateRequest Request(int which) {
  std::vector<int32_t> prompt;
  for (int i = 0; i < 60 + 40 * which; ++i) prompt.push_back(20 + (i * 31 + which * 7) % 1990);
  v1::GenerateRequest request = TokenRequest(prompt, 30 + 20 * which);
  if (which % 2 == 1) {
    request.mutable_sampling()->set_temperature(0.8f);
    request.mutable_sampling()->set_top_p(0.9f);
    request.mutable_sampling()->set_seed(which);
    request.mutable_sampling()->set_presence_penalty(0.4f);
  }
  return request;
}

// One client: asks until all requests are asked.
void Ask(Fleet& fleet, const Options& options, int client, const std::vector<Answer>& expected,
         Counts& counts) {
  std::mt19937 random(options.seed * 1000 + client);
  while (counts.asked.fetch_add(1) < options.requests) {
    const int which = static_cast<int>(random() % kPrompts);
    const uint32_t kind = random() % 10;
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + (kind == 0
                                                                 ? std::chrono::milliseconds(random() % 60)
                                                                 : Scaled(std::chrono::seconds(120))));
    const size_t leaves_after = kind == 1 ? random() % 20 : SIZE_MAX;
    const auto reader = fleet.stub().Generate(&context, Request(which));
    std::vector<uint32_t> digests;
    v1::Finished finished;
    for (v1::GenerateResponse response; reader->Read(&response);) {
      if (response.has_finished()) finished = response.finished();
      const auto& more = response.delta().logits_digests();
      digests.insert(digests.end(), more.begin(), more.end());
      if (digests.size() >= leaves_after) context.TryCancel();
    }
    const absl::Status status = rpc::FromGrpc(reader->Finish());
    const std::vector<uint32_t>& right = expected[which].digests;
    const bool prefix =
        digests.size() <= right.size() && std::equal(digests.begin(), digests.end(), right.begin());
    const bool whole = digests.size() == right.size() && finished.usage().completion_tokens() == right.size();
    // A client that cancels, or whose deadline passes, after everything has come gets OK, and gRPC drops what
    // was not read yet. Such an answer has no end.
    const bool dropped = kind <= 1 && !finished.has_usage();
    if (!prefix || (status.ok() && !whole && !dropped)) {
      ++counts.wrong;
      std::fprintf(stderr, "wrong: %zu of %zu tokens, usage %u, %s\n", digests.size(), right.size(),
                   finished.usage().completion_tokens(), prefix ? "all right" : "not the right ones");
    }
    if (status.ok() && whole) {
      ++counts.answered;
      counts.migrations += static_cast<int>(finished.relay().migrations());
      counts.failovers += static_cast<int>(finished.relay().failovers());
    } else if (kind == 1 && (status.ok() || absl::IsCancelled(status))) {
      ++counts.left;
    } else if (kind == 0 &&
               (status.ok() || absl::IsDeadlineExceeded(status) || absl::IsResourceExhausted(status))) {
      ++counts.late;
    } else if (!status.ok()) {
      ++counts.lost;
      std::fprintf(stderr, "lost: %s\n", status.ToString().c_str());
    }
  }
}

// One fault at a time, and the fleet whole again before the next: what is to be survived is a fault, not the
// end of a whole pool.
void Disturb(Fleet& fleet, std::mt19937& random, std::map<std::string, int>& kinds) {
  const int worker = static_cast<int>(random() % 2);
  const bool decode = random() % 2 == 0;
  Process& process = decode ? fleet.decode(worker) : fleet.prefill(worker);
  const std::string side = decode ? "decode" : "prefill";
  switch (random() % 3) {
    case 0:
      ++kinds[side + " SIGKILL"];
      process.Signal(SIGKILL);
      break;
    case 1:
      ++kinds[side + " SIGTERM"];
      break;  // what a restart does anyway
    default: {
      ++kinds[side + " SIGSTOP"];
      process.Signal(SIGSTOP);
      // Longer than keepalive's patience, or shorter.
      std::this_thread::sleep_for(std::chrono::milliseconds(random() % 4000));
      process.Signal(SIGCONT);
      fleet.AwaitWorkers(2, 2);
      return;
    }
  }
  if (decode) {
    fleet.RestartDecode(worker);
  } else {
    fleet.RestartPrefill(worker);
  }
  fleet.AwaitWorkers(2, 2);
}

int Soak(const Options& options) {
  std::printf("seed %u, %d requests from %d clients\n", options.seed, options.requests, options.clients);
  const auto begin = std::chrono::steady_clock::now();
  Fleet fleet({.prefill = 2, .decode = 2, .drain_grace = "0.2", .keepalive = ""});  // the product's own
  std::vector<Answer> expected;
  for (int which = 0; which < kPrompts; ++which) {
    expected.push_back(fleet.Generate(Request(which)));
    if (!expected.back().status.ok()) {
      std::fprintf(stderr, "undisturbed: %s\n", expected.back().status.ToString().c_str());
      return 1;
    }
  }
  Counts counts;
  std::vector<std::thread> clients;
  for (int client = 0; client < options.clients; ++client) {
    clients.emplace_back([&, client] { Ask(fleet, options, client, expected, counts); });
  }
  std::mt19937 random(options.seed);
  std::map<std::string, int> kinds;
  int64_t early_bytes = 0, early_descriptors = 0;
  while (counts.asked < options.requests) {
    Disturb(fleet, random, kinds);
    ++counts.faults;
    if (early_bytes == 0 && counts.asked > options.requests / 10) {
      early_bytes = StatusOf(fleet.router().pid(), "VmRSS");
      early_descriptors = DescriptorsOf(fleet.router().pid());
    }
  }
  for (std::thread& client : clients) client.join();
  fleet.ExpectNothingHeld();
  const int64_t late_bytes = StatusOf(fleet.router().pid(), "VmRSS");
  const int64_t late_descriptors = DescriptorsOf(fleet.router().pid());
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  std::printf("%d answered, %d cancelled by their client, %d past their deadline, %d lost, %d WRONG\n",
              counts.answered.load(), counts.left.load(), counts.late.load(), counts.lost.load(),
              counts.wrong.load());
  std::printf("%d faults in %.0f s, %d migrations, %d failovers\n", counts.faults.load(), seconds,
              counts.migrations.load(), counts.failovers.load());
  for (const auto& [kind, count] : kinds) std::printf("  %3d %s\n", count, kind.c_str());
  std::printf("router: %ld MiB and %ld descriptors early, %ld MiB and %ld at the end\n",
              long{early_bytes >> 20}, long{early_descriptors}, long{late_bytes >> 20},
              long{late_descriptors});
  const bool flat = late_bytes < early_bytes + (16 << 20) && late_descriptors < early_descriptors + 16;
  if (!flat) std::printf("NOT FLAT\n");
  return counts.wrong == 0 && counts.lost == 0 && flat && !::testing::Test::HasFailure() ? 0 : 1;
}

}  // namespace
}  // namespace baton::e2e

int main(int argc, char** argv) {
  CLI::App app("Random faults on a fleet of real processes");
  baton::e2e::Options options;
  app.add_option("--requests", options.requests, "How many")->capture_default_str();
  app.add_option("--clients", options.clients, "How many ask at once")->capture_default_str();
  app.add_option("--seed", options.seed, "Of faults and clients")->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  return baton::e2e::Soak(options);
}
