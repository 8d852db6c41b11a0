// DecodeWorker: a simulated decode worker: a batch that takes a step at a time, and the chunks of prompts
// that it prefills itself, which lengthen those steps. Blocks are the real pool's, reserved before anything
// is computed.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <queue>
#include <utility>
#include <vector>

#include "engine/kv/index/block_pool.h"
#include "lab/simulate/disk.h"
#include "lab/simulate/events.h"
#include "lab/simulate/fleet_model.h"
#include "lab/simulate/request_record.h"
#include "lab/simulate/variation.h"
#include "protocol/forecast/step_forecast.h"
#include "protocol/forecast/step_totals.h"

namespace baton::lab::simulate {

class DecodeWorker {
 public:
  struct Setup {
    // Seconds that a step with rows of a prompt may take while answers run, a block of rows aside.
    double slo_tpot = forecast::kDefaultSloTpot;
    // A local prefill is done, and others can use its blocks; the first token leaves.
    std::function<void(RequestRecord&)> prefilled;
    std::function<void(RequestRecord&)> finished;
    // Decides how long steps take.
    uint64_t seed = 0;
  };
  DecodeWorker(const FleetModel& model, Setup setup, Events& events);

  int64_t BlocksFor(const Request& request) const;
  bool HasRoom(const Request& request) const { return pool_.available() >= BlocksFor(request); }
  // There is room.
  void Reserve(RequestRecord& record);
  void PrefillLocally(RequestRecord& record);
  // Its KV has arrived and its first token has left.
  void Join(RequestRecord& record);

  kv::BlockPool& pool() { return pool_; }
  Disk& disk() { return disk_; }
  int64_t waiting_local_tokens() const;
  int64_t running() const { return static_cast<int64_t>(running_.size()); }
  // As the real worker tells it.
  int64_t AnswersInTime() const;
  const forecast::StepTotals& totals() const { return totals_; }

 private:
  struct Running {
    int64_t ends_at_step;
    uint64_t order;
    RequestRecord* record;
    friend bool operator<(const Running& a, const Running& b) {
      return std::pair(a.ends_at_step, a.order) > std::pair(b.ends_at_step, b.order);
    }
  };
  struct Local {
    RequestRecord* record;
    int64_t done;      // tokens, cached ones included
    int64_t rows = 0;  // in the step that runs
  };

  void Begin();
  // Gives the prompts that wait here their rows of the next step, beside a batch whose rows take `seconds`.
  // Returns the seconds that these rows take.
  double PlanLocal(int64_t batch, double seconds);
  void EndStep();
  // Behind its first token.
  void Enter(RequestRecord& record);
  void Publish(RequestRecord& record);
  void End(RequestRecord& record);

  const FleetModel& model_;
  const Setup setup_;
  Events& events_;
  kv::BlockPool pool_;
  Disk disk_;
  std::priority_queue<Running> running_;
  std::vector<RequestRecord*> joining_;
  std::deque<Local> local_;
  int64_t context_ = 0;
  int64_t steps_ = 0;
  uint64_t joined_ = 0;
  forecast::StepTotals totals_;
  double mean_context_ = 0;
  Variation variation_;
  bool busy_ = false;
};

}  // namespace baton::lab::simulate
