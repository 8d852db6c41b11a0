#include "router/dispatch/fit.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "common/rpc/status.h"

namespace baton::router {

namespace {

absl::Status TooSmall(const std::string& message) {
  return rpc::WithReason(absl::FailedPreconditionError(message), v1::REASON_WORKERS_TOO_SMALL);
}

}  // namespace

absl::StatusOr<WorkerSpan> FitFor(const Request& request, std::span<const Incarnation> avoid, WorkerSpan all,
                                  WorkerSpan open, std::vector<std::shared_ptr<fleet::Worker>>* some) {
  int64_t most = 0;
  for (const auto& worker : all) most = std::max(most, worker->TotalBlocks());
  int64_t blocks = BlocksFor(request.prompt_tokens + request.max_tokens);
  if (request.open_ended && most > 0) {
    blocks = std::max(std::min(blocks, most), BlocksFor(request.prompt_tokens + 1));
  }
  const auto too_small = [&](const std::shared_ptr<fleet::Worker>& worker) {
    return worker->TotalBlocks() != 0 && worker->TotalBlocks() < blocks;
  };
  if (std::all_of(all.begin(), all.end(), too_small)) {
    if (request.open_ended) {
      return TooSmall(fmt::format(
          "a prompt of {} tokens and an answer take {} KV blocks, and the largest decode worker has {}: "
          "shorten the prompt or give the workers more KV memory",
          request.prompt_tokens, blocks, most));
    }
    return TooSmall(fmt::format(
        "a prompt of {} tokens and max_tokens of {} take {} KV blocks, and the largest decode worker "
        "has {}: lower max_tokens or give the workers more KV memory",
        request.prompt_tokens, request.max_tokens, blocks, most));
  }
  const auto failed_or_too_small = [&](const std::shared_ptr<fleet::Worker>& worker) {
    return std::find(avoid.begin(), avoid.end(), worker->identity().incarnation) != avoid.end() ||
           too_small(worker);
  };
  const bool others = !std::all_of(all.begin(), all.end(), failed_or_too_small);
  const auto unfit = [&](const std::shared_ptr<fleet::Worker>& worker) {
    return others ? failed_or_too_small(worker) : too_small(worker);
  };
  if (std::none_of(open.begin(), open.end(), unfit)) return open;
  some->clear();
  std::remove_copy_if(open.begin(), open.end(), std::back_inserter(*some), unfit);
  return *some;
}

}  // namespace baton::router
