// RequestRecord: a request in the simulated fleet: where it was placed, and when what happened to it. Owned
// by the Simulation; the workers fill in their part.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "common/base/ids.h"
#include "lab/simulate/load.h"
#include "protocol/forecast/step_totals.h"
#include "router/admission/queue.h"
#include "router/dispatch/dispatch_core.h"

namespace baton::lab::simulate {

struct RequestRecord {
  uint64_t id = 0;
  const Request* request = nullptr;
  // The placement. A prefill worker of -1 is the decode worker itself.
  int prefill = -1;
  int decode = -1;
  router::placement::Selection selection;
  std::vector<BlockId> decode_blocks;
  int64_t decode_matched = 0;  // blocks
  // With a shared cache: the blocks that came before it. Negative: look into the worker's own.
  int64_t known_blocks = -1;

  // Seconds since the start; negative: not yet.
  double placed = -1;
  double began = -1;     // its prefill
  double computed = -1;  // its prefill is done
  double arrives = -1;   // its KV, on the decode worker, if computing doesn't take longer
  double first_token = -1;
  double end = -1;
  forecast::StepTotals totals;  // of its decode worker, when it joined the batch
  int64_t cached_tokens = 0;    // reused where it was prefilled
  int64_t fetched_tokens = 0;   // of those, brought from a peer,
  int64_t loaded_tokens = 0;    // and read from the worker's own disk
  bool refused = false;         // too long for a worker's cache, or its first token could not come in time
  bool too_long = false;
  std::optional<router::admission::EntryId> account;

  double ttft() const { return first_token - request->arrival; }
  double tpot() const {
    const int64_t more = request->output_tokens - 1;
    return more == 0 ? 0 : (end - first_token) / static_cast<double>(more);
  }
};

}  // namespace baton::lab::simulate
