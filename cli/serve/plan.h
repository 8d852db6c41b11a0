// Which processes `baton serve` runs, and with which flags. Pure, except that it checks whether the binaries
// exist, and writes the list of the classifier when the router is started, which needs its worker's address.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/serve/cores.h"
#include "cli/serve/supervisor.h"
#include "common/rpc/security_options.h"

namespace baton::cli {

struct ServePlan {
  std::string model_folder;
  std::string model_name;
  std::string output_format;  // of the router; empty: found by the model's template
  // A classifier beside it, with a worker of its own (docs/moderation.md); empty: none. `moderation_file` is
  // where the router's list of it is written (--models).
  std::string moderation_model;
  std::string moderation_file;
  int prefill = 1;
  int decode = 1;
  // Without it, routers elsewhere find the workers.
  bool router = true;
  // Of the router.
  std::string listen = "127.0.0.1:8470";
  std::string metrics = "127.0.0.1:9470";
  // Of the gateway before the router; empty: there is none.
  std::string http;
  std::vector<std::string> cors_origins;  // whose pages may use it
  // Of the first worker; each further one's port is one higher, those of prefill workers first. With port 0
  // the system chooses each.
  std::string worker_listen = "127.0.0.1:0";
  std::string worker_metrics = "127.0.0.1:0";
  // Begins the workers' ids: "PREFIX-prefill-0"; empty: "prefill-0".
  std::string worker_prefix;
  // GPUs, by worker (DeviceShares). Empty: none is named.
  std::vector<std::vector<int>> prefill_devices, decode_devices;
  // Of each worker; 0: its share of `cores`.
  int threads = 0;
  ThreadShares cores;
  // Each worker's name of its share of cores that all have together (device::CoreTable::NameOf), in the order
  // of MakeSpecs; empty: each has threads of its own.
  std::vector<std::string> core_shares;
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
  // The flags that worker::AddEngineFlags declares, handed to every worker unchanged.
  std::vector<std::string> worker_flags;
  // Further flags of the workers of one role.
  std::vector<std::string> prefill_flags, decode_flags;
  std::string log_level = "info";
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
inline constexpr char kModeratorName[] = "moderator";

// Workers first, then the router, which needs their addresses, then the gateway, which needs the router's.
// NOT_FOUND if a binary is not in `binary_folder`; INVALID_ARGUMENT if there are fewer ports than workers.
absl::StatusOr<std::vector<ProcessSpec>> MakeSpecs(const ServePlan& plan, const std::string& binary_folder);

}  // namespace baton::cli
