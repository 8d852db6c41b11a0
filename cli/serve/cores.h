// Cores: how many threads the prefill and the decode workers of `baton serve` compute with. Together they
// have as many as there are cores, so that a prompt that is being computed takes no core from the steps of
// running answers. No worker is bound to a core: it must be able to answer pings from another one. Pure.
#pragma once

namespace baton::cli {

// Of each worker.
struct ThreadShares {
  int prefill = 1;
  int decode = 1;
};

// Divides `cores` between the roles by their number of workers, at least one for each; prefill gets the one
// that is left over, because it gains most by it.
ThreadShares SplitCores(int cores, int prefill_workers, int decode_workers);

}  // namespace baton::cli
