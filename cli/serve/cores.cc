#include "cli/serve/cores.h"

#include <algorithm>

namespace baton::cli {

ThreadShares SplitCores(int cores, int prefill_workers, int decode_workers) {
  const int all = std::max(1, cores);
  if (prefill_workers < 1 || all < 2) return {.decode = std::max(1, all / std::max(1, decode_workers))};
  const int workers = prefill_workers + decode_workers;
  const int prefill = std::clamp((all * prefill_workers + workers / 2) / workers, 1, all - 1);
  return {.prefill = std::max(1, prefill / prefill_workers),
          .decode = std::max(1, (all - prefill) / decode_workers)};
}

}  // namespace baton::cli
