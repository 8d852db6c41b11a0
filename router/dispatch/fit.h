// Fit: which decode workers could take a choice at all: those whose KV memory would hold it alone, and of
// them those that have not failed it, if there are any. Where no memory holds the max_tokens that nobody
// asked for (Request::open_ended), the largest do. Pure functions.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/ids.h"
#include "router/admission/request.h"
#include "router/fleet/worker.h"

namespace baton::router {

using WorkerSpan = std::span<const std::shared_ptr<fleet::Worker>>;

// Returns those of `open` that fit, which may be none now. Workers in `avoid` have failed the choice: they
// are asked again only where no other of `all` would ever do, since a connection may break though the worker
// lives. An error: none of `all` ever would. Leans on `open`, or on `some` if not all of it fits.
absl::StatusOr<WorkerSpan> FitFor(const Request& request, std::span<const Incarnation> avoid, WorkerSpan all,
                                  WorkerSpan open, std::vector<std::shared_ptr<fleet::Worker>>* some);

}  // namespace baton::router
