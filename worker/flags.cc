#include "worker/flags.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <limits>

#include "common/command_line/expert_flags.h"
#include "common/command_line/option_types.h"
#include "common/rpc/keepalive_flag.h"
#include "common/rpc/security_flags.h"
#include "common/telemetry/otlp_exporter.h"
#include "protocol/fleet/fingerprint_wire.h"
#include "text/config/ends_digest.h"
#include "text/config/model_path.h"

namespace baton::worker {
namespace {

// WorkerInfo.link_domain: a DNS name, as the names of nodes are, fits.
constexpr size_t kMaxLinkDomain = 253;

}  // namespace

void AddComputeFlags(CLI::App& app, engine::EngineOptions& engine) {
  app.add_option("--backend", engine.backend, "Kernels to compute with")
      ->check(CLI::IsMember({"cpu", "cuda", "reference"}))
      ->capture_default_str();
  app.add_option("--tp", engine.tp, "Ranks that share each step: GPUs, or slices of the threads")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  const std::vector<std::pair<std::string, tensor::DType>> dtypes = {
      {"f32", tensor::DType::kF32}, {"bf16", tensor::DType::kBF16}, {"f16", tensor::DType::kF16},
      {"f8", tensor::DType::kF8},   {"i8", tensor::DType::kI8},     {"i4", tensor::DType::kI4}};
  command_line::AddChoice(
      app, "--key-dtype", engine.key_dtype, dtypes,
      "Precision of keys in the KV cache (default: bf16, or f32 if matrices are multiplied in f32; on "
      "GPUs that of the model)");
  command_line::AddChoice(
      app, "--value-dtype", engine.value_dtype, dtypes,
      "Precision of values in the KV cache (default: bf16, or f32 if matrices are multiplied in f32; on "
      "GPUs that of the model)");
  app.add_option("--prefill-attention", engine.cuda.prefill_attention,
                 "Kernel of prompts' attention on GPUs: auto takes the faster one that proves right at start")
      ->check(CLI::IsMember({"auto", "mma", "wgmma"}))
      ->capture_default_str();
  command_line::AddChoice(
      app, "--weights", engine.weights, model::WeightPrecisions(),
      "Precision of matrices: as stored, or converted at load (f32, int8, int4: cpu, reference)");
  command_line::AddExpertFlags(app, engine.expert_file, engine.expert_memory);
}

void AddEngineFlags(CLI::App& app, Options& options) {
  AddComputeFlags(app, options.engine);
  app.add_flag(
      "--tolerant", options.engine.tolerant,
      "Pair with workers of another --tp on CPU too, whose sums round elsewhere: both sides have to say so");
  app.add_option("--link", options.link.name, "What carries KV between workers; both sides have the same")
      ->check(CLI::IsMember({"host", "nccl", "ucx"}))
      ->capture_default_str();
  app.add_option("--link-timeout", options.link.timeout_seconds,
                 "Seconds after which a transfer that gets nowhere ends its pair (nccl) or connection (ucx)")
      ->type_name("SECONDS")
      ->check(CLI::Range(0.1, 3600.0))
      ->capture_default_str();
  app.add_option("--link-pairs", options.link.max_pairs,
                 "Communicators that a sender keeps open; beyond it the least used one goes (nccl)")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  app.add_option("--link-receive-blocks", options.link.receive_blocks,
                 "Thread blocks of the GPU that receives may occupy at once; pairs take turns (nccl)")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  app.add_option("--link-domain", options.link_domain,
                 "Name of the workers among which the link is fast, an NVLink node's for example: routers "
                 "prefer pairs within one (default: none)")
      ->type_name("NAME")
      ->check(CLI::Validator(
          [](std::string& text) {
            return text.size() <= kMaxLinkDomain
                       ? std::string()
                       : fmt::format("has {} bytes, the most are {}", text.size(), kMaxLinkDomain);
          },
          ""));
  app.add_option("--peer-fetch", options.peer_fetch,
                 "Blocks from peers: auto (where that beats computing them), always, or never, nor for peers")
      ->check(CLI::IsMember({"auto", "always", "never"}))
      ->capture_default_str();
  app.add_option(
         "--chunk-reuse", options.chunk_reuse,
         "Take requests with reusable spans, whose answers are approximate (docs/chunk-reuse.md): FILE "
         "is what `baton eval chunk-reuse` wrote for this model, or the word unchecked; all workers "
         "have it, or none (default: none)")
      ->type_name("FILE");
  app.add_option("--cache-lease-share", options.cache_lease_share,
                 "Share of the KV blocks that clients' cache marks may keep in preference to others; 0: none")
      ->type_name("SHARE")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  app.add_option("--kv-disk-size", options.disk.bytes,
                 fmt::format("Most bytes of the files in --kv-disk, for example 200GiB (default: {})",
                             command_line::SizeText(options.disk.bytes)))
      ->transform(CLI::AsSizeValue(false))
      ->check(CLI::PositiveNumber);
  app.add_option(
         "--kv-shared", options.disk.shared_folder,
         "A folder for KV blocks that all workers of this machine and others have, a mounted volume for "
         "example; it is made if it is not there (default: none)")
      ->type_name("DIR");
  app.add_option("--kv-shared-size", options.disk.shared_bytes,
                 fmt::format("Most bytes of all files in --kv-shared, for example 2TiB (default: {})",
                             command_line::SizeText(options.disk.shared_bytes)))
      ->transform(CLI::AsSizeValue(false))
      ->check(CLI::PositiveNumber);
  app.add_option("--kv-disk-key", options.disk.key_file,
                 "File with the key that blocks in --kv-disk and --kv-shared are encrypted with: 64 hex "
                 "digits; keys that come "
                 "after it, with commas between, are still read (default: not encrypted)")
      ->type_name("FILE");
  app.add_option(
         "--otlp", options.otlp,
         "Base URL of an OpenTelemetry collector, http://HOST:4318, to which spans are sent (default: none)")
      ->type_name("URL")
      ->check(CLI::Validator(
          [](std::string& url) { return std::string(telemetry::ParseOtlpEndpoint(url).status().message()); },
          ""));
  app.add_option("--drain-grace", options.drain_grace, "Seconds that running work may take after SIGTERM")
      ->type_name("SECONDS")
      ->check(CLI::Range(0.0, 86400.0))
      ->capture_default_str();
}

void RequireTierForKey(CLI::App& app) {
  CLI::App* const of = &app;
  app.get_option("--kv-disk-key")
      ->check(CLI::Validator(
          [of](std::string&) {
            return of->get_option("--kv-disk")->empty() && of->get_option("--kv-shared")->empty()
                       ? std::string("is for blocks on disk: add --kv-disk or --kv-shared")
                       : std::string();
          },
          ""));
}

void AddFlags(CLI::App& app, Options& options) {
  app.add_option("--model", options.engine.model_folder, "Model folder in Hugging Face form, or a GGUF file")
      ->required()
      ->type_name("DIR")
      ->check(command_line::Unless(&model::WhyNothingIsAt));
  app.add_option("--model-name", options.model_name,
                 "What clients call the model (default: the folder's name)")
      ->type_name("NAME");
  app.add_option("--worker-id", options.worker_id, "Name of this worker (default: role and address)")
      ->type_name("NAME");
  app.add_option("--listen", options.listen, "host:port for gRPC; port 0 lets the system choose")
      ->type_name("ADDR")
      ->check(command_line::Address())
      ->capture_default_str();
  app.add_option("--health", options.health_listen,
                 "host:port for grpc.health.v1 alone, without TLS, for kubelets (default: none)")
      ->type_name("ADDR")
      ->check(command_line::Address());
  app.add_option("--metrics", options.metrics_listen, "host:port for Prometheus' /metrics")
      ->type_name("ADDR")
      ->check(command_line::Address())
      ->capture_default_str();
  command_line::AddNumbers(app, "--devices", options.engine.devices,
                           "GPUs to compute on, one per rank, as 0 or 2-3 (default: 0 to --tp - 1)");
  app.add_option("--threads", options.engine.threads, "Threads to compute with; 0 takes all cores")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  app.add_option(
         "--kv-memory", options.engine.kv_bytes,
         fmt::format("Memory for KV blocks, for example 512MiB; 0 takes what a GPU has left (default: "
                     "{}, on GPUs 0)",
                     command_line::SizeText(engine::EngineOptions::kHostKvBytes)))
      ->transform(CLI::AsSizeValue(false))
      ->check(CLI::NonNegativeNumber);
  app.add_option(
         "--kv-disk", options.disk.folder,
         "This worker's own folder for KV blocks beyond --kv-memory, found again after a restart; it is "
         "made if it is not there (default: none)")
      ->type_name("DIR");
  // From `baton serve` to its workers, and not for people.
  app.add_option("--share-cores", options.share_cores, "Share of the machine's cores, by name")->group("");
  rpc::AddKeepaliveFlag(app, options.keepalive);
  AddEngineFlags(app, options);
  RequireTierForKey(app);
  rpc::AddFleetFlags(app, options.security);
  app.add_flag("--exit-with-parent", options.exit_with_parent, "Leave when standard input ends");
  app.add_option("--log-level", options.log_level, "What is logged")
      ->check(CLI::IsMember({"debug", "info", "warn", "error", "off"}))
      ->capture_default_str();
}

fleet::v1::WorkerInfo Describe(fleet::v1::Role role, const std::string& worker_id, Incarnation incarnation,
                               const std::string& link, const Options& options, const engine::Engine& engine,
                               const forecast::StepCost& cost) {
  fleet::v1::WorkerInfo info;
  info.set_worker_id(worker_id);
  info.set_role(role);
  info.set_incarnation(incarnation.value());
  *info.mutable_fingerprint() = protocol::ToProto(engine.fingerprint());
  info.mutable_fingerprint()->set_link(link);
  info.set_block_hash_domain(engine.fingerprint().Digest());
  fleet::v1::StepCost& step_cost = *info.mutable_step_cost();
  step_cost.set_base_seconds(cost.base);
  step_cost.set_sequence_seconds(cost.sequence);
  step_cost.set_context_seconds(cost.context);
  step_cost.set_token_seconds(cost.token);
  step_cost.set_pair_seconds(cost.pair);
  info.set_chunk_tokens(static_cast<uint32_t>(options.chunk_tokens));
  if (options.local_prefill_tokens.has_value()) {
    info.set_local_prefill_tokens(static_cast<uint32_t>(
        std::min<int64_t>(*options.local_prefill_tokens, std::numeric_limits<uint32_t>::max())));
  }
  info.set_peer_fetch(options.peer_fetch != "never");
  info.set_chunk_reuse(!options.chunk_reuse.empty());
  info.set_link_domain(options.link_domain);
  // A trailing slash would leave no name.
  const auto folder = std::filesystem::path(options.engine.model_folder + "/").parent_path().filename();
  info.set_model(options.model_name.empty() ? folder.string() : options.model_name);
  info.set_context_tokens(static_cast<uint32_t>(engine.config().context));
  info.set_vocabulary_tokens(static_cast<uint32_t>(engine.config().vocabulary));
  // A prefill worker ends no answers.
  if (role == fleet::v1::ROLE_DECODE) info.set_ends_digest(model::EndsDigest(engine.config().eos));
  return info;
}

}  // namespace baton::worker
