#include "router/placement/least_loaded.h"

#include <algorithm>
#include <utility>

#include "common/base/random.h"

namespace baton::router::placement {

Choice LeastLoaded::Choose(const Request&, Candidates decode, Candidates prefill) {
  // Ties fall to the first at or after a random start.
  const double draw = UniformAt(seed_, draws_++);
  Choice choice;
  const size_t start = static_cast<size_t>(draw * static_cast<double>(decode.size()));
  int64_t fewest = INT64_MAX;
  for (size_t i = 0; i < decode.size(); ++i) {
    const size_t at = (start + i) % decode.size();
    const int64_t requests = decode[at]->Requests();
    if (requests < fewest) {
      fewest = requests;
      choice.decode = at;
    }
  }
  if (prefill.empty()) return choice;

  // Loads move while we look; sorting needs one reading of each.
  const size_t turn = static_cast<size_t>(draw * static_cast<double>(prefill.size()));
  std::vector<std::pair<std::pair<int64_t, int64_t>, size_t>> ranked;
  ranked.reserve(prefill.size());
  for (size_t i = 0; i < prefill.size(); ++i) {
    const size_t at = (turn + i) % prefill.size();
    ranked.push_back({{prefill[at]->QueuedTokens(), prefill[at]->Requests()}, at});
  }
  const size_t keep = std::min(kMaxPrefillTargets, ranked.size());
  std::stable_sort(ranked.begin(), ranked.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  for (size_t i = 0; i < keep; ++i) choice.prefill.push_back(ranked[i].second);
  return choice;
}

}  // namespace baton::router::placement
