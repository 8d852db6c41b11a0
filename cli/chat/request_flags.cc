#include "cli/chat/request_flags.h"

#include <fmt/format.h>

#include <cstdio>
#include <fstream>
#include <iterator>
#include <optional>
#include <utility>

#include "absl/time/clock.h"
#include "cli/chat/token_ids.h"
#include "cli/show/progress.h"
#include "cli/show/quantity.h"
#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/command_line/expert_flags.h"
#include "common/command_line/option_types.h"
#include "common/rpc/security.h"
#include "common/rpc/security_flags.h"
#include "common/rpc/speculation_names.h"

namespace baton::cli {
void ServerFlags::AddTo(CLI::App& app, const std::string& until) {
  app.add_option("--server", server, fmt::format("A router, host:port (default {})", kDefaultServer))
      ->type_name("ADDR");
  app.add_option("--wait", wait, fmt::format("Keep trying for this long, for example 30s, {}", until))
      ->type_name("TIME");
  app.add_option("--timeout", timeout, "Deadline of each request, for example 2m (default: none)")
      ->type_name("TIME");
  rpc::AddClientFlags(app, security);
}

absl::Status ServerFlags::Check() const {
  if (!server.empty()) BATON_RETURN_IF_ERROR(ParseServer(server).status());
  BATON_RETURN_IF_ERROR(ParseDuration(wait).status());
  if (!timeout.empty()) BATON_RETURN_IF_ERROR(ParseDuration(timeout).status());
  return absl::OkStatus();
}

absl::Duration ServerFlags::Timeout() const {
  return timeout.empty() ? absl::InfiniteDuration() : *ParseDuration(timeout);
}

void TargetFlags::AddTo(CLI::App& app) {
  ServerFlags::AddTo(app, "to reach the server, and until it has a decode worker of the model");
  app.add_option("--model", model_folder,
                 "Instead of a server: a model folder, served by a whole relay inside this process")
      ->type_name("DIR")
      ->excludes("--server");
  app.add_option("--model-name", model_name, "Which of the server's models; not needed if it has one")
      ->type_name("NAME");
  const std::string local = "With --model";
  app.add_option("--threads", threads, "Compute threads per worker (default: the worker's)")
      ->type_name("N")
      ->needs("--model")
      ->check(CLI::Range(1, 1024))
      ->group(local);
  app.add_option("--kv-memory", kv_memory, "KV memory per worker, for example 512MiB")
      ->type_name("SIZE")
      ->needs("--model")
      ->group(local);
  app.add_option("--backend", backend, "cpu, or reference (slow and simple, to compare with)")
      ->needs("--model")
      ->check(CLI::IsMember({"cpu", "reference"}))
      ->group(local);
  app.add_option("--weights", weights,
                 "Precision of matrices: stored, or f32, bf16, int8 or int4, converted at load")
      ->needs("--model")
      ->check(CLI::IsMember({"stored", "f32", "bf16", "int8", "int4"}))
      ->group(local);
  for (CLI::Option* option : command_line::AddExpertFlags(app, expert_file, expert_memory)) {
    option->needs("--model")->group(local);
  }
}

absl::Status TargetFlags::Check() const {
  BATON_RETURN_IF_ERROR(ServerFlags::Check());
  if (!kv_memory.empty()) BATON_RETURN_IF_ERROR(ParseBytes(kv_memory).status());
  return absl::OkStatus();
}

absl::StatusOr<Target> ReachServer(const ServerFlags& flags, int cancel_fd) {
  std::string address = kDefaultServer;
  if (!flags.server.empty()) {
    BATON_ASSIGN_OR_RETURN(address, ParseServer(flags.server));
  }
  BATON_ASSIGN_OR_RETURN(const absl::Duration patience, ParseDuration(flags.wait));
  Target target;
  BATON_ASSIGN_OR_RETURN(target.security, rpc::Security::Load(flags.security));
  BATON_ASSIGN_OR_RETURN(target.client,
                         InferenceClient::Connect(address, patience, cancel_fd, target.security.get()));
  return target;
}

absl::StatusOr<Target> Reach(const TargetFlags& flags, int cancel_fd, const CliContext& context) {
  BATON_ASSIGN_OR_RETURN(const absl::Duration patience, ParseDuration(flags.wait));
  const absl::Time deadline = absl::Now() + patience;
  LocalRelay relay;
  ServerFlags server = flags;
  if (!flags.model_folder.empty()) {
    LocalRelayOptions options;
    options.model_folder = flags.model_folder;
    options.threads = flags.threads;
    if (!flags.kv_memory.empty()) {
      BATON_ASSIGN_OR_RETURN(options.kv_bytes, ParseBytes(flags.kv_memory));
    }
    options.backend = flags.backend;
    options.weights = flags.weights;
    options.expert_file = flags.expert_file;
    options.expert_memory = flags.expert_memory;
    const MonotonicClock clock;
    std::optional<Progress> shown;
    std::string of;  // the worker that `shown` is about
    options.progress = [&](const std::string& worker, int64_t done, int64_t all) {
      if (worker != std::exchange(of, worker)) {
        shown.emplace(fmt::format("{}: weights to {}", worker, flags.weights), all, stderr, context.err,
                      clock);
      }
      shown->Update(done);
    };
    BATON_ASSIGN_OR_RETURN(relay, context.start_local_relay(options));
    server.server = relay.address;
  }
  BATON_ASSIGN_OR_RETURN(Target target, ReachServer(server, cancel_fd));
  target.relay = std::move(relay);
  BATON_RETURN_IF_ERROR(target.client->AwaitDecodeWorker(flags.model_name, deadline));
  return target;
}

void SamplingFlags::AddTo(CLI::App& app) {
  const std::string group = "Sampling (if an option is absent, the model's own default)";
  app.add_option("-m,--max-tokens", max_tokens, "Maximum number of tokens to generate")
      ->type_name("N")
      ->group(group);
  app.add_option("-t,--temperature", temperature, "0 takes the likeliest token each time")
      ->type_name("T")
      ->group(group);
  app.add_option("--top-k", top_k, "Keep the K likeliest tokens; 0 keeps all")->type_name("K")->group(group);
  app.add_option("--top-p", top_p, "Keep the smallest set of this probability, in (0, 1]")
      ->type_name("P")
      ->group(group);
  app.add_option("--min-p", min_p, "Drop tokens less likely than P times the likeliest")
      ->type_name("P")
      ->group(group);
  app.add_option("--seed", seed, "The same seed gives the same answer, on any worker")
      ->type_name("N")
      ->transform(command_line::WholeNumber())
      ->group(group);
  app.add_option("--repetition-penalty", repetition_penalty, "Over 1 discourages tokens seen before")
      ->type_name("X")
      ->group(group);
  app.add_option("--presence-penalty", presence_penalty, "Subtracted once from tokens already generated")
      ->type_name("X")
      ->group(group);
  app.add_option("--frequency-penalty", frequency_penalty,
                 "Subtracted per occurrence from tokens already generated")
      ->type_name("X")
      ->group(group);
  app.add_option("--stop", stop, "End before this text; may be given several times")
      ->type_name("TEXT")
      ->allow_extra_args(false)
      ->group(group);
  AddTokenIds(app, "--stop-token-ids", stop_token_ids, "End after one of these tokens, 1,2,3")->group(group);
  app.add_flag("--ignore-eos", ignore_eos, "Continue past the model's end of answer, up to --max-tokens")
      ->group(group);
}

v1::SamplingParams SamplingFlags::Sampling() const {
  v1::SamplingParams params;
  if (temperature) params.set_temperature(*temperature);
  if (top_k) params.set_top_k(*top_k);
  if (top_p) params.set_top_p(*top_p);
  if (min_p) params.set_min_p(*min_p);
  if (seed) params.set_seed(*seed);
  if (repetition_penalty) params.set_repetition_penalty(*repetition_penalty);
  if (presence_penalty) params.set_presence_penalty(*presence_penalty);
  if (frequency_penalty) params.set_frequency_penalty(*frequency_penalty);
  return params;
}

v1::StopConditions SamplingFlags::Stop() const {
  v1::StopConditions conditions;
  if (max_tokens) conditions.set_max_tokens(*max_tokens);
  for (const std::string& text : stop) conditions.add_stop(text);
  for (const int32_t id : stop_token_ids) conditions.add_stop_token_ids(id);
  conditions.set_ignore_eos(ignore_eos);
  return conditions;
}

void SpeculationFlags::AddTo(CLI::App& app) {
  app.add_option("--speculation", speculation,
                 "How the server drafts tokens for the model to check; the answer is the same in any case "
                 "(default: as "
                 "the server does)")
      ->type_name("HOW")
      ->check(CLI::IsMember(rpc::SpeculationWords()));
  app.add_flag(
      "--even-frames", even_frames,
      "One token in each message of the server, also where it accepted several drafted ones at once: "
      "sizes of messages then do not tell how many");
}

void SpeculationFlags::Set(v1::RequestOptions& options, v1::OutputOptions& output) const {
  if (const auto how = rpc::SpeculationOf(speculation); how.has_value()) options.set_speculation(*how);
  output.set_even_frames(even_frames);
}

void ConstraintFlags::AddTo(CLI::App& app) {
  app.add_option("--schema", schema_file, "JSON Schema that the answer obeys, whatever the model would write")
      ->type_name("FILE");
}

absl::StatusOr<std::optional<v1::Constraint>> ConstraintFlags::Read() const {
  if (schema_file.empty()) return std::nullopt;
  std::ifstream file(schema_file, std::ios::binary);
  if (!file) return absl::NotFoundError(fmt::format("--schema {}: can't be read", schema_file));
  v1::Constraint constraint;
  constraint.set_json_schema(std::string(std::istreambuf_iterator<char>(file), {}));
  return constraint;
}

}  // namespace baton::cli
