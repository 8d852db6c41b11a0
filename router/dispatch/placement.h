// Placement: where a choice goes, as the dispatcher hands it to the request. The booking is already made, and
// the prefix index already counts on both workers to hold the prompt. The request keeps it until the choice
// has ended; the two functions refer to the dispatcher, which outlives every request. Movable; one thread at
// a time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
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

struct Placement {
  fleet::Booking booking;
  std::shared_ptr<const fleet::Worker> decode;
  std::vector<std::shared_ptr<const fleet::Worker>> prefill;  // best first
  // The worker that computes the prompt should fetch this many of its leading blocks from this peer; null:
  // nothing is fetched.
  std::shared_ptr<const fleet::Worker> fetch_from;
  int64_t fetch_blocks = 0;
  // From now to the first token; zero: the policy predicts nothing.
  placement::Prediction predicted;
  // If the request names one.
  LastWorker last_worker;
  // To be called when the first token of the choice has come, `took` after the worker was dialed.
  std::function<void(absl::Duration took)> first_token;
  // To be called when the choice is finished: placement learns from what it really took, and adds its
  // explanation to `finished` if the request asked for it.
  std::function<void(v1::Finished* finished, const baton::fleet::v1::StepMeans& steps)> learn;
};

}  // namespace baton::router
