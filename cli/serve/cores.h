// Cores: how the prefill and the decode workers of one machine divide its cores. Each owns some; together
// they own no more than there are, so that a prompt that is being computed takes no core from the steps of
// running answers. Those of a worker that rests are lent to the others (device::CoreShare). No worker is
// bound to a core: it must be able to answer pings from another one. Pure.
#pragma once

#include <vector>

#include "engine/device/core_table.h"

namespace baton::cli {

// Threads of each worker.
struct ThreadShares {
  int prefill = 1;
  int decode = 1;
};

// Divides `cores` between the roles by their number of workers, at least one for each; prefill gets the one
// that is left over, because it gains most by it.
ThreadShares SplitCores(int cores, int prefill_workers, int decode_workers);

// Which cores these are: of the prefill workers, and then of the decode workers, which are urgent. Workers of
// one role own the same cores where there are not enough for all; the roles never do, but for a single core.
std::vector<device::CoreHome> HomesOf(int cores, int prefill_workers, int decode_workers);

}  // namespace baton::cli
