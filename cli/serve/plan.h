// Which processes `baton serve` runs, and with which flags. Pure, except that it checks whether the binaries
// exist, and writes the router's models file when the router is started, which needs the workers' addresses.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/serve/cores.h"
#include "cli/serve/flag_list.h"
#include "cli/serve/served_models.h"
#include "cli/serve/supervisor.h"
#include "common/rpc/security_options.h"
#include "nlohmann/json.hpp"

namespace baton::cli {

struct ServePlan {
  std::vector<ServedModel> models;  // at least one
  std::string output_format;        // of the first; empty: found by its template
  // The field of this name of the router's models file; null: none.
  nlohmann::json moderation;
  // The router's models file is written here, if it needs one.
  std::string models_file;
  // Without it, routers elsewhere find the workers.
  bool router = true;
  // The router's addresses.
  std::string listen = "127.0.0.1:8470";
  std::string metrics = "127.0.0.1:9470";
  // Address of the gateway before the router; empty: there is none.
  std::string http;
  std::vector<std::string> cors_origins;  // whose pages may use it
  // Addresses of the first worker; each further one's port is one higher, those of prefill workers first.
  // With port 0 the system chooses each.
  std::string worker_listen = "127.0.0.1:0";
  std::string worker_metrics = "127.0.0.1:0";
  // Begins the workers' ids: "PREFIX-prefill-0"; empty: "prefill-0".
  std::string worker_prefix;
  // Threads of each worker; 0: its share of `cores`.
  int threads = 0;
  ThreadShares cores;
  // By name of worker, its name of its share of cores that all have together (device::CoreTable::NameOf); a
  // worker without one has threads of its own.
  std::map<std::string, std::string> core_shares;
  // 0 or empty: the worker's own default.
  int64_t kv_bytes = 0;
  // Each worker has a folder in this one, by its name.
  std::string kv_disk;
  int chunk_tokens = 0;
  int token_budget = 0;
  int local_prefill_tokens = -1;
  std::string speculation;
  std::string draft_model;
  bool self_draft = false;
  int max_running = 0;
  // Limit for the predicted TTFT of a request without a deadline; 0: none. A user of one machine
  // would rather wait than be refused.
  double default_ttft_seconds = 0;
  // Share of the tail in the order of prefill queues, in [0, 1]; negative: the processes' own default.
  double tail_share = -1;
  // The SLO, in seconds; 0: the processes' own default.
  double slo_ttft_seconds = 0;
  double slo_tpot_seconds = 0;
  // The flags that worker::AddEngineFlags declares, as "--name=value" or "--name", handed to every worker
  // unchanged.
  std::vector<std::string> worker_flags;
  // Further flags of the workers of one role. Of flags of one name the last one counts: those of all workers,
  // of their role, of their model.
  std::vector<std::string> prefill_flags, decode_flags;
  std::string log_level = "info";
  // Seconds that each process gives its running work after SIGTERM.
  double drain_seconds = 10;
  // Handed on to the processes (rpc/security_flags.h). All show the same certificate, which needs the
  // addresses that they listen on among its names, or `peer_name`.
  rpc::SecurityOptions security;
  std::string tenants;
  std::string prices;
  // The router shows its load under vLLM's names too.
  bool vllm_metrics = false;
  std::string ledger;
  std::string audit_log;
  // Where the router's spans go, which is in worker_flags for the workers, and of which share of requests.
  std::string otlp;
  double trace_sample = 1;
};

inline constexpr char kRouterName[] = "router";
inline constexpr char kGatewayName[] = "gateway";

// The flags of a worker that say how it computes: of flags of one name those of its model, else of its role,
// else of all workers count. Without those that its place sets (name, addresses, share of cores).
FlagList FlagsOf(const ServePlan& plan, const ServedWorker& worker);

// The router's models file is needed: the flags of the router name one model alone.
bool NeedsModelsFile(const ServePlan& plan);

// Workers first (prefill workers before decode workers, and a classifier's last), then the router, which
// needs their addresses, then the gateway, which needs the router's. NOT_FOUND if a binary is not in
// `binary_folder`; INVALID_ARGUMENT if there are fewer ports than workers.
absl::StatusOr<std::vector<ProcessSpec>> MakeSpecs(const ServePlan& plan, const std::string& binary_folder);

}  // namespace baton::cli
