// DispatchRequest: a request as it comes to the dispatcher, with its prompt's blocks and with whom to tell.
// Immutable once it was submitted: the dispatcher and the client's call share it until the last choice has
// its placement, and the call keeps it for the choices that have to be placed again.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/ids.h"
#include "protocol/block_hash.h"
#include "router/admission/request.h"
#include "router/dispatch/placement.h"

namespace baton::router {

// How a choice stands that waits for a decode worker.
struct Waiting {
  int64_t ahead = 0;  // choices that go first, about
  // Until its first token; nothing: it can't be told.
  std::optional<absl::Duration> left;
};

struct DispatchRequest : Request {
  std::vector<kv::BlockHash> chain;  // of the prompt; empty: not known
  // The decode worker that ran its session's last prompt, if that is known: for Placement.last_worker.
  std::optional<Incarnation> last_worker;
  // The placement explains itself in the end.
  bool debug = false;
  // Called once per choice with its placement or with why there is none, unless the choice was withdrawn
  // before; without a lock held, on any thread, possibly before Submit returns.
  std::function<void(int choice, absl::StatusOr<Placement>)> result;
  // Called likewise, a few times a second while a choice waits; null: nobody wants to know.
  std::function<void(int choice, const Waiting&)> waits = nullptr;
};

}  // namespace baton::router
