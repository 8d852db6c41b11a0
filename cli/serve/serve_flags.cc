#include "cli/serve/serve_flags.h"

#include <algorithm>

#include "absl/strings/str_join.h"
#include "common/command_line/option_types.h"
#include "common/command_line/parse.h"
#include "common/rpc/security_flags.h"

namespace baton::cli {
namespace {

constexpr char kServeExamples[] = R"(
Examples:
  baton serve --model models/small
  baton serve --model /srv/llama-3.2-1b --prefill 2 --decode 2 --kv-memory 2GiB
  baton serve --model /srv/llama-3.2-1b --model /srv/qwen3-0.6b
      two models, each with a prefill and a decode worker: requests name one
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

}  // namespace

std::vector<std::string> ServeFlags::Given() const {
  std::vector<std::string> arguments;
  for (const CLI::Option* option : worker_options) {
    if (option->count() == 0) continue;
    const bool has_value = option->get_type_size() != 0;
    arguments.push_back(has_value ? option->get_name() + "=" + absl::StrJoin(option->results(), ",")
                                  : option->get_name());
  }
  return arguments;
}

void DeclareServeFlags(CLI::App& app, ServeFlags& flags) {
  app.footer(kServeExamples);
  ServePlan& plan = flags.plan;
  ModelFlags& models = flags.models;
  app.add_option(
         "--model", models.folders,
         "Model folder, as from Hugging Face, or a GGUF file; repeated, each model has workers of its own "
         "and the first is the default")
      ->type_name("DIR")
      ->allow_extra_args(false);
  app.add_option(
         "--model-name", models.names,
         "Its name for clients (default: that of the folder or file); repeated, more names of a single "
         "--model, or one for each in their order")
      ->type_name("NAME")
      ->allow_extra_args(false);
  app.add_option(
         "--models", models.file,
         "JSON file of more models, with limits of their own, as the router's; \"workers\": {\"prefill\", "
         "\"decode\", \"flags\": [...]} in place of addresses (router/README.md)")
      ->type_name("FILE");
  app.add_option("--output-format", models.output_format,
                 "How the model writes thinking and tool calls (default: found by what its template renders)")
      ->type_name("FORMAT");
  app.add_option(
         "--moderation-model", models.classifier,
         "Folder of a classifier that judges answers for requests that ask for it, with a small worker "
         "of its own; models/baton-guard is one (docs/moderation.md)")
      ->type_name("DIR");
  flags.prefill_count =
      app.add_option("--prefill", models.prefill,
                     "Prefill workers of each model; with 0, decode workers compute prompts themselves")
          ->type_name("N")
          ->check(CLI::Range(0, 64))
          ->capture_default_str();
  flags.decode_count = app.add_option("--decode", models.decode, "Decode workers of each model")
                           ->type_name("N")
                           ->check(CLI::Range(1, 64))
                           ->capture_default_str();
  app.add_option("--listen", plan.listen, "Address of the router for clients; port 0 takes a free one")
      ->check(command_line::Address())
      ->type_name("ADDR")
      ->capture_default_str();
  app.add_option("--metrics", plan.metrics, "Address of the router for Prometheus; workers take free ports")
      ->check(command_line::Address())
      ->type_name("ADDR")
      ->capture_default_str();
  app.add_option(
         "--http", plan.http,
         "Address of OpenAI's and Anthropic's HTTP APIs (a gateway before the router); none: gRPC only")
      ->check(command_line::Address())
      ->type_name("ADDR");
  app.add_option("--cors-origin", plan.cors_origins,
                 "An origin whose web pages may use --http, as https://chat.example.com, or * for all; may "
                 "be repeated")
      ->type_name("ORIGIN");
  const std::string workers = "Workers (if an option is absent, the worker's own default)";
  app.add_option(
         "--threads", plan.threads,
         "Compute threads per worker (default: the workers share the machine's cores, and a step takes those "
         "that are idle)")
      ->type_name("N")
      ->check(CLI::Range(1, 1024))
      ->group(workers);
  app.add_option("--kv-memory", flags.kv_memory, "KV memory per worker, for example 512MiB")
      ->type_name("SIZE")
      ->group(workers);
  app.add_option(
         "--kv-disk", plan.kv_disk,
         "Folder for KV blocks beyond --kv-memory, in which each worker has one of its own, found again "
         "after a restart (default: none)")
      ->type_name("DIR")
      ->group(workers);
  command_line::AddNumbers(app, "--prefill-devices", flags.prefill_devices,
                           "GPUs of the prefill workers, --tp for each, as 0,2-3 (default: from 0 on)")
      ->group(workers);
  command_line::AddNumbers(app, "--decode-devices", flags.decode_devices,
                           "GPUs of the decode workers (default: those behind the prefill workers')")
      ->group(workers);
  app.add_option("--worker-listen", plan.worker_listen,
                 "Address of the first worker; each further one's port is one higher; 0 takes free ones")
      ->check(command_line::Address())
      ->type_name("ADDR")
      ->group(workers)
      ->capture_default_str();
  app.add_option("--worker-metrics", plan.worker_metrics, "Likewise, for Prometheus")
      ->check(command_line::Address())
      ->type_name("ADDR")
      ->group(workers)
      ->capture_default_str();
  app.add_option("--worker-prefix", plan.worker_prefix, "Begins the workers' names (default: nothing)")
      ->type_name("NAME")
      ->group(workers);
  app.add_option(
         "--prefill-flag", plan.prefill_flags,
         "A flag of prefill workers alone, for example --prefill-flag=--chunk-tokens=2048; repeatable")
      ->type_name("FLAG")
      ->allow_extra_args(false)
      ->group(workers);
  app.add_option("--decode-flag", plan.decode_flags, "A flag of decode workers alone, likewise; repeatable")
      ->type_name("FLAG")
      ->allow_extra_args(false)
      ->group(workers);
  app.add_option("--chunk-tokens", plan.chunk_tokens, "Prompt tokens of one request per step")
      ->type_name("N")
      ->check(CLI::PositiveNumber)
      ->group(workers);
  app.add_option("--token-budget", plan.token_budget, "Tokens per step over all requests")
      ->type_name("N")
      ->check(CLI::PositiveNumber)
      ->group(workers);
  app.add_option("--local-prefill-tokens", plan.local_prefill_tokens,
                 "Decode workers compute uncached rests of prompts of at most this many tokens themselves, "
                 "and prefill workers longer ones; unset: wherever it is predicted to be sooner")
      ->type_name("N")
      ->check(CLI::NonNegativeNumber)
      ->group(workers);
  app.add_option(
         "--speculation", plan.speculation,
         "What decode workers draft answers with: off, auto, or some of ngram, past-answers, grammar, "
         "draft-model and self with commas between them")
      ->type_name("HOW")
      ->check(command_line::OneOrSeveral({"off", "auto"},
                                         {"ngram", "past-answers", "grammar", "draft-model", "self"}))
      ->group(workers);
  app.add_option("--draft-model", plan.draft_model,
                 "A folder with a smaller model of the same tokenizer, which drafts answers")
      ->type_name("DIR")
      ->group(workers);
  app.add_flag("--self-draft", plan.self_draft, "A copy of the model's weights in 4 bits drafts answers")
      ->group(workers);
  app.add_option("--max-running", plan.max_running, "Sequences in a decode batch")
      ->type_name("N")
      ->check(CLI::PositiveNumber)
      ->group(workers);
  const std::vector<CLI::Option*> before = app.get_options();
  worker::AddEngineFlags(app, flags.worker);
  worker::RequireTierForKey(app);
  for (CLI::Option* option : app.get_options()) {
    if (std::find(before.begin(), before.end(), option) != before.end()) continue;
    option->group(workers);
    flags.worker_options.push_back(option);
  }
  const std::string service = "Service";
  app.add_flag("--no-router", flags.no_router, "Workers alone: routers elsewhere find them")->group(service);
  app.add_option(
         "--health", flags.health,
         "host:port for grpc.health.v1 of the whole service, without TLS, for kubelets (default: none)")
      ->check(command_line::Address())
      ->type_name("ADDR")
      ->group(service);
  app.add_option("--log-dir", flags.log_folder, "A log file per process in this folder")
      ->type_name("DIR")
      ->group(service);
  app.add_option(
         "--default-ttft-deadline", plan.default_ttft_seconds,
         "Refuse requests without a deadline whose first token is predicted later, in seconds; 0: none")
      ->type_name("SECONDS")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  app.add_option("--tail-share", plan.tail_share,
                 "Order of prefill queues: 0 serves most within the SLO, 1 in order of arrival, which spares "
                 "long prompts (default: the processes' own)")
      ->type_name("SHARE")
      ->check(CLI::Range(0.0, 1.0))
      ->group(service);
  app.add_option("--slo-ttft", plan.slo_ttft_seconds,
                 "Seconds to the first token that an answer may take: for metrics and prefill queues")
      ->type_name("SECONDS")
      ->check(CLI::PositiveNumber);
  app.add_option("--slo-tpot", plan.slo_tpot_seconds,
                 "Seconds per token after it: for metrics and the steps of decode workers")
      ->type_name("SECONDS")
      ->check(CLI::PositiveNumber);
  app.add_flag(
      "--vllm-metrics", plan.vllm_metrics,
      "The router shows the workers' load in metrics under vLLM's names too, for inference gateways");
  app.add_option("--prices", plan.prices,
                 "JSON file of what models cost per million tokens; none: nothing has a price")
      ->type_name("FILE");
  app.add_option("--ledger", plan.ledger,
                 "File that keeps the sums of what was used, for `baton usage`; none: no sums are kept")
      ->type_name("FILE");
  app.add_option(
         "--audit-log", plan.audit_log,
         "File to which a line of JSON is appended for each request, without its content; none: no lines")
      ->type_name("FILE");
  app.add_option("--trace-sample", plan.trace_sample,
                 "Share of the requests without a traceparent of which spans are sent to --otlp")
      ->type_name("SHARE")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 1.0));
  app.add_option("--tenants", plan.tenants, "JSON file of tenants, their keys and limits; none: open to all")
      ->type_name("FILE");
  rpc::AddFleetFlags(app, plan.security);
  rpc::AddPublicEndpointFlags(app, plan.security);
  app.add_option("--log-level", plan.log_level, "Lowest level that is logged")
      ->check(CLI::IsMember({"debug", "info", "warn", "error"}))
      ->capture_default_str()
      ->group(service);
  app.add_option("--announce", flags.announce,
                 "Write the addresses to this file as JSON once all processes are ready")
      ->type_name("FILE")
      ->group(service);
  app.add_option("--observability", flags.observability,
                 "Write to this folder the files with which Prometheus and Grafana watch these processes")
      ->type_name("DIR")
      ->group(service);
  app.add_flag("--json", flags.json, "Print the addresses as one line of JSON instead of the table")
      ->group(service);
  app.add_flag("--exit-with-parent", flags.exit_with_parent, "End when standard input ends")->group(service);
  app.add_option("--start-timeout", flags.start_timeout, "How long a process may take to be ready")
      ->type_name("TIME")
      ->capture_default_str()
      ->group(service);
  app.add_option("--drain-seconds", plan.drain_seconds, "Time for running work after Ctrl-C or SIGTERM")
      ->type_name("SECONDS")
      ->check(CLI::Range(0.0, 86400.0))
      ->capture_default_str()
      ->group(service);
  command_line::ShowFirst(app, {"--model", "--prefill", "--decode", "--listen", "--metrics", "--http",
                                "--weights", "--kv-memory", "--backend", "--tenants"});
}

}  // namespace baton::cli
