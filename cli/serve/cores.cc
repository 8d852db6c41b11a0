#include "cli/serve/cores.h"

#include <algorithm>

namespace baton::cli {
namespace {

// Cores of all prefill workers together, of 2 or more.
int PrefillCores(int cores, int prefill_workers, int decode_workers) {
  const int workers = prefill_workers + decode_workers;
  return std::clamp((cores * prefill_workers + workers / 2) / workers, 1, cores - 1);
}

// `workers` homes of `each` cores, one after the other within [first, first + cores), and again from its
// start.
void AddHomes(int first, int cores, int workers, device::CoreHome home,
              std::vector<device::CoreHome>* homes) {
  const int places = cores / home.count;
  for (int i = 0; i < workers; ++i) {
    home.first = first + i % places * home.count;
    homes->push_back(home);
  }
}

}  // namespace

ThreadShares SplitCores(int cores, int prefill_workers, int decode_workers) {
  const int all = std::max(1, cores);
  if (prefill_workers < 1 || all < 2) return {.decode = std::max(1, all / std::max(1, decode_workers))};
  const int prefill = PrefillCores(all, prefill_workers, decode_workers);
  return {.prefill = std::max(1, prefill / prefill_workers),
          .decode = std::max(1, (all - prefill) / decode_workers)};
}

std::vector<device::CoreHome> HomesOf(int cores, int prefill_workers, int decode_workers) {
  const int all = std::max(1, cores);
  const ThreadShares shares = SplitCores(all, prefill_workers, decode_workers);
  const int prefill = prefill_workers < 1 || all < 2 ? 0 : PrefillCores(all, prefill_workers, decode_workers);
  std::vector<device::CoreHome> homes;
  AddHomes(0, std::max(1, prefill), prefill_workers, {.count = shares.prefill}, &homes);
  AddHomes(prefill, all - prefill, decode_workers, {.count = shares.decode, .urgent = true}, &homes);
  return homes;
}

}  // namespace baton::cli
