// Simulation: one policy, one load, one fleet, from the first arrival to the last token. The router's own
// code decides (admission queue, prefix index, dispatch core with its placement policy), and the workers' own
// queue and block pool carry it out; only the machines' times are a model. Deterministic: a function of its
// arguments.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lab/simulate/decode_worker.h"
#include "lab/simulate/disk.h"
#include "lab/simulate/events.h"
#include "lab/simulate/fleet_model.h"
#include "lab/simulate/links.h"
#include "lab/simulate/load.h"
#include "lab/simulate/prefill_worker.h"
#include "lab/simulate/request_record.h"
#include "protocol/forecast/transfer_forecast.h"
#include "router/admission/admission_controller.h"
#include "router/admission/request.h"
#include "router/dispatch/dispatch_core.h"
#include "router/index/prefix_index.h"
#include "router/placement/policy.h"

namespace baton::lab::simulate {

// From whom prefill workers can fetch a prefix.
enum class Fetch { kNever, kFromPrefill, kFromAll };

// A policy, and how the workers under it behave.
struct PolicyUnderTest {
  std::string name;
  std::function<std::unique_ptr<router::placement::Policy>(uint64_t seed)> policy;
  Discipline discipline = Discipline::kFirstCome;
  kv::Eviction eviction = kv::Eviction::kLeastRecentlyUsed;
  Fetch fetch = Fetch::kNever;
  // Workers tell their link's domain, and decode workers what hand-offs take by prefill worker. Only where
  // the fleet has domains.
  bool tells_links = true;
  // All prefill workers share one cache that never forgets: the bound.
  bool shared_cache = false;
  // Max seconds to the first token: a request that can't meet it is refused; 0: any time.
  double default_ttft = 0;
  // Targets of queues that are ordered by virtual deadlines.
  forecast::QueueTargets targets = forecast::QueueTargets::For(forecast::kDefaultSloTtft);
  // No more answers go to a decode worker than those with which its steps meet slo_tpot.
  bool in_time = false;
  // Max seconds of a decode step with rows of prompts, while answers run.
  double slo_tpot = forecast::kDefaultSloTpot;
};

struct RunResult {
  std::vector<RequestRecord> records;  // in the order of the load
  std::vector<double> prefill_busy;    // seconds, by worker
  std::vector<int64_t> prefill_served;
  double seconds = 0;  // from the first arrival to the last
};

class Simulation {
 public:
  // All outlive it.
  Simulation(const FleetModel& model, const PolicyUnderTest& under_test, const std::vector<Request>& load,
             uint64_t seed);
  // `progress` is told now and then how many requests have ended.
  RunResult Run(const std::function<void(int64_t)>& progress);

 private:
  using WorkerState = router::placement::WorkerState;

  void Arrive(size_t at);
  void Pump();
  enum class Placing { kPlaced, kNoRoom, kTooLate };
  router::Request Asked(const RequestRecord& record) const;
  Placing Place(RequestRecord& record);
  void Refuse(RequestRecord& record);
  void Look(const RequestRecord& record);
  std::optional<PrefillWorker::Peer> FetchFrom(const RequestRecord& record);
  void Book(RequestRecord& record);
  void Unbook(const RequestRecord& record);
  void Computed(RequestRecord& record);
  void FirstToken(RequestRecord& record);
  void Finished(RequestRecord& record);
  // The decode worker's forecast of hand-offs, from one whose last block came at `arrives`.
  void Learn(const RequestRecord& record, double arrives);
  void Tell(int prefill_worker);
  void Tell(DecodeWorker& worker, const WorkerState& state);
  void Introduce(router::WorkerSlot slot, uint64_t seed, double slowness = 1);
  void JoinDisk(WorkerState& state);
  void Tell(kv::BlockPool& pool, Disk& disk, const WorkerState& state);
  absl::Time Now() const { return absl::UnixEpoch() + absl::Seconds(events_.now()); }

  const FleetModel& model_;
  const PolicyUnderTest& under_test_;
  const std::vector<Request>& load_;
  Events events_;
  Links links_;
  router::index::PrefixIndex index_;
  router::DispatchCore core_;
  router::admission::AdmissionController admission_;
  absl::flat_hash_map<router::admission::EntryId, RequestRecord*> entries_;

  std::vector<std::unique_ptr<kv::BlockPool>> pools_;
  std::vector<std::unique_ptr<Disk>> disks_;  // of the prefill workers
  std::vector<std::unique_ptr<PrefillWorker>> prefill_;
  std::vector<std::unique_ptr<DecodeWorker>> decode_;

  // The router's view, kept up to date by bookings.
  std::vector<WorkerState> prefill_states_;
  std::vector<WorkerState> decode_states_;
  std::vector<std::vector<router::placement::Booked>> booked_;
  // By decode worker.
  std::vector<forecast::TransferForecast> transfers_;
  std::vector<std::vector<router::placement::PeerCost>> peer_costs_;
  std::vector<WorkerState> open_decode_;
  std::vector<int> open_decode_numbers_;
  std::vector<WorkerState> open_prefill_;
  std::vector<int> open_prefill_numbers_;

  std::vector<RequestRecord> records_;
  int64_t ended_ = 0;
  int64_t unanswered_ = 0;  // placed, and no first token yet
};

}  // namespace baton::lab::simulate
