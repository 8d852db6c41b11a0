// Cores: which of this machine's cores the prefill and the decode workers of `baton serve` compute on. They
// are apart, so that a prompt that is being computed takes no time from the steps of running answers. Pure,
// but for OwnCpus.
#pragma once

#include <vector>

namespace baton::cli {

// Of the workers of one role.
struct CoreShare {
  int threads = 1;  // of each
  // Where they may run, all of them on all of these; empty: wherever the system has time.
  std::vector<int> cpus;
};

struct CoreShares {
  CoreShare prefill, decode;
};

// The cores that this process may run on; hardware threads of one core side by side, so that a role gets
// whole cores.
std::vector<int> OwnCpus();

// Divides `cpus` between the roles by their number of workers, at least one for each; prefill gets the one
// that is left over, because it gains most by it. `usable` is how many of them this process may keep busy:
// with a quota that is less (containers) nobody is bound to a core, since others may be bound to the same.
CoreShares SplitCores(const std::vector<int>& cpus, int usable, int prefill_workers, int decode_workers);

}  // namespace baton::cli
