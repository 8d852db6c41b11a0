// Placement: where a choice goes, as the dispatcher hands it to the request. The booking is already made, and
// the prefix index already counts on both workers to hold the prompt. The request keeps it until the choice
// has ended, tells how it went, and gets the explanation that it asked for. Movable; one thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "baton/fleet/v1/decode.pb.h"
#include "baton/v1/generation.pb.h"
#include "router/fleet/booking.h"
#include "router/fleet/worker.h"
#include "router/placement/policy.h"

namespace baton::router {

// State of the decode worker that ran a session's last prompt.
struct LastWorker {
  bool here = false;   // in the fleet
  int64_t blocks = 0;  // leading blocks of the new prompt that it is known or expected to hold
};

struct Placement;

// Hears how placements went, to learn from it. Any thread.
class PlacementObserver {
 public:
  virtual ~PlacementObserver() = default;
  // The first token of the choice has come, `took` after the worker was dialed.
  virtual void OnFirstToken(const Placement& placement, absl::Duration took) = 0;
  // The choice has finished. Adds the explanation to `finished` if the request asked for it.
  virtual void OnFinished(const Placement& placement, v1::Finished* finished,
                          const baton::fleet::v1::StepMeans& steps) = 0;
};

struct Placement {
  fleet::Booking booking;
  std::shared_ptr<const fleet::Worker> decode;
  std::vector<std::shared_ptr<const fleet::Worker>> prefill;  // best first
  // The worker that computes the prompt should fetch selection.fetch_blocks of its leading blocks from this
  // peer; null: nothing is fetched.
  std::shared_ptr<const fleet::Worker> fetch_from;
  placement::Selection selection;
  // Copied: the request's callbacks hold the call that holds this.
  int64_t prompt_tokens = 0;
  int64_t prompt_blocks = 0;
  bool debug = false;  // the request asked for an explanation
  // If the request names one.
  LastWorker last_worker;
  // Outlives it; null: nobody learns.
  PlacementObserver* observer = nullptr;

  // As PlacementObserver's.
  void FirstToken(absl::Duration took) const {
    if (observer != nullptr) observer->OnFirstToken(*this, took);
  }
  void Finished(v1::Finished* finished, const baton::fleet::v1::StepMeans& steps) const {
    if (observer != nullptr) observer->OnFinished(*this, finished, steps);
  }

  void Explain(const std::string& policy, v1::PlacementInfo* info) const;
  // Nothing if the prompt was computed on a worker that was not selected, or by a worker that has left.
  // `steps` may be empty: then nothing is said of a step.
  std::optional<placement::Outcome> OutcomeOf(const v1::Finished& finished,
                                              const baton::fleet::v1::StepMeans& steps) const;
};

}  // namespace baton::router
