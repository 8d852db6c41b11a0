// The options that prefill and decode workers share: as flags, and as what the worker says of itself.
#pragma once

#include <optional>
#include <string>

#include "baton/fleet/v1/worker.pb.h"
#include "common/base/ids.h"
#include "common/rpc/channel.h"
#include "common/rpc/process.h"
#include "common/rpc/security_options.h"
#include "engine/engine.h"
#include "engine/kv/index/block_pool.h"
#include "protocol/forecast/step_forecast.h"
#include "worker/disk_cache.h"
#include "worker/kv_link.h"

namespace CLI {
class App;
}

namespace baton::worker {

class StepGate;

struct Options {
  engine::EngineOptions engine;
  LinkOptions link;
  // The model's name for clients; empty: the folder's name.
  std::string model_name;
  // Name of this worker in metrics and answers; empty: role and address.
  std::string worker_id;
  // Names the workers among which its link is fast; empty: not told.
  std::string link_domain;
  std::string listen = "127.0.0.1:0";
  // Empty: no port for health checks alone.
  std::string health_listen;
  // Empty: no metrics page.
  std::string metrics_listen = "127.0.0.1:0";
  rpc::ProcessOptions process = rpc::DrainingFor(30);
  // This worker's share of the cores that the workers of its machine have together, by its name
  // (device::CoreShare); empty: it has cores of its own.
  std::string share_cores;
  // Peers that may speak to this worker, and its own credentials.
  rpc::SecurityOptions security;
  // After how much silence a ping goes to a peer, and how long its answer may take, towards callers and the
  // called; empty: the defaults of rpc/channel.h for each.
  std::optional<rpc::Keepalive> keepalive;
  // Base URL of the collector to which spans go; empty: none are sent.
  std::string otlp;
  // Rows of the longest chunk of a prompt that a step computes: the longest that is measured at the start.
  int64_t chunk_tokens = 512;
  // Decode workers: the longest uncached rest of a prompt that is computed here while prefill workers are up;
  // empty: the router chooses.
  std::optional<int64_t> local_prefill_tokens;
  // "auto": blocks are fetched from peers where that is predicted to be faster than computing them; "always":
  // wherever a peer is named; "never", nor are peers served.
  std::string peer_fetch = "auto";
  // Blocks on disk. They are loaded and written by prediction, or, if peer_fetch is "always", always.
  DiskOptions disk;
  // Allows reusable spans in prompts: the path of a gate file, or kUncheckedReuse (chunk_gate.h). Empty: they
  // may not.
  std::string chunk_reuse;
  // The share of all KV blocks that cache marks may keep, 0 to 1 (kv::LeaseTable).
  double cache_lease_share = kv::BlockPool::kLeaseShare;
  // For tests. It outlives the worker; null: the worker steps whenever it can.
  StepGate* step_gate = nullptr;
};

// Both bind flags to `options`, which outlives the parse.
void AddFlags(CLI::App& app, Options& options);
// The part of AddFlags that says how a worker computes and ships, not where it is: one who starts several
// workers hands it on to each as it is.
void AddEngineFlags(CLI::App& app, Options& options);
// The part of AddEngineFlags that says how the engine computes.
void AddComputeFlags(CLI::App& app, engine::EngineOptions& engine);
// A key is for a tier: once all of --kv-disk, --kv-shared and --kv-disk-key are flags of `app`.
void RequireTierForKey(CLI::App& app);

// The worker's description for watchers. `cost`: as measured at its start.
fleet::v1::WorkerInfo Describe(fleet::v1::Role role, const std::string& worker_id, Incarnation incarnation,
                               const std::string& link, const Options& options, const engine::Engine& engine,
                               const forecast::StepCost& cost);

}  // namespace baton::worker
