// The flags of a request that chat and generate share: where to send it, how to sample, when to stop. Each
// flag is a field of the wire; what is not given is not sent, so that the model's own defaults hold. One
// thread.
#pragma once

#include <CLI/App.hpp>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "baton/v1/generation.pb.h"
#include "cli/client/inference_client.h"
#include "cli/commands.h"
#include "cli/local_relay.h"
#include "common/rpc/security_options.h"

namespace baton::cli {

// The server that is asked, and as whom.
struct ServerFlags {
  std::string server;
  std::string wait = "0";
  std::string timeout;
  rpc::SecurityOptions security;

  // `until` ends the help of --wait: "Keep trying for this long, for example 30s, ...".
  void AddTo(CLI::App& app, const std::string& until);
  // Checks what needs no server. INVALID_ARGUMENT: misuse.
  absl::Status Check() const;
  // No --timeout: infinite.
  absl::Duration Timeout() const;
};

// A server, or a relay of this process in its place, and one of the models behind it.
struct TargetFlags : ServerFlags {
  std::string model_folder;
  std::string model_name;
  int threads = 0;
  std::string kv_memory;
  std::string backend = "cpu";
  std::string weights = "stored";
  std::string expert_file;
  int64_t expert_memory = 0;

  void AddTo(CLI::App& app);
  absl::Status Check() const;
};

// A connection, and the relay behind it if it is ours.
struct Target {
  LocalRelay relay;
  // Credentials for other channels to the same server.
  std::shared_ptr<const rpc::Security> security;
  std::unique_ptr<InferenceClient> client;
};

// `cancel_fd` readable: CANCELLED.
absl::StatusOr<Target> ReachServer(const ServerFlags& flags, int cancel_fd);
// Waits, within --wait, for a decode worker of the model too. A local relay that converts weights shows on
// standard error how far it is.
absl::StatusOr<Target> Reach(const TargetFlags& flags, int cancel_fd, const CliContext& context);

struct SamplingFlags {
  std::optional<uint32_t> max_tokens;
  std::optional<float> temperature;
  std::optional<float> top_p;
  std::optional<int32_t> top_k;
  std::optional<float> min_p;
  std::optional<uint64_t> seed;
  std::optional<float> repetition_penalty;
  std::optional<float> presence_penalty;
  std::optional<float> frequency_penalty;
  std::vector<std::string> stop;
  std::vector<int32_t> stop_token_ids;
  bool ignore_eos = false;

  void AddTo(CLI::App& app);
  v1::SamplingParams Sampling() const;
  v1::StopConditions Stop() const;
};

// Flags of speculative decoding: they change how long an answer takes and in what pieces it comes, not what
// it says.
struct SpeculationFlags {
  std::string speculation;  // empty: as the server has it
  bool even_frames = false;

  void AddTo(CLI::App& app);
  void Set(v1::RequestOptions& options, v1::OutputOptions& output) const;
};

// The form of the answer.
struct ConstraintFlags {
  std::string schema_file;

  void AddTo(CLI::App& app);
  // Nothing: the answer is free. NOT_FOUND: the file can't be read.
  absl::StatusOr<std::optional<v1::Constraint>> Read() const;
};

}  // namespace baton::cli
