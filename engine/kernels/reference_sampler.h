// ReferenceSampler: the DeviceSampler that every other is judged by, in float64 and by the definition in
// draw.h. Logits are float32 in host memory. Engine thread only.
#pragma once

#include <deque>
#include <map>
#include <set>
#include <span>
#include <vector>

#include "engine/kernels/device_sampler.h"

namespace baton::kernels {

class ReferenceSampler final : public DeviceSampler {
 public:
  bool CanSample(int64_t vocabulary) const override { return true; }
  bool ReservePenaltySlots(int32_t slots, int64_t vocabulary) override;
  void Launch(Matrix logits, const StepDraws& draws) override;
  void Await(std::span<TokenId> tokens) override;

  // The tokens of the last launch.
  std::span<const TokenId> last() const { return last_; }

 private:
  // The tokens that a slot counts.
  struct Seen {
    std::set<TokenId> prompt;
    std::map<TokenId, int> output;
  };

  void Adjust(std::vector<float>& row, const RowDraw& draw, const StepDraws& draws) const;

  std::vector<Seen> slots_;
  std::vector<TokenId> last_;
  std::deque<std::vector<TokenId>>
      in_flight_;  // tokens of launches that were not awaited yet, the oldest first
};

}  // namespace baton::kernels
