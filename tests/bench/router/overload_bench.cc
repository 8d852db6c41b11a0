// The router with more requests than its workers can take: goodput at multiples of the capacity, how soon the
// rest is refused, and memory. Real processes and real gRPC on loopback: this one sends at a Poisson rate,
// whatever comes back; one more hosts workers; the third is baton-router. Or any running server (--server).
//
// The workers compute nothing but keep the time of ones that do: each prefills one prompt after the other,
// at so many seconds per token, then sends tokens at a steady pace. So the capacity is known, and whoever
// waits in a worker's queue waits as long as behind real ones.
#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "cli/client/inference_client.h"
#include "cli/serve/child.h"
#include "common/base/build_info.h"
#include "common/base/check.h"
#include "common/base/clock.h"
#include "lab/bench/load_client.h"
#include "lab/bench/recorder.h"
#include "lab/bench/runner.h"
#include "lab/bench/workload.h"
#include "tests/bench/router/measured_process.h"
#include "tests/fakes/fake_worker.h"

namespace baton {
namespace {

using bench::AwaitGrpcAddress;
using bench::AwaitLine;
using bench::MeasuredProcess;
using namespace lab::bench;  // NOLINT: the load test's parts

struct Model {
  int workers = 4;
  double seconds_per_token = 80e-6;
  int prompt_tokens = 512;  // in the mean; from half of it to half as much again
  int output_tokens = 16;
  double pace = 0.01;

  double Capacity() const { return workers / (seconds_per_token * prompt_tokens); }
};

// One worker's time: when it will be done with the prompts that it has taken.
class Machine {
 public:
  explicit Machine(const Model& model) : model_(model) {}

  fakes::Script Serve(const fleet::v1::DecodeRequest& request) {
    const absl::Time now = absl::Now();
    const absl::Duration prefill = absl::Seconds(model_.seconds_per_token * request.token_ids_size());
    absl::Time begins, done;
    {
      std::lock_guard lock(mutex_);
      begins = std::max(now, free_at_);
      done = free_at_ = begins + prefill;
    }
    fakes::Script script = {fakes::Step::Accept(), fakes::Step::Until(done)};
    const int tokens = static_cast<int>(request.stop().max_tokens());
    for (int i = 0; i < tokens; ++i) {
      if (i > 0) script.push_back(fakes::Step::Until(done + i * absl::Seconds(model_.pace)));
      script.push_back(fakes::Step::Token(5, "a"));
    }
    script.push_back(fakes::Step::Finish());
    v1::Timing* timing = script.back().event.mutable_finished()->mutable_timing();
    timing->set_prefill_queue_seconds(absl::ToDoubleSeconds(begins - now));
    timing->set_prefill_seconds(absl::ToDoubleSeconds(prefill));
    return script;
  }

 private:
  const Model model_;
  std::mutex mutex_;
  absl::Time free_at_ = absl::InfinitePast();
};

// In the process of the workers: hosts them until standard input ends.
int HostWorkers(const Model& model) {
  std::vector<std::unique_ptr<Machine>> machines;
  std::vector<std::unique_ptr<fakes::FakeWorker>> workers;
  std::string addresses;
  for (int i = 0; i < model.workers; ++i) {
    auto worker = fakes::FakeWorker::Start({.id = fmt::format("fake-{}", i),
                                            .incarnation = static_cast<uint64_t>(i + 1),
                                            .total_blocks = 1 << 20,
                                            .block_hash_domain = "fake",
                                            .remember = false});
    BATON_CHECK(worker.ok()) << worker.status();
    machines.push_back(std::make_unique<Machine>(model));
    (*worker)->SetScript([machine = machines.back().get()](const fleet::v1::DecodeRequest& request) {
      return machine->Serve(request);
    });
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

struct Flags {
  Model model;
  std::string server;
  int pid = 0;
  std::vector<double> loads = {0.5, 1, 2, 5, 10};
  double capacity = 0;
  double seconds = 10;
  double slo_ttft = 2, slo_tpot = 0.05;
  std::vector<std::string> router_flags;
  uint64_t seed = 1;
};

struct Step {
  double goodput = 0;
  double peak_mib = 0;
};

Step RunStep(const Flags& flags, double load, const std::string& address, const v1::ModelInfo& model,
             MeasuredProcess router) {
  const MonotonicClock clock;
  const double rate = load * flags.capacity;
  RunSettings settings;
  settings.model = model.name();
  settings.seed = flags.seed;
  settings.context_tokens = model.context_tokens();
  settings.vocabulary_tokens = static_cast<int32_t>(model.vocabulary_tokens());
  settings.duration = absl::Seconds(flags.seconds);
  settings.drain = absl::Seconds(300);
  SyntheticSettings synthetic;
  // Other prompts in each step: no worker holds a prefix.
  synthetic.seed = flags.seed + static_cast<uint64_t>(load * 1000);
  const auto prompts = Distribution::Parse(
      fmt::format("uniform:{}:{}", flags.model.prompt_tokens / 2, flags.model.prompt_tokens * 3 / 2));
  BATON_CHECK(prompts.ok()) << prompts.status();
  synthetic.prompt = *prompts;
  synthetic.output = Distribution::Fixed(flags.model.output_tokens);
  synthetic.rate = rate;
  Recorder recorder({.slo = {.ttft = absl::Seconds(flags.slo_ttft), .tpot = absl::Seconds(flags.slo_tpot)}});
  LoadClient client(address, 4, clock);
  const auto workload = MakeSynthetic(synthetic);
  const double cpu = router.pid > 0 ? router.CpuSeconds() : 0;
  RunLoad(settings, *workload, client, clock, recorder, [](const RunState&) {});
  const Summary& summary = recorder.summary();
  const int64_t all = summary.succeeded + summary.failed;
  Step step;
  // Over the time until the last answer, so that a backlog does not count as speed.
  const double seconds = std::max(flags.seconds, summary.seconds);
  step.goodput = static_cast<double>(summary.good.value_or(0)) / seconds;
  step.peak_mib = router.pid > 0 ? router.PeakRssMiB() : 0;
  fmt::print("{:>5.1f}x {:>8.1f}/s {:>8.1f}/s {:>8.1f}/s {:>8.2f} s {:>7} {:>9.1f} ms {:>9.1f} ms {:>7}",
             load, static_cast<double>(all) / flags.seconds, static_cast<double>(summary.succeeded) / seconds,
             step.goodput, summary.ttft.Percentile(0.99), summary.refused.count(),
             summary.refused.Percentile(0.5) * 1e3, summary.refused.Percentile(0.99) * 1e3,
             summary.failed - summary.refused_with_delay);
  if (router.pid > 0) {
    fmt::print(" {:>7.0f} MiB {:>6.3f} ms", step.peak_mib,
               (router.CpuSeconds() - cpu) / static_cast<double>(std::max<int64_t>(1, all)) * 1e3);
  }
  fmt::print("\n");
  for (const auto& [code, error] : summary.errors) {
    fmt::print("       {} x {}: {}\n", error.count, code, error.first_message);
  }
  std::fflush(stdout);
  return step;
}

int Run(Flags flags, const std::string& self) {
  std::optional<cli::Child> hosts, router;
  std::string address = flags.server;
  MeasuredProcess process{.pid = flags.pid};
  if (address.empty()) {
    const auto spawn = [](const std::string& program, const std::vector<std::string>& arguments) {
      auto child = cli::Child::Spawn(program, arguments);
      BATON_CHECK(child.ok()) << child.status();
      return *std::move(child);
    };
    hosts.emplace(spawn(self, {"--host-workers", "--workers", std::to_string(flags.model.workers),
                               "--token-seconds", fmt::format("{}", flags.model.seconds_per_token), "--pace",
                               fmt::format("{}", flags.model.pace)}));
    std::vector<std::string> arguments = {"--model",
                                          BATON_SOURCE_DIR "/models/baton-tiny",
                                          "--decode",
                                          AwaitLine(*hosts, "workers ").substr(8),
                                          "--listen",
                                          "127.0.0.1:0",
                                          "--metrics",
                                          "127.0.0.1:0",
                                          "--log-level",
                                          "error",
                                          "--exit-with-parent",
                                          "--slo-ttft",
                                          fmt::format("{}", flags.slo_ttft)};
    arguments.insert(arguments.end(), flags.router_flags.begin(), flags.router_flags.end());
    router.emplace(spawn(BATON_BINARY_DIR "/bin/baton-router", arguments));
    process.pid = router->pid();
    address = AwaitGrpcAddress(*router);
    flags.capacity = flags.model.Capacity();
  }
  BATON_CHECK(flags.capacity > 0) << "--server needs --capacity";
  auto client = cli::InferenceClient::Connect(address, absl::Seconds(30));
  BATON_CHECK(client.ok()) << client.status();
  const auto models = (*client)->ListModels();
  BATON_CHECK(models.ok() && models->models_size() > 0) << models.status();

  fmt::print("commit {}; capacity {:.1f} requests/s; {} s a step; SLO: TTFT {} s, TPOT {} s; seed {}\n",
             GetBuildInfo().commit, flags.capacity, flags.seconds, flags.slo_ttft, flags.slo_tpot,
             flags.seed);
  fmt::print("{:>6} {:>10} {:>10} {:>10} {:>10} {:>7} {:>12} {:>12} {:>7} {:>11} {:>9}\n", "load", "offered",
             "served", "goodput", "TTFT p99", "refused", "told p50", "told p99", "others", "peak RSS", "CPU");
  double most = 0, at_most_load = 0;
  for (const double load : flags.loads) {
    const Step step = RunStep(flags, load, address, models->models(0), process);
    most = std::max(most, step.goodput);
    at_most_load = step.goodput;
  }
  fmt::print("goodput at {:g}x is {:.1f}% of the most\n", flags.loads.back(), 100 * at_most_load / most);
  return 0;
}

}  // namespace
}  // namespace baton

int main(int argc, char** argv) {
  baton::Flags flags;
  bool host = false;
  CLI::App app(
      "Measures goodput, refusals and memory of a router under more load than its workers can take.");
  app.add_option("--workers", flags.model.workers, "Workers that keep a real one's time")
      ->capture_default_str();
  app.add_option("--token-seconds", flags.model.seconds_per_token, "Prefill of a token")
      ->capture_default_str();
  app.add_option("--pace", flags.model.pace, "Seconds between tokens of an answer")->capture_default_str();
  app.add_option("--prompt-tokens", flags.model.prompt_tokens, "In the mean")->capture_default_str();
  app.add_option("--output-tokens", flags.model.output_tokens, "Of each answer")->capture_default_str();
  app.add_option("--loads", flags.loads, "Multiples of the capacity")->delimiter(',')->capture_default_str();
  app.add_option("--seconds", flags.seconds, "Of each step")->capture_default_str();
  app.add_option("--slo-ttft", flags.slo_ttft, "Of goodput, seconds")->capture_default_str();
  app.add_option("--slo-tpot", flags.slo_tpot, "Of goodput, seconds")->capture_default_str();
  app.add_option("--router-flag", flags.router_flags, "Further words of baton-router's command line");
  app.add_option("--server", flags.server, "A running server instead, host:port");
  app.add_option("--capacity", flags.capacity, "Its requests per second");
  app.add_option("--pid", flags.pid, "Its router's process, to measure");
  app.add_option("--seed", flags.seed, "Of prompts and arrivals")->capture_default_str();
  app.add_flag("--host-workers", host)->group("");
  CLI11_PARSE(app, argc, argv);
  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
  return host ? baton::HostWorkers(flags.model) : baton::Run(flags, "/proc/self/exe");
}
