// Policy: which decode worker a request goes to, and which prefill workers may serve it, in order. The
// placement seam: round_robin and least_loaded today, prefix affinity and predicted completion time later.
// Called under the dispatcher's lock, one thread at a time; it never waits.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "router/fleet/worker.h"

namespace baton::router::placement {

// What is known of a request when it is placed.
struct Request {
  int64_t prompt_tokens = 0;
  int64_t max_tokens = 0;
};

using Candidates = std::span<const std::shared_ptr<fleet::Worker>>;

struct Choice {
  size_t decode = 0;            // index among the decode candidates
  std::vector<size_t> prefill;  // indices among the prefill candidates, best first
};

// At most this many prefill workers are named to the decode worker.
inline constexpr size_t kMaxPrefillTargets = 3;

class Policy {
 public:
  virtual ~Policy() = default;
  // A metric label.
  virtual std::string_view name() const = 0;
  // `decode` is not empty and holds only workers that take a request now; `prefill` may be empty.
  virtual Choice Choose(const Request& request, Candidates decode, Candidates prefill) = 0;
};

// "least_loaded" or "round_robin"; INVALID_ARGUMENT names both. The seed decides between equals.
absl::StatusOr<std::unique_ptr<Policy>> MakePolicy(std::string_view name, uint64_t seed);

}  // namespace baton::router::placement
