// Decision: what placement decided about a choice. It is kept until the choice has ended, and then explains
// itself to a client that asked for it and says what the choice really took. The dispatcher makes it; it
// never changes afterwards. Any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "baton/fleet/v1/decode.pb.h"
#include "baton/v1/generation.pb.h"
#include "router/fleet/worker.h"
#include "router/placement/policy.h"

namespace baton::router {

struct Decision {
  std::shared_ptr<const fleet::Worker> decode;
  std::vector<std::shared_ptr<const fleet::Worker>> prefill;  // best first
  placement::Selection selection;
  int64_t prompt_tokens = 0;
  int64_t prompt_blocks = 0;
  // Blocks of it that the index counted on the two to hold.
  int64_t decode_matched = 0;
  int64_t prefill_matched = 0;
  std::string fetch_from;  // the peer's id
  bool debug = false;

  void Explain(const std::string& policy, v1::PlacementInfo* info) const;
  // Nothing if the prompt was computed on a worker that was not selected, or by a worker that has left.
  // `steps` may be empty: then nothing is said of a step.
  std::optional<placement::Outcome> OutcomeOf(const v1::Finished& finished,
                                              const baton::fleet::v1::StepMeans& steps) const;
};

}  // namespace baton::router
