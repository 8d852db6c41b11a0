#include "router/dispatch/fit.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace baton::router {

absl::StatusOr<WorkerSpan> FitFor(const placement::Request& request, std::span<const Incarnation> avoid,
                                  WorkerSpan all, WorkerSpan open,
                                  std::vector<std::shared_ptr<fleet::Worker>>* some) {
  const int64_t blocks = BlocksFor(request.prompt_tokens + request.max_tokens);
  const auto too_small = [&](const std::shared_ptr<fleet::Worker>& worker) {
    return worker->TotalBlocks() != 0 && worker->TotalBlocks() < blocks;
  };
  const auto unfit = [&](const std::shared_ptr<fleet::Worker>& worker) {
    return std::find(avoid.begin(), avoid.end(), worker->identity().incarnation) != avoid.end() ||
           too_small(worker);
  };
  if (std::any_of(open.begin(), open.end(), unfit)) {
    some->clear();
    std::remove_copy_if(open.begin(), open.end(), std::back_inserter(*some), unfit);
    open = *some;
  }
  if (!open.empty()) return open;
  if (std::all_of(all.begin(), all.end(), too_small)) {
    int64_t most = 0;
    for (const auto& worker : all) most = std::max(most, worker->TotalBlocks());
    return absl::FailedPreconditionError(fmt::format(
        "a prompt of {} tokens and max_tokens of {} take {} KV blocks, and the largest decode worker "
        "has {}: lower max_tokens or give the workers more KV memory",
        request.prompt_tokens, request.max_tokens, blocks, most));
  }
  if (std::all_of(all.begin(), all.end(), unfit)) {
    return absl::UnavailableError(
        "every decode worker that could take the request failed before accepting it; retry");
  }
  return open;
}

}  // namespace baton::router
