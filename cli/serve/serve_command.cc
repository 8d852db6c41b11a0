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

#include "cli/commands.h"
#include "cli/exit_code.h"
#include "cli/serve/announcement.h"
#include "cli/serve/fleet_key.h"
#include "cli/serve/health_watch.h"
#include "cli/serve/log_sink.h"
#include "cli/serve/observability.h"
#include "cli/serve/plan.h"
#include "cli/serve/preflight.h"
#include "cli/serve/serve_flags.h"
#include "cli/serve/served_models.h"
#include "cli/serve/service_health.h"
#include "cli/serve/supervisor.h"
#include "cli/serve/traffic_watch.h"
#include "cli/serve/worker_places.h"
#include "cli/show/live_line.h"
#include "cli/show/print.h"
#include "cli/show/quantity.h"
#include "common/base/check.h"
#include "common/base/status.h"
#include "common/rpc/security.h"
#include "common/rpc/security_flags.h"
#include "engine/device/core_table.h"
#include "engine/device/thread_pool.h"
#include "worker/flags.h"

namespace baton::cli {
namespace {

// A process that has ended its work, or given it up, may take so long to leave.
constexpr absl::Duration kTimeToLeave = absl::Seconds(5);

absl::Status TakeModels(ServeFlags& flags) {
  BATON_ASSIGN_OR_RETURN(ServedModels served, ReadServedModels(flags.models));
  flags.plan.models = std::move(served.models);
  flags.plan.moderation = std::move(served.moderation);
  flags.plan.output_format = flags.models.output_format;
  return absl::OkStatus();
}

// Checks what would fail only after the workers have loaded the model, or when everything is ready.
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
  for (const ServedModel& model : flags.plan.models) {
    if (&model == &flags.plan.models.front() || model.same_as.has_value() || model.classifier) continue;
    Print(stdout, "  baton chat{} --model-name {}\n", server, model.name);
    break;
  }
  Print(stdout, "  baton generate{} --prompt \"Once upon a time\" --max-tokens 40 --show-timing\n", server);
  Print(stdout, "  baton bench{} --concurrency 4 --requests 40\n", server);
  if (!router.metrics.empty()) Print(stdout, "  curl http://{}/metrics\n", router.metrics);
  if (!flags.observability.empty()) {
    Print(stdout, "  prometheus --config.file={}/prometheus.yml\n", flags.observability);
  }
}

// Says of each in a line who serves it.
void PrintModels(const std::vector<ServedModel>& models, const Terminal& terminal) {
  for (const ServedModel& model : models) {
    const std::string name = Paint(terminal, Style::kBold, model.name);
    if (model.same_as.has_value()) {
      Print(stdout, "{} is another name of {}\n", name, models[*model.same_as].name);
    } else if (model.classifier && model.prefill == 0) {
      Print(stdout, "{} judges texts, by {} decode worker(s)\n", name, model.decode);
    } else {
      Print(stdout, "{} is served by {} prefill and {} decode worker(s)\n", name, model.prefill,
            model.decode);
    }
  }
}

void PrintTable(const ServeFlags& flags, const Terminal& terminal, const Announcement& announcement) {
  Print(stdout, "\n");
  PrintModels(flags.plan.models, terminal);
  size_t columns = 12;
  for (const Announcement::Process& process : announcement.processes)
    columns = std::max(columns, process.name.size() + 2);
  Print(stdout, "\n  {:<{}}{:>8}  {:<22}{}\n", "process", columns, "pid", "gRPC", "metrics");
  for (const Announcement::Process& process : announcement.processes) {
    const std::string metrics =
        process.metrics.empty() ? "" : fmt::format("http://{}/metrics", process.metrics);
    Print(stdout, "  {:<{}}{:>8}  {:<22}{}\n", process.name, columns, process.pid, process.grpc, metrics);
    if (!process.http.empty())
      Print(stdout, "  {:<{}}{:>8}  OpenAI and Anthropic: http{}://{}/v1, and a page to chat with at /\n", "",
            columns, "", flags.plan.security.cert.empty() ? "" : "s", process.http);
  }
  if (announcement.has_router) {
    PrintNext(flags, announcement.Router());
  } else if (NeedsModelsFile(flags.plan)) {
    Print(stdout,
          "\nRouters elsewhere find them: baton-router --models FILE, with their addresses by model\n");
  } else {
    Print(stdout, "\nRouters elsewhere find them: baton-router --prefill ... --decode ...\n");
  }
  Print(stdout, "\nCtrl-C ends the service.\n");
  std::fflush(stdout);
  // The table is for people and not an answer: the service continues without it.
  std::clearerr(stdout);
}

int RunServe(ServeFlags flags, const CliContext& context) {
  const absl::StatusOr<absl::Duration> start_timeout = ParseDuration(flags.start_timeout);
  if (!start_timeout.ok()) return Misused(std::string(start_timeout.status().message()));
  if (!flags.kv_memory.empty()) {
    const absl::StatusOr<int64_t> bytes = ParseBytes(flags.kv_memory);
    if (!bytes.ok()) return Misused(std::string(bytes.status().message()));
    flags.plan.kv_bytes = *bytes;
  }
  const ServePlan& asked = flags.plan;
  if (flags.no_router &&
      (asked.slo_ttft_seconds > 0 || asked.slo_tpot_seconds > 0 || asked.tail_share >= 0)) {
    return Misused(
        "--slo-ttft, --slo-tpot and --tail-share are the router's, which tells its workers: give them to it");
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
  if (flags.no_router && !flags.models.classifier.empty())
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
  flags.plan.worker_flags = flags.Given();
  flags.plan.otlp = flags.worker.otlp;
  flags.plan.router = !flags.no_router;
  for (const auto* given : {&flags.plan.prefill_flags, &flags.plan.decode_flags}) {
    if (const absl::Status misuse = CheckWorkerFlags(*given); !misuse.ok())
      return Misused(std::string(misuse.message()));
  }
  if (const absl::Status misuse = CheckModelFlags(flags.models); !misuse.ok())
    return Misused(std::string(misuse.message()));
  if (const absl::Status status = TakeModels(flags); !status.ok()) {
    const bool misuse = absl::IsInvalidArgument(status) && flags.models.file.empty();
    return misuse ? Misused(std::string(status.message())) : Fail(std::string(status.message()));
  }
  const NamedGpus gpus{.prefill = flags.prefill_devices,
                       .decode = flags.decode_devices,
                       .count_prefill = flags.prefill_count->count() == 0,
                       .count_decode = flags.decode_count->count() == 0};
  if (const absl::Status misuse = PlaceOnGpus(gpus, &flags.plan); !misuse.ok())
    return Misused(std::string(misuse.message()));
  const absl::StatusOr<std::vector<ServedWorker>> sharers = SharersOfCores(flags.plan);
  if (!sharers.ok()) return Misused(std::string(sharers.status().message()));
  const auto count = [&](bool decode) {
    int workers = 0;
    for (const ServedWorker& worker : WorkersOf(flags.plan.models)) {
      workers += flags.plan.models[worker.model].common_flags && worker.decode == decode ? 1 : 0;
    }
    return workers;
  };
  const int cores = std::min(device::UsableCores(), device::CoreTable::kMostCores);
  flags.plan.cores = SplitCores(cores, count(/*decode=*/false), count(/*decode=*/true));
  if (const absl::Status status = Preflight(flags); !status.ok()) return Fail(status);
  // Ends after the processes do.
  std::optional<device::CoreTable> table;
  if (!sharers->empty()) {
    const auto prefill =
        std::count_if(sharers->begin(), sharers->end(), [](const auto& one) { return !one.decode; });
    const std::vector<device::CoreHome> homes =
        HomesOf(cores, static_cast<int>(prefill), static_cast<int>(std::ssize(*sharers) - prefill));
    absl::StatusOr<device::CoreTable> made = device::CoreTable::Create(cores, homes);
    if (!made.ok()) return Fail(made.status());
    table.emplace(*std::move(made));
    for (size_t i = 0; i < sharers->size(); ++i) {
      flags.plan.core_shares[(*sharers)[i].name] = table->NameOf(static_cast<int>(i));
    }
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
  // It ends after them, too, and its owner alone can read it.
  FleetKey models_file;
  if (flags.plan.router && NeedsModelsFile(flags.plan)) {
    absl::StatusOr<FleetKey> made = FleetKey::Make();
    if (!made.ok()) return Fail(made.status());
    models_file = *std::move(made);
    flags.plan.models_file = models_file.file();
  }
  absl::StatusOr<std::vector<ProcessSpec>> specs = MakeSpecs(flags.plan, context.binary_folder);
  if (!specs.ok()) return Fail(specs.status());
  LiveLine screen(context.err);
  absl::StatusOr<LogSink> logs = LogSink::Open(flags.log_folder, *specs, screen);
  if (!logs.ok()) return Fail(logs.status());

  SupervisorOptions options;
  options.start_timeout = *start_timeout;
  // A process ends its work itself, and then has time to leave.
  options.stop_grace = absl::Seconds(flags.plan.drain_seconds) + kTimeToLeave;
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
    const Announcement announcement = Announcement::From(flags.plan.models, book, pids);
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
      root.add_subcommand("serve", "Serve models on this machine: router, prefill and decode workers");
  auto flags = std::make_shared<ServeFlags>();
  DeclareServeFlags(*app, *flags);
  return {app, [flags, &context] { return RunServe(*flags, context); }};
}

}  // namespace baton::cli
