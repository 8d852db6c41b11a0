// `baton serve`: router, prefill and decode workers on this machine, each a process of its own, watched over.
#include <fmt/format.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_join.h"
#include "cli/commands.h"
#include "cli/exit_code.h"
#include "cli/serve/announcement.h"
#include "cli/serve/device_shares.h"
#include "cli/serve/fleet_key.h"
#include "cli/serve/health_watch.h"
#include "cli/serve/log_sink.h"
#include "cli/serve/observability.h"
#include "cli/serve/plan.h"
#include "cli/serve/preflight.h"
#include "cli/serve/service_health.h"
#include "cli/serve/supervisor.h"
#include "cli/serve/traffic_watch.h"
#include "cli/show/live_line.h"
#include "cli/show/print.h"
#include "cli/show/quantity.h"
#include "common/base/check.h"
#include "common/base/status.h"
#include "common/command_line/option_types.h"
#include "common/device/core_table.h"
#include "common/device/thread_pool.h"
#include "common/model/config/model_path.h"
#include "common/rpc/security.h"
#include "common/rpc/security_flags.h"
#include "common/worker/flags.h"

namespace baton::cli {
namespace {

constexpr char kServeExamples[] = R"(
Examples:
  baton serve --model models/small
  baton serve --model /srv/llama-3.2-1b --prefill 2 --decode 2 --kv-memory 2GiB
  baton serve --model models/small --log-dir /tmp/baton
      a log file per process in place of prefixed lines on standard error
  baton serve --model models/small --listen 127.0.0.1:0 --announce addresses.json
      for scripts: a free port, and a file that says which
  baton serve --model /srv/llama-3.1-8b --backend cuda --link nccl --prefill-devices 0-1 --decode-devices 2-7
      one node with 8 GPUs: two prefill and six decode workers, and KV over NVLink
  baton serve --model /srv/llama-3.1-8b --backend cuda --no-router --worker-listen 0.0.0.0:8470 ...
      its workers alone, for routers elsewhere: ports 8470, 8471 and so on, prefill workers first

Each role is a process. One that dies is started again on the same address; one that keeps dying is tried ever more
slowly, and the service ends when that is the router or the last decode worker. Workers believe these processes alone:
without --fleet-key-file they get a key for this run.
Ctrl-C (or SIGTERM) ends everything in order; a second one at once. On a terminal the lowest line shows the traffic of the
last seconds: requests/s, mean TTFT, tokens/s, and how much of the prompts was cached.)";

struct ServeFlags {
  ServePlan plan;
  // Only to declare what workers take: each gets what was given, word for word.
  worker::Options worker;
  std::vector<const CLI::Option*> worker_options;
  std::vector<int> prefill_devices, decode_devices;
  const CLI::Option* prefill_count = nullptr;
  const CLI::Option* decode_count = nullptr;
  bool no_router = false;
  std::string health;
  std::string kv_memory;
  std::string log_folder;
  std::string announce;
  std::string observability;
  bool json = false;
  bool exit_with_parent = false;
  std::string start_timeout = "5m";
  std::string stop_grace = "15s";
};

// What was given of the workers' own flags, to be given again.
std::vector<std::string> Given(const std::vector<const CLI::Option*>& options) {
  std::vector<std::string> arguments;
  for (const CLI::Option* option : options) {
    if (option->count() == 0) continue;
    arguments.push_back(option->get_name());
    if (option->get_type_size() != 0) arguments.push_back(absl::StrJoin(option->results(), ","));
  }
  return arguments;
}

// Counts follow from the GPUs that are named. INVALID_ARGUMENT says which flags contradict one another.
absl::Status TakeDevices(ServeFlags& flags) {
  ServePlan& plan = flags.plan;
  const int tp = flags.worker.engine.tp;
  const bool named = !flags.prefill_devices.empty() || !flags.decode_devices.empty();
  if (flags.worker.engine.backend != "cuda") {
    if (!named) return absl::OkStatus();
    return absl::InvalidArgumentError(fmt::format(
        "--prefill-devices and --decode-devices name GPUs, and --backend is {}: use --backend cuda",
        flags.worker.engine.backend));
  }
  // One role without GPUs among others with some: only if it has no workers.
  const auto count = [&](const std::vector<int>& devices, const CLI::Option* given, int* workers) {
    if (named && given->count() == 0) *workers = static_cast<int>(devices.size()) / tp;
  };
  count(flags.prefill_devices, flags.prefill_count, &plan.prefill);
  count(flags.decode_devices, flags.decode_count, &plan.decode);
  if (named && plan.decode < 1) {
    return absl::InvalidArgumentError(
        fmt::format("--decode-devices names too few GPUs for a decode worker with --tp {}", tp));
  }
  BATON_ASSIGN_OR_RETURN(DeviceShares shares, ShareDevices(flags.prefill_devices, flags.decode_devices, tp,
                                                           plan.prefill, plan.decode));
  if (shares.shared() && plan.kv_bytes == 0) {
    return absl::InvalidArgumentError(
        "a GPU is named for two workers, and each would take what memory it has left: give --kv-memory");
  }
  if (shares.shared() && flags.worker.link.name == "nccl") {
    return absl::InvalidArgumentError(
        "a GPU is named for two workers, and NCCL takes no two ranks on one GPU: use --link host");
  }
  plan.prefill_devices = std::move(shares.prefill);
  plan.decode_devices = std::move(shares.decode);
  return absl::OkStatus();
}

// What would fail once the workers have loaded the model, or only when everything is ready.
absl::Status Preflight(const ServeFlags& flags) {
  if (flags.plan.router) {
    BATON_RETURN_IF_ERROR(CanListen("--listen", flags.plan.listen));
    BATON_RETURN_IF_ERROR(CanListen("--metrics", flags.plan.metrics));
  }
  if (!flags.health.empty()) BATON_RETURN_IF_ERROR(CanListen("--health", flags.health));
  if (!flags.announce.empty()) BATON_RETURN_IF_ERROR(CanReplaceFile("--announce", flags.announce));
  if (!flags.observability.empty())
    BATON_RETURN_IF_ERROR(CanFillFolder("--observability", flags.observability));
  return absl::OkStatus();
}

std::string Death(const ProcessEvent& event) {
  std::string text = fmt::format("{} (pid {}) died: {}", event.name, event.pid, event.reason);
  if (event.quick_deaths > 0)
    text += fmt::format("; {} quick deaths in a row, the service continues without it", event.quick_deaths);
  if (event.restart_in.has_value()) {
    text += fmt::format("; starting it again in {}", absl::FormatDuration(*event.restart_in));
  }
  return text;
}

// SIGINT and SIGTERM, held back from the process.
int StopSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  BATON_CHECK(pthread_sigmask(SIG_BLOCK, &signals, nullptr) == 0);
  const int fd = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
  BATON_CHECK(fd >= 0);
  return fd;
}

void PrintNext(const ServeFlags& flags, const Announcement::Process& router) {
  const std::string server = router.grpc == "127.0.0.1:8470" ? "" : fmt::format(" --server {}", router.grpc);
  Print(stdout, "\nTry next, in another terminal:\n");
  Print(stdout, "  baton chat{}\n", server);
  Print(stdout, "  baton generate{} --prompt \"Once upon a time\" --max-tokens 40 --show-timing\n", server);
  Print(stdout, "  baton bench{} --concurrency 4 --requests 40\n", server);
  if (!router.metrics.empty()) Print(stdout, "  curl http://{}/metrics\n", router.metrics);
  if (!flags.observability.empty()) {
    Print(stdout, "  prometheus --config.file={}/prometheus.yml\n", flags.observability);
  }
}

void PrintTable(const ServeFlags& flags, const Terminal& terminal, const Announcement& announcement) {
  Print(stdout, "\n{} is served by {} prefill and {} decode worker(s)\n\n",
        Paint(terminal, Style::kBold, flags.plan.model_name), flags.plan.prefill, flags.plan.decode);
  Print(stdout, "  {:<12}{:>8}  {:<22}{}\n", "process", "pid", "gRPC", "metrics");
  for (const Announcement::Process& process : announcement.processes) {
    const std::string metrics =
        process.metrics.empty() ? "" : fmt::format("http://{}/metrics", process.metrics);
    Print(stdout, "  {:<12}{:>8}  {:<22}{}\n", process.name, process.pid, process.grpc, metrics);
    if (!process.http.empty())
      Print(stdout, "  {:<12}{:>8}  OpenAI and Anthropic: http{}://{}/v1, and a page to chat with at /\n", "",
            "", flags.plan.security.cert.empty() ? "" : "s", process.http);
  }
  if (!announcement.has_router) {
    Print(stdout, "\nRouters elsewhere find them: baton-router --prefill ... --decode ...\n");
  } else {
    PrintNext(flags, announcement.Router());
  }
  Print(stdout, "\nCtrl-C ends the service.\n");
  std::fflush(stdout);
  // The table is for people and not an answer: the service continues without it.
  std::clearerr(stdout);
}

int RunServe(ServeFlags flags, const CliContext& context) {
  if (flags.plan.decode < 1) return Misused("--decode must be at least 1: decode workers write the answers");
  for (const std::string& text : {flags.start_timeout, flags.stop_grace}) {
    if (const auto parsed = ParseDuration(text); !parsed.ok())
      return Misused(std::string(parsed.status().message()));
  }
  if (!flags.kv_memory.empty()) {
    const absl::StatusOr<int64_t> bytes = ParseBytes(flags.kv_memory);
    if (!bytes.ok()) return Misused(std::string(bytes.status().message()));
    flags.plan.kv_bytes = *bytes;
  }
  if (const absl::Status misuse = rpc::CheckFlags(flags.plan.security); !misuse.ok()) {
    return Misused(std::string(misuse.message()));
  }
  if (!flags.no_router && !flags.plan.security.cert.empty() && flags.plan.security.ca.empty()) {
    return Misused(
        "--tls-cert needs --tls-ca here: the workers show the certificate too, and the router takes one only "
        "if it "
        "knows who signed it");
  }
  if (flags.plan.listen == flags.plan.metrics && !flags.plan.listen.ends_with(":0")) {
    return Misused("--listen and --metrics are the same address: gRPC and HTTP need a port each");
  }
  if (flags.no_router && !flags.plan.moderation_model.empty())
    return Misused("--moderation-model needs a router: leave --no-router out");
  if (flags.no_router && !flags.plan.http.empty())
    return Misused("--http needs a router: leave --no-router out");
  if (flags.plan.http.empty() && !flags.plan.cors_origins.empty())
    return Misused("--cors-origin is about --http: give that, too");
  if (!flags.plan.kv_disk.empty()) {
    std::error_code error;
    std::filesystem::create_directories(flags.plan.kv_disk, error);
    if (error) return Misused(fmt::format("--kv-disk {}: {}", flags.plan.kv_disk, error.message()));
  }
  flags.plan.worker_flags = Given(flags.worker_options);
  flags.plan.otlp = flags.worker.otlp;
  flags.plan.router = !flags.no_router;
  if (const absl::Status misuse = TakeDevices(flags); !misuse.ok())
    return Misused(std::string(misuse.message()));
  for (const std::string& folder : {flags.plan.model_folder, flags.plan.moderation_model}) {
    if (const absl::Status status = model::CheckModelPath(folder); !folder.empty() && !status.ok()) {
      return Fail(std::string(status.message()));
    }
  }
  if (flags.plan.model_name.empty()) {
    flags.plan.model_name = std::filesystem::weakly_canonical(flags.plan.model_folder).filename().string();
  }
  const int cores = std::min(device::UsableCores(), device::CoreTable::kMostCores);
  flags.plan.cores = SplitCores(cores, flags.plan.prefill, flags.plan.decode);
  if (const absl::Status status = Preflight(flags); !status.ok()) return Fail(status);
  // Ends after the processes do.
  std::optional<device::CoreTable> table;
  if (flags.plan.threads == 0 && flags.worker.engine.backend == "cpu" && flags.worker.engine.tp == 1) {
    const std::vector<device::CoreHome> homes = HomesOf(cores, flags.plan.prefill, flags.plan.decode);
    absl::StatusOr<device::CoreTable> made = device::CoreTable::Create(cores, homes);
    if (!made.ok()) return Fail(made.status());
    table.emplace(*std::move(made));
    for (int i = 0; i < std::ssize(homes); ++i) flags.plan.core_shares.push_back(table->NameOf(i));
  }
  // Ends after the processes do.
  FleetKey key;
  // Routers elsewhere could not know a key that is made here.
  if (flags.plan.router && flags.plan.security.fleet_key_file.empty()) {
    absl::StatusOr<FleetKey> made = FleetKey::Make();
    if (!made.ok()) return Fail(made.status());
    key = *std::move(made);
    flags.plan.security.fleet_key_file = key.file();
  }
  // Likewise: a file that its owner alone can read.
  FleetKey moderation;
  if (!flags.plan.moderation_model.empty()) {
    absl::StatusOr<FleetKey> made = FleetKey::Make();
    if (!made.ok()) return Fail(made.status());
    moderation = *std::move(made);
    flags.plan.moderation_file = moderation.file();
  }
  absl::StatusOr<std::vector<ProcessSpec>> specs = MakeSpecs(flags.plan, context.binary_folder);
  if (!specs.ok()) return Fail(specs.status());
  LiveLine screen(context.err);
  absl::StatusOr<LogSink> logs = LogSink::Open(flags.log_folder, *specs, screen);
  if (!logs.ok()) return Fail(logs.status());

  SupervisorOptions options;
  options.start_timeout = *ParseDuration(flags.start_timeout);
  options.stop_grace = *ParseDuration(flags.stop_grace);
  options.stop_fd = StopSignals();
  if (flags.exit_with_parent) options.parent_fd = STDIN_FILENO;
  std::map<std::string, pid_t> pids;
  // Processes with a certificate of an unknown authority can't be asked.
  const rpc::SecurityOptions& shown_by_us = flags.plan.security;
  const bool can_ask = shown_by_us.cert.empty() || !shown_by_us.ca.empty();
  absl::StatusOr<std::shared_ptr<const rpc::Security>> security = rpc::Security::Load(shown_by_us);
  if (!security.ok()) return Fail(security.status());
  HealthWatch health({.security = *security});
  std::unique_ptr<ServiceHealth> service;
  if (!flags.health.empty()) {
    absl::StatusOr<std::unique_ptr<ServiceHealth>> started = ServiceHealth::Start(flags.health);
    if (!started.ok()) return Fail(started.status());
    service = *std::move(started);
  }
  bool shown = false;
  std::optional<TrafficWatch> watch;
  Supervisor::Listener listener;
  listener.log = [&](const std::string& name, std::string_view line) { logs->Write(name, line); };
  listener.event = [&](const ProcessEvent& event) {
    pids[event.name] = event.pid;
    if (event.kind == ProcessEvent::Kind::kReady && can_ask) {
      // A gateway serves no gRPC, and holds nothing that could hang for long.
      if (const auto grpc = event.endpoints.find("grpc"); grpc != event.endpoints.end()) {
        health.Follow(event.name, event.pid, grpc->second);
      }
    } else if (health.Forget(event.name)) {
      logs->Report(fmt::format("{} (pid {}) did not answer for half a minute that it lives, and was killed",
                               event.name, event.pid));
    }
    if (event.kind == ProcessEvent::Kind::kDied) {
      logs->Report(Death(event));
    } else if (event.kind == ProcessEvent::Kind::kStopped && event.forced) {
      logs->Report(fmt::format("{} (pid {}) {}", event.name, event.pid, event.reason));
    } else if (event.kind == ProcessEvent::Kind::kReady && event.restarts > 0) {
      const auto grpc = event.endpoints.find("grpc");
      logs->Report(fmt::format("{} is back on {} (pid {})", event.name,
                               grpc == event.endpoints.end() ? "?" : grpc->second, event.pid));
    }
  };
  listener.ready = [&](const AddressBook& book) {
    const Announcement announcement = Announcement::From(flags.plan.model_name, book, pids);
    if (!flags.announce.empty()) {
      if (const absl::Status status = announcement.WriteTo(flags.announce); !status.ok()) {
        logs->Report(std::string(status.message()));
      }
    }
    if (!flags.observability.empty()) {
      if (const absl::Status status = WriteObservability(announcement, flags.observability); !status.ok()) {
        logs->Report(std::string(status.message()));
      }
    }
    if (service != nullptr) service->SetReady();
    if (shown) return;
    shown = true;
    if (flags.json) {
      Print(stdout, "{}\n", announcement.ToJson());
      std::fflush(stdout);
    } else {
      PrintTable(flags, context.out, announcement);
    }
    if (screen.terminal().interactive && announcement.has_router && !announcement.Router().metrics.empty()) {
      watch.emplace(announcement.Router().metrics, [&](std::string line) { screen.Set(std::move(line)); });
    }
  };
  Supervisor supervisor(*std::move(specs), options, listener);
  const absl::Status status = supervisor.Run();
  watch.reset();
  screen.Set("");
  std::error_code ignored;
  if (!flags.announce.empty()) std::filesystem::remove(flags.announce, ignored);
  return status.ok() ? kExitOk : Fail(status);
}

}  // namespace

Command AddServe(CLI::App& root, const CliContext& context) {
  CLI::App* app =
      root.add_subcommand("serve", "Serve a model on this machine: router, prefill and decode workers");
  app->footer(kServeExamples);
  auto flags = std::make_shared<ServeFlags>();
  ServePlan& plan = flags->plan;
  app->add_option("--model", plan.model_folder, "Model folder, as from Hugging Face, or a GGUF file")
      ->type_name("DIR")
      ->required();
  app->add_option("--model-name", plan.model_name,
                  "Its name for clients (default: that of the folder or file)")
      ->type_name("NAME");
  app->add_option(
         "--output-format", plan.output_format,
         "How the model writes thinking and tool calls (default: found by what its template renders)")
      ->type_name("FORMAT");
  app->add_option(
         "--moderation-model", plan.moderation_model,
         "Folder of a classifier that judges answers for requests that ask for it, with a small worker "
         "of its own; models/baton-guard is one (docs/moderation.md)")
      ->type_name("DIR");
  flags->prefill_count = app->add_option("--prefill", plan.prefill,
                                         "Prefill workers; with 0, decode workers compute prompts themselves")
                             ->type_name("N")
                             ->check(CLI::Range(0, 64))
                             ->capture_default_str();
  flags->decode_count = app->add_option("--decode", plan.decode, "Decode workers")
                            ->type_name("N")
                            ->check(CLI::Range(1, 64))
                            ->capture_default_str();
  app->add_option("--listen", plan.listen, "Address of the router for clients; port 0 takes a free one")
      ->check(command_line::Address())
      ->type_name("ADDR")
      ->capture_default_str();
  app->add_option("--metrics", plan.metrics, "Address of the router for Prometheus; workers take free ports")
      ->check(command_line::Address())
      ->type_name("ADDR")
      ->capture_default_str();
  app->add_option(
         "--http", plan.http,
         "Address of OpenAI's and Anthropic's HTTP APIs (a gateway before the router); none: gRPC only")
      ->check(command_line::Address())
      ->type_name("ADDR");
  app->add_option("--cors-origin", plan.cors_origins,
                  "An origin whose web pages may use --http, as https://chat.example.com, or * for all; may "
                  "be repeated")
      ->type_name("ORIGIN");
  const std::string workers = "Workers (if an option is absent, the worker's own default)";
  app->add_option(
         "--threads", plan.threads,
         "Compute threads per worker (default: the workers share the machine's cores, and a step takes those "
         "that are idle)")
      ->type_name("N")
      ->check(CLI::Range(1, 1024))
      ->group(workers);
  app->add_option("--kv-memory", flags->kv_memory, "KV memory per worker, for example 512MiB")
      ->type_name("SIZE")
      ->group(workers);
  app->add_option(
         "--kv-disk", plan.kv_disk,
         "Folder for KV blocks beyond --kv-memory, in which each worker has one of its own, found again "
         "after a restart (default: none)")
      ->type_name("DIR")
      ->group(workers);
  command_line::AddNumbers(*app, "--prefill-devices", flags->prefill_devices,
                           "GPUs of the prefill workers, --tp for each, as 0,2-3 (default: from 0 on)")
      ->group(workers);
  command_line::AddNumbers(*app, "--decode-devices", flags->decode_devices,
                           "GPUs of the decode workers (default: those behind the prefill workers')")
      ->group(workers);
  app->add_option("--worker-listen", plan.worker_listen,
                  "Address of the first worker; each further one's port is one higher; 0 takes free ones")
      ->check(command_line::Address())
      ->type_name("ADDR")
      ->group(workers)
      ->capture_default_str();
  app->add_option("--worker-metrics", plan.worker_metrics, "Likewise, for Prometheus")
      ->check(command_line::Address())
      ->type_name("ADDR")
      ->group(workers)
      ->capture_default_str();
  app->add_option("--worker-prefix", plan.worker_prefix, "Begins the workers' names (default: nothing)")
      ->type_name("NAME")
      ->group(workers);
  app->add_option(
         "--prefill-flag", plan.prefill_flags,
         "A flag of prefill workers alone, for example --prefill-flag=--chunk-tokens=2048; repeatable")
      ->type_name("FLAG")
      ->allow_extra_args(false)
      ->group(workers);
  app->add_option("--decode-flag", plan.decode_flags, "A flag of decode workers alone, likewise; repeatable")
      ->type_name("FLAG")
      ->allow_extra_args(false)
      ->group(workers);
  app->add_option("--chunk-tokens", plan.chunk_tokens, "Prompt tokens of one request per step")
      ->type_name("N")
      ->check(CLI::PositiveNumber)
      ->group(workers);
  app->add_option("--token-budget", plan.token_budget, "Tokens per step over all requests")
      ->type_name("N")
      ->check(CLI::PositiveNumber)
      ->group(workers);
  app->add_option("--local-prefill-tokens", plan.local_prefill_tokens,
                  "Decode workers compute uncached rests of prompts of at most this many tokens themselves, "
                  "and prefill workers longer ones; unset: wherever it is predicted to be sooner")
      ->type_name("N")
      ->check(CLI::NonNegativeNumber)
      ->group(workers);
  app->add_option(
         "--speculation", plan.speculation,
         "What decode workers draft answers with: off, auto, or some of ngram, past-answers, grammar, "
         "draft-model and self with commas between them")
      ->type_name("HOW")
      ->check(command_line::OneOrSeveral({"off", "auto"},
                                         {"ngram", "past-answers", "grammar", "draft-model", "self"}))
      ->group(workers);
  app->add_option("--draft-model", plan.draft_model,
                  "A folder with a smaller model of the same tokenizer, which drafts answers")
      ->type_name("DIR")
      ->group(workers);
  app->add_flag("--self-draft", plan.self_draft, "A copy of the model's weights in 4 bits drafts answers")
      ->group(workers);
  app->add_option("--max-running", plan.max_running, "Sequences in a decode batch")
      ->type_name("N")
      ->check(CLI::PositiveNumber)
      ->group(workers);
  const std::vector<CLI::Option*> before = app->get_options();
  worker::AddEngineFlags(*app, flags->worker);
  worker::RequireTierForKey(*app);
  for (CLI::Option* option : app->get_options()) {
    if (std::find(before.begin(), before.end(), option) != before.end()) continue;
    option->group(workers);
    flags->worker_options.push_back(option);
  }
  const std::string service = "Service";
  app->add_flag("--no-router", flags->no_router, "Workers alone: routers elsewhere find them")
      ->group(service);
  app->add_option(
         "--health", flags->health,
         "host:port for grpc.health.v1 of the whole service, without TLS, for kubelets (default: none)")
      ->check(command_line::Address())
      ->type_name("ADDR")
      ->group(service);
  app->add_option("--log-dir", flags->log_folder, "A log file per process in this folder")
      ->type_name("DIR")
      ->group(service);
  app->add_option(
         "--default-ttft-deadline", plan.default_ttft_seconds,
         "Refuse requests without a deadline whose first token is predicted later, in seconds; 0: none")
      ->type_name("SECONDS")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  app->add_option(
         "--tail-share", plan.tail_share,
         "Order of prefill queues: 0 serves most within the SLO, 1 in order of arrival, which spares "
         "long prompts (default: the processes' own)")
      ->type_name("SHARE")
      ->check(CLI::Range(0.0, 1.0))
      ->group(service);
  app->add_option("--slo-ttft", plan.slo_ttft_seconds,
                  "Seconds to the first token that an answer may take: for metrics and prefill queues")
      ->type_name("SECONDS")
      ->check(CLI::PositiveNumber);
  app->add_option("--slo-tpot", plan.slo_tpot_seconds,
                  "Seconds per token after it: for metrics and the steps of decode workers")
      ->type_name("SECONDS")
      ->check(CLI::PositiveNumber);
  app->add_flag(
      "--vllm-metrics", plan.vllm_metrics,
      "The router shows the workers' load in metrics under vLLM's names too, for inference gateways");
  app->add_option("--prices", plan.prices,
                  "JSON file of what models cost per million tokens; none: nothing has a price")
      ->type_name("FILE");
  app->add_option("--ledger", plan.ledger,
                  "File that keeps the sums of what was used, for `baton usage`; none: no sums are kept")
      ->type_name("FILE");
  app->add_option(
         "--audit-log", plan.audit_log,
         "File to which a line of JSON is appended for each request, without its content; none: no lines")
      ->type_name("FILE");
  app->add_option("--trace-sample", plan.trace_sample,
                  "Share of the requests without a traceparent of which spans are sent to --otlp")
      ->type_name("SHARE")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 1.0));
  app->add_option("--tenants", plan.tenants, "JSON file of tenants, their keys and limits; none: open to all")
      ->type_name("FILE");
  rpc::AddFleetFlags(*app, plan.security);
  rpc::AddPublicEndpointFlags(*app, plan.security);
  app->add_option("--log-level", plan.log_level, "Lowest level that is logged")
      ->check(CLI::IsMember({"debug", "info", "warn", "error"}))
      ->capture_default_str()
      ->group(service);
  app->add_option("--announce", flags->announce,
                  "Write the addresses to this file as JSON once all processes are ready")
      ->type_name("FILE")
      ->group(service);
  app->add_option("--observability", flags->observability,
                  "Write to this folder the files with which Prometheus and Grafana watch these processes")
      ->type_name("DIR")
      ->group(service);
  app->add_flag("--json", flags->json, "Print the addresses as one line of JSON instead of the table")
      ->group(service);
  app->add_flag("--exit-with-parent", flags->exit_with_parent, "End when standard input ends")
      ->group(service);
  app->add_option("--start-timeout", flags->start_timeout, "How long a process may take to be ready")
      ->type_name("TIME")
      ->capture_default_str()
      ->group(service);
  app->add_option("--stop-grace", flags->stop_grace, "How long running work may take to end")
      ->type_name("TIME")
      ->capture_default_str()
      ->group(service);
  return {app, [flags, &context] { return RunServe(*flags, context); }};
}

}  // namespace baton::cli
