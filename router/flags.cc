#include "router/flags.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <vector>

#include "common/base/status.h"
#include "common/command_line/option_types.h"
#include "common/command_line/parse.h"
#include "common/rpc/keepalive_flag.h"
#include "common/rpc/security_flags.h"
#include "router/models_file.h"
#include "router/store/store_address.h"
#include "text/config/model_path.h"
#include "text/output/output_format.h"

namespace baton::router {
namespace {

std::vector<std::string> OutputFormats() {
  std::vector<std::string> names;
  for (const output::OutputFormat& format : output::Formats()) names.emplace_back(format.name);
  return names;
}

void AddModelFlags(CLI::App& app, Flags& flags) {
  app.add_option("--model", flags.model.folder,
                 "Hugging Face folder of the model (tokenizer, template, config), or its GGUF file")
      ->check(command_line::Unless(&model::WhyNothingIsAt))
      ->type_name("DIR");
  app.add_option("--model-name", flags.model.name, "Name that clients use (default: the folder's name)")
      ->type_name("NAME");
  app.add_option(
         "--models", flags.models_file,
         "JSON file of more models, each with its workers: {\"models\": [{\"name\", \"folder\", "
         "\"decode\": [...], \"prefill\": [...], \"fleet_file\", \"output_format\", \"classifier\"}], "
         "\"moderation\": {\"policy\"}}. The default is "
         "--model, else the first of them; one without workers is served by those of the flags")
      ->type_name("FILE");
  app.add_option("--output-format", flags.model.output_format,
                 "How the model writes thinking and tool calls (default: found by what its template renders)")
      ->check(CLI::IsMember(OutputFormats()))
      ->type_name("FORMAT");
}

void AddWorkerFlags(CLI::App& app, Flags& flags) {
  app.add_option(
         "--decode", flags.options.decode,
         "Decode workers, comma separated: host:port, or dns:///name:port for all addresses of a name")
      ->delimiter(',')
      ->type_name("ADDRS");
  app.add_option("--prefill", flags.options.prefill,
                 "Prefill workers, written like --decode; none: decode workers prefill")
      ->delimiter(',')
      ->type_name("ADDRS");
  app.add_option("--fleet-file", flags.options.fleet_file,
                 "JSON file of workers, {\"decode\": [...], \"prefill\": [...]}, read again when it changes")
      ->type_name("FILE");
  app.add_option("--resolve-seconds", flags.resolve_seconds, "How often dns:/// names are resolved again")
      ->type_name("SECONDS")
      ->capture_default_str()
      ->check(CLI::Range(0.1, 3600.0));
}

void AddAddressFlags(CLI::App& app, Flags& flags) {
  app.add_option("--listen", flags.options.listen, "gRPC address; port 0 lets the system choose")
      ->type_name("ADDR")
      ->check(command_line::Address())
      ->capture_default_str();
  app.add_option("--health", flags.options.health_listen,
                 "host:port for grpc.health.v1 alone, without TLS, for kubelets (default: none)")
      ->type_name("ADDR")
      ->check(command_line::Address());
  app.add_option("--metrics", flags.metrics_listen, "Prometheus address; port 0 lets the system choose")
      ->type_name("ADDR")
      ->check(command_line::Address())
      ->capture_default_str();
  app.add_flag("--vllm-metrics", flags.options.vllm_metrics,
               "Show the workers' load in metrics under vLLM's names too, for inference gateways and "
               "autoscalers that know those");
}

void AddPlacementFlags(CLI::App& app, Flags& flags) {
  app.add_option("--policy", flags.options.policy, "How requests are placed")
      ->check(CLI::IsMember({"prefix_affinity", "least_loaded", "round_robin"}))
      ->capture_default_str();
  app.add_option("--index-memory", flags.options.index_bytes,
                 "Memory of the prefix index, for example 1GiB; beyond it, cold prefixes are forgotten")
      ->transform(CLI::AsSizeValue(false))
      ->check(CLI::PositiveNumber)
      ->default_str(command_line::SizeText(flags.options.index_bytes));
  app.add_option("--queue-requests", flags.options.dispatcher.limits.entries,
                 "Choices that may wait for a decode worker")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  app.add_option(
         "--default-ttft-deadline", flags.default_ttft,
         "Seconds to the first token that a request without a deadline may be predicted to take; beyond "
         "that it is refused with a retry delay. 0: any time. Default: --slo-ttft")
      ->type_name("SECONDS")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--queue-seconds", flags.queue_seconds, "Longest wait for a decode worker in any case")
      ->type_name("SECONDS")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  app.add_option("--worker-concurrency", flags.options.dispatcher.worker_concurrency,
                 "Choices on one decode worker at a time, from this router")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  app.add_option("--max-migrations", flags.options.max_migrations,
                 "Times that an answer may go on elsewhere after its decode worker was lost")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  app.add_option("--tokenizer-threads", flags.options.tokenizer_threads,
                 "Threads for templates and tokenization")
      ->capture_default_str()
      ->check(CLI::Range(1, 256));
  app.add_option(
         "--slo-ttft", flags.options.slo.ttft_seconds,
         "Seconds to the first token that an answer may take: what is refused, and the order of prefill "
         "queues; told to the workers, and the same on every router")
      ->type_name("SECONDS")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  app.add_option(
         "--tail-share", flags.options.tail_share,
         "Share of the tail in the order of prefill queues: 0 serves most within --slo-ttft, 1 in order "
         "of arrival, which spares long prompts; told to the workers, and the same on every router")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 1.0));
  app.add_option("--slo-tpot", flags.options.slo.tpot_seconds,
                 "Seconds per token after it, in the mean: also bounds the steps of decode workers")
      ->type_name("SECONDS")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
}

void AddClientFlags(CLI::App& app, Flags& flags) {
  app.add_option("--client-stall", flags.stall_seconds,
                 "Seconds after which a client that reads nothing of its answer is given up")
      ->type_name("SECONDS")
      ->capture_default_str()
      ->check(CLI::Range(0.01, 86400.0));
  app.add_option("--client-ping-after", flags.ping_after,
                 "Seconds of silence after which a client with a call under way is pinged")
      ->capture_default_str()
      ->check(CLI::Range(0.01, 86400.0));
  app.add_option("--client-ping-timeout", flags.ping_timeout,
                 "Seconds that it has to answer; then its connection is closed and its calls end")
      ->capture_default_str()
      ->check(CLI::Range(0.01, 86400.0));
  app.add_option("--max-connections", flags.options.connections.total,
                 "Clients' connections at a time; more are closed at once")
      ->capture_default_str()
      ->check(CLI::Range(1, 50000));
  app.add_option("--max-connections-per-address", flags.options.connections.per_address,
                 "And from one address (IPv6: one /64 network), at most three quarters of all")
      ->capture_default_str()
      ->check(CLI::Range(1, 50000));
  app.add_option(
         "--max-connection-age", flags.connection_seconds,
         "Seconds after which a client is asked to connect anew, perhaps to another router; its running "
         "calls end where they are, however long they take. 0: never")
      ->type_name("SECONDS")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 86400.0));
}

void AddTenantFlags(CLI::App& app, Flags& flags) {
  app.add_option("--tenants", flags.options.tenants.file,
                 "JSON file of tenants, their keys and limits, read again when it changes; none: open to all")
      ->type_name("FILE");
  app.add_option("--tenant-salt-file", flags.options.tenants.salt_file,
                 "Secret of at least 16 bytes that keys the prefix cache; the same on every router")
      ->type_name("FILE");
  app.add_option("--tenant-labels", flags.options.tenants.labels,
                 "Tenants with a label of their own in metrics; the rest share \"other\"")
      ->capture_default_str()
      ->check(CLI::Range(0, 10000));
  app.add_option(
         "--store", flags.store,
         "Redis or Valkey server by which several routers share rates and quotas of tenants: "
         "redis://[USER@]HOST[:PORT][/DATABASE] or unix:///PATH; none: each router has limits of its own")
      ->type_name("URL")
      ->check(CLI::Validator(
          [](std::string& url) { return std::string(store::ParseStoreAddress(url).status().message()); },
          ""));
  app.add_option("--store-password-file", flags.store_password_file, "File with the password of the store")
      ->type_name("FILE")
      ->check(CLI::ExistingFile);
}

void AddRecordFlags(CLI::App& app, Flags& flags) {
  app.add_option(
         "--ledger", flags.options.ledger,
         "File that keeps the sums of what was used, by day, tenant, key and model (`baton usage` prints "
         "it), or `store`: they are kept in --store; none: no sums are kept")
      ->type_name("FILE");
  app.add_option(
         "--audit-log", flags.options.audit_log,
         "File to which a line of JSON is appended for each request, without its content, or - for standard "
         "output; none: no lines")
      ->type_name("FILE");
  app.add_option(
         "--prices", flags.options.prices,
         "JSON file of what models cost per million tokens, read again when it changes; none: nothing "
         "has a price")
      ->type_name("FILE");
  app.add_option(
         "--otlp", flags.options.tracing.otlp,
         "Base URL of an OpenTelemetry collector, http://HOST:4318, to which spans are sent (OTLP over HTTP, "
         "JSON); none: traces are handed on to workers, and no spans are sent")
      ->type_name("URL")
      ->check(CLI::Validator(
          [](std::string& url) { return std::string(telemetry::ParseOtlpEndpoint(url).status().message()); },
          ""));
  app.add_option("--trace-sample", flags.options.tracing.sample,
                 "Share of the requests without a traceparent of which spans are sent; those with one say it "
                 "themselves")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
}

}  // namespace

void AddFlags(CLI::App& app, Flags& flags) {
  AddModelFlags(app, flags);
  AddWorkerFlags(app, flags);
  AddAddressFlags(app, flags);
  AddPlacementFlags(app, flags);
  AddClientFlags(app, flags);
  AddTenantFlags(app, flags);
  AddRecordFlags(app, flags);
  rpc::AddFleetFlags(app, flags.options.security);
  rpc::AddKeepaliveFlag(app, flags.keepalive);
  rpc::AddPublicEndpointFlags(app, flags.options.security);
  rpc::AddProcessFlags(app, flags.process);
  command_line::ShowFirst(app, {"--model", "--models", "--decode", "--prefill", "--listen", "--metrics",
                                "--tenants", "--ledger", "--slo-ttft", "--slo-tpot"});
}

absl::StatusOr<RouterOptions> OptionsOf(const Flags& flags) {
  RouterOptions options = flags.options;
  BATON_RETURN_IF_ERROR(rpc::CheckFlags(options.security));
  const RouterOptions::Model& model = flags.model;
  if (model.folder.empty() && flags.models_file.empty()) {
    return absl::InvalidArgumentError("there is no model to serve: give --model or --models");
  }
  if (model.folder.empty() && (!model.name.empty() || !model.output_format.empty())) {
    return absl::InvalidArgumentError("--model-name and --output-format are of --model, which is missing");
  }
  if (!model.folder.empty()) options.models.push_back(model);
  if (!flags.models_file.empty()) {
    const auto more = ReadModels(flags.models_file);
    if (!more.ok()) return absl::FailedPreconditionError(more.status().message());
    options.models.insert(options.models.end(), more->models.begin(), more->models.end());
    options.moderation = more->moderation;
  }
  const bool flags_workers =
      std::ranges::any_of(options.models, [](const auto& one) { return !one.HasWorkers(); });
  if (!flags_workers &&
      (!options.decode.empty() || !options.prefill.empty() || !options.fleet_file.empty())) {
    return absl::InvalidArgumentError(
        "--decode, --prefill and --fleet-file name workers, and every model names its own in --models");
  }
  if (flags_workers && options.decode.empty() && options.fleet_file.empty()) {
    return absl::InvalidArgumentError(
        "there is no worker to place requests on: give --decode or --fleet-file");
  }
  if (flags.store.empty() && !flags.store_password_file.empty()) {
    return absl::InvalidArgumentError("--store-password-file is of --store, which is missing");
  }
  if (!flags.store.empty()) {
    BATON_ASSIGN_OR_RETURN(const store::StoreAddress address, store::ParseStoreAddress(flags.store));
    options.store = {.address = address, .password_file = flags.store_password_file};
  }
  options.dispatcher.max_wait = absl::Seconds(flags.queue_seconds);
  const double ttft_seconds = flags.default_ttft.value_or(options.slo.ttft_seconds);
  options.dispatcher.default_ttft = ttft_seconds > 0 ? absl::Seconds(ttft_seconds) : absl::InfiniteDuration();
  options.client_stall = absl::Seconds(flags.stall_seconds);
  options.keepalive = flags.keepalive.value_or(options.keepalive);
  options.client_keepalive = {.interval = absl::Seconds(flags.ping_after),
                              .timeout = absl::Seconds(flags.ping_timeout)};
  if (flags.connection_seconds > 0) options.max_connection_age = absl::Seconds(flags.connection_seconds);
  options.resolve_interval = absl::Seconds(flags.resolve_seconds);
  options.drain = absl::Seconds(flags.process.drain_seconds);
  return options;
}

}  // namespace baton::router
