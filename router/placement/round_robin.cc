#include "router/placement/round_robin.h"

#include <algorithm>

namespace baton::router::placement {

Choice RoundRobin::Choose(const Request&, Candidates decode, Candidates prefill) {
  Choice choice;
  choice.decode = turn_ % decode.size();
  for (size_t i = 0; i < std::min(kMaxPrefillTargets, prefill.size()); ++i) {
    choice.prefill.push_back((turn_ + i) % prefill.size());
  }
  ++turn_;
  return choice;
}

}  // namespace baton::router::placement
