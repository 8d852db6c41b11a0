// baton-router: takes requests from clients and places them on decode and prefill workers.
#include <spdlog/spdlog.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "common/command_line/option_types.h"
#include "common/command_line/parse.h"
#include "common/rpc/keepalive_flag.h"
#include "common/rpc/lifecycle.h"
#include "common/rpc/security_flags.h"
#include "common/telemetry/metrics.h"
#include "router/models_file.h"
#include "router/router.h"
#include "router/store/store_address.h"
#include "text/config/model_path.h"
#include "text/output/output_format.h"

namespace {

int Fail(const absl::Status& status) {
  spdlog::error("{}", std::string(status.message()));
  return 1;
}

std::vector<std::string> OutputFormats() {
  std::vector<std::string> names;
  for (const baton::output::OutputFormat& format : baton::output::Formats()) names.emplace_back(format.name);
  return names;
}

}  // namespace

int main(int argc, char** argv) {
  baton::rpc::SkipLockOrderChecks();
  baton::rpc::CatchStopSignals();
  baton::router::RouterOptions options;
  baton::router::RouterOptions::Model model;
  std::string models_file;
  std::string metrics_listen = "127.0.0.1:0";
  std::string log_level = "info";
  bool exit_with_parent = false;
  std::string store, store_password_file;
  double queue_seconds = 120, drain_seconds = 10, resolve_seconds = 5, stall_seconds = 30,
         connection_seconds = 0;
  double ping_after = absl::ToDoubleSeconds(options.client_keepalive.interval);
  double ping_timeout = absl::ToDoubleSeconds(options.client_keepalive.timeout);
  std::optional<double> default_ttft;

  CLI::App app(
      "The public endpoint of a Baton deployment: tokenizes, admits and places requests, and streams the "
      "answers.",
      "baton-router");
  app.add_option("--model", model.folder,
                 "Hugging Face folder of the model (tokenizer, template, config), or its GGUF file")
      ->check(baton::command_line::Unless(&baton::model::WhyNothingIsAt))
      ->type_name("DIR");
  app.add_option("--model-name", model.name, "Name that clients use (default: the folder's name)")
      ->type_name("NAME");
  app.add_option(
         "--models", models_file,
         "JSON file of more models, each with its workers: {\"models\": [{\"name\", \"folder\", "
         "\"decode\": [...], \"prefill\": [...], \"fleet_file\", \"output_format\", \"classifier\"}], "
         "\"moderation\": {\"policy\"}}. The default is "
         "--model, else the first of them; one without workers is served by those of the flags")
      ->type_name("FILE");
  app.add_option("--output-format", model.output_format,
                 "How the model writes thinking and tool calls (default: found by what its template renders)")
      ->check(CLI::IsMember(OutputFormats()))
      ->type_name("FORMAT");
  app.add_option(
         "--decode", options.decode,
         "Decode workers, comma separated: host:port, or dns:///name:port for all addresses of a name")
      ->delimiter(',')
      ->type_name("ADDRS");
  app.add_option("--prefill", options.prefill,
                 "Prefill workers, written like --decode; none: decode workers prefill")
      ->delimiter(',')
      ->type_name("ADDRS");
  app.add_option("--fleet-file", options.fleet_file,
                 "JSON file of workers, {\"decode\": [...], \"prefill\": [...]}, read again when it changes")
      ->type_name("FILE");
  app.add_option("--resolve-seconds", resolve_seconds, "How often dns:/// names are resolved again")
      ->type_name("SECONDS")
      ->capture_default_str()
      ->check(CLI::Range(0.1, 3600.0));
  app.add_option("--listen", options.listen, "gRPC address; port 0 lets the system choose")
      ->type_name("ADDR")
      ->check(baton::command_line::Address())
      ->capture_default_str();
  app.add_option("--health", options.health_listen,
                 "host:port for grpc.health.v1 alone, without TLS, for kubelets (default: none)")
      ->type_name("ADDR")
      ->check(baton::command_line::Address());
  app.add_option("--metrics", metrics_listen, "Prometheus address; port 0 lets the system choose")
      ->type_name("ADDR")
      ->check(baton::command_line::Address())
      ->capture_default_str();
  app.add_flag("--vllm-metrics", options.vllm_metrics,
               "Show the workers' load in metrics under vLLM's names too, for inference gateways and "
               "autoscalers that know those");
  app.add_option("--policy", options.policy, "How requests are placed")
      ->check(CLI::IsMember({"prefix_affinity", "least_loaded", "round_robin"}))
      ->capture_default_str();
  app.add_option("--index-memory", options.index_bytes,
                 "Memory of the prefix index, for example 1GiB; beyond it, cold prefixes are forgotten")
      ->transform(CLI::AsSizeValue(false))
      ->check(CLI::PositiveNumber)
      ->default_str(baton::command_line::SizeText(options.index_bytes));
  app.add_option("--queue-requests", options.dispatcher.limits.entries,
                 "Choices that may wait for a decode worker")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  app.add_option("--queue-tokens", options.dispatcher.limits.tokens,
                 "Tokens of prompts and expected answers that may wait")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  app.add_option("--queue-bytes", options.dispatcher.limits.bytes, "Bytes of prompts that may wait")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  app.add_option(
         "--default-ttft-deadline", default_ttft,
         "Seconds to the first token that a request without a deadline may be predicted to take; beyond "
         "that it is refused with a retry delay. 0: any time. Default: --slo-ttft")
      ->type_name("SECONDS")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--queue-seconds", queue_seconds, "Longest wait for a decode worker in any case")
      ->type_name("SECONDS")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  app.add_option("--worker-concurrency", options.dispatcher.worker_concurrency,
                 "Choices on one decode worker at a time, from this router")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  app.add_option("--client-stall", stall_seconds,
                 "Seconds after which a client that reads nothing of its answer is given up")
      ->type_name("SECONDS")
      ->capture_default_str()
      ->check(CLI::Range(0.01, 86400.0));
  app.add_option("--client-ping-after", ping_after,
                 "Seconds of silence after which a client with a call under way is pinged")
      ->capture_default_str()
      ->check(CLI::Range(0.01, 86400.0));
  app.add_option("--client-ping-timeout", ping_timeout,
                 "Seconds that it has to answer; then its connection is closed and its calls end")
      ->capture_default_str()
      ->check(CLI::Range(0.01, 86400.0));
  app.add_option("--max-connections", options.connections.total,
                 "Clients' connections at a time; more are closed at once")
      ->capture_default_str()
      ->check(CLI::Range(1, 50000));
  app.add_option("--max-connections-per-address", options.connections.per_address,
                 "And from one address (IPv6: one /64 network), at most three quarters of all")
      ->capture_default_str()
      ->check(CLI::Range(1, 50000));
  app.add_option(
         "--max-connection-age", connection_seconds,
         "Seconds after which a client is asked to connect anew, perhaps to another router; its running "
         "calls end where they are, however long they take. 0: never")
      ->type_name("SECONDS")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 86400.0));
  app.add_option("--max-attempts", options.max_attempts,
                 "Decode workers that may fail before a request gives up")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  app.add_option("--max-migrations", options.max_migrations,
                 "Times that an answer may go on elsewhere after its decode worker was lost")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  app.add_option("--tokenizer-threads", options.tokenizer_threads, "Threads for templates and tokenization")
      ->capture_default_str()
      ->check(CLI::Range(1, 256));
  app.add_option("--tenants", options.tenants.file,
                 "JSON file of tenants, their keys and limits, read again when it changes; none: open to all")
      ->type_name("FILE");
  app.add_option(
         "--store", store,
         "Redis or Valkey server by which several routers share rates and quotas of tenants: "
         "redis://[USER@]HOST[:PORT][/DATABASE] or unix:///PATH; none: each router has limits of its own")
      ->type_name("URL")
      ->check(CLI::Validator(
          [](std::string& url) {
            return std::string(baton::router::store::ParseStoreAddress(url).status().message());
          },
          ""));
  app.add_option("--store-password-file", store_password_file, "File with the password of the store")
      ->type_name("FILE")
      ->check(CLI::ExistingFile);
  app.add_option(
         "--ledger", options.ledger,
         "File that keeps the sums of what was used, by day, tenant, key and model (`baton usage` prints "
         "it), or `store`: they are kept in --store; none: no sums are kept")
      ->type_name("FILE");
  app.add_option(
         "--audit-log", options.audit_log,
         "File to which a line of JSON is appended for each request, without its content, or - for standard "
         "output; none: no lines")
      ->type_name("FILE");
  app.add_option(
         "--otlp", options.tracing.otlp,
         "Base URL of an OpenTelemetry collector, http://HOST:4318, to which spans are sent (OTLP over HTTP, "
         "JSON); none: traces are handed on to workers, and no spans are sent")
      ->type_name("URL")
      ->check(CLI::Validator(
          [](std::string& url) {
            return std::string(baton::telemetry::ParseOtlpEndpoint(url).status().message());
          },
          ""));
  app.add_option("--trace-sample", options.tracing.sample,
                 "Share of the requests without a traceparent of which spans are sent; those with one say it "
                 "themselves")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  app.add_option(
         "--prices", options.prices,
         "JSON file of what models cost per million tokens, read again when it changes; none: nothing "
         "has a price")
      ->type_name("FILE");
  baton::rpc::AddFleetFlags(app, options.security);
  std::optional<baton::rpc::Keepalive> keepalive;
  baton::rpc::AddKeepaliveFlag(app, keepalive);
  baton::rpc::AddPublicEndpointFlags(app, options.security);
  app.add_option("--tenant-salt-file", options.tenants.salt_file,
                 "Secret of at least 16 bytes that keys the prefix cache; the same on every router")
      ->type_name("FILE");
  app.add_option("--tenant-labels", options.tenants.labels,
                 "Tenants with a label of their own in metrics; the rest share \"other\"")
      ->capture_default_str()
      ->check(CLI::Range(0, 10000));
  app.add_option(
         "--slo-ttft", options.slo.ttft_seconds,
         "Seconds to the first token that an answer may take: what is refused, and the order of prefill "
         "queues; the same on every router and prefill worker")
      ->type_name("SECONDS")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  app.add_option(
         "--tail-share", options.tail_share,
         "Share of the tail in the order of prefill queues: 0 serves most within --slo-ttft, 1 in order "
         "of arrival, which spares long prompts; the same on every router and prefill worker")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 1.0));
  app.add_option("--slo-tpot", options.slo.tpot_seconds, "Seconds per token after it, in the mean")
      ->type_name("SECONDS")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  app.add_option("--drain-seconds", drain_seconds, "Time for running requests after SIGTERM")
      ->type_name("SECONDS")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_flag("--exit-with-parent", exit_with_parent, "Leave when standard input ends");
  app.add_option("--log-level", log_level, "What is logged")
      ->check(CLI::IsMember({"debug", "info", "warn", "error", "off"}))
      ->capture_default_str();
  if (const auto code = baton::command_line::Parse(app, argc, argv)) return *code;
  if (const absl::Status misuse = baton::rpc::CheckFlags(options.security); !misuse.ok()) {
    return baton::command_line::Misused(app, std::string(misuse.message()));
  }
  if (model.folder.empty() && models_file.empty()) {
    return baton::command_line::Misused(app, "there is no model to serve: give --model or --models");
  }
  if (model.folder.empty() && (!model.name.empty() || !model.output_format.empty())) {
    return baton::command_line::Misused(app,
                                        "--model-name and --output-format are of --model, which is missing");
  }
  if (!model.folder.empty()) options.models.push_back(model);
  if (!models_file.empty()) {
    const auto more = baton::router::ReadModels(models_file);
    if (!more.ok()) return Fail(more.status());
    options.models.insert(options.models.end(), more->models.begin(), more->models.end());
    options.moderation = more->moderation;
  }
  const bool flags_workers = std::any_of(options.models.begin(), options.models.end(),
                                         [](const auto& one) { return !one.HasWorkers(); });
  if (!flags_workers &&
      (!options.decode.empty() || !options.prefill.empty() || !options.fleet_file.empty())) {
    return baton::command_line::Misused(
        app, "--decode, --prefill and --fleet-file name workers, and every model names its own in --models");
  }
  if (flags_workers && options.decode.empty() && options.fleet_file.empty()) {
    return baton::command_line::Misused(
        app, "there is no worker to place requests on: give --decode or --fleet-file");
  }
  if (store.empty() && !store_password_file.empty()) {
    return baton::command_line::Misused(app, "--store-password-file is of --store, which is missing");
  }
  if (!store.empty()) {
    const auto address = baton::router::store::ParseStoreAddress(store);
    if (!address.ok()) return Fail(address.status());
    options.store = {.address = *address, .password_file = store_password_file};
  }
  options.dispatcher.max_wait = absl::Seconds(queue_seconds);
  const double ttft_seconds = default_ttft.value_or(options.slo.ttft_seconds);
  options.dispatcher.default_ttft = ttft_seconds > 0 ? absl::Seconds(ttft_seconds) : absl::InfiniteDuration();
  options.client_stall = absl::Seconds(stall_seconds);
  options.keepalive = keepalive.value_or(options.keepalive);
  options.client_keepalive = {.interval = absl::Seconds(ping_after), .timeout = absl::Seconds(ping_timeout)};
  if (connection_seconds > 0) options.max_connection_age = absl::Seconds(connection_seconds);
  options.resolve_interval = absl::Seconds(resolve_seconds);
  options.drain = absl::Seconds(drain_seconds);

  if (absl::Status status = baton::rpc::SetUpLogging("router", log_level); !status.ok()) return Fail(status);
  auto router = baton::router::Router::Start(options);
  if (!router.ok()) return Fail(router.status());
  auto metrics =
      baton::telemetry::MetricsServer::Start(metrics_listen, (*router)->metrics(), options.security.cert);
  if (!metrics.ok()) return Fail(metrics.status());
  baton::rpc::AnnounceReady({{"grpc", (*router)->address()}, {"metrics", (*metrics)->address()}});
  baton::rpc::WaitForStop(exit_with_parent);
  spdlog::info("leaving: running requests have {} s", drain_seconds);
  (*router)->Stop();
  return 0;
}
