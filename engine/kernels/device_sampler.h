// DeviceSampler: draws tokens where the logits are, so that the next step may begin before the host knows
// them. A backend has one or has not (Kernels::sampler); where there is none, sampling::Sampler draws on the
// host. Engine thread only.
#pragma once

#include <cstdint>
#include <span>

#include "common/base/ids.h"
#include "engine/kernels/draw.h"
#include "engine/kernels/matrix.h"

namespace baton::kernels {

class DeviceSampler {
 public:
  virtual ~DeviceSampler() = default;

  // True if Launch takes rows of a vocabulary of this size.
  virtual bool CanSample(int64_t vocabulary) const = 0;
  // Memory for the penalty slots [0, slots) of a vocabulary of this size; what earlier slots count stays.
  // False if there is none: then only the slots of before can be used.
  virtual bool ReservePenaltySlots(int32_t slots, int64_t vocabulary) = 0;
  // Makes room for a Launch of such draws: what may wait for the whole device (Kernels::Prepare).
  virtual void Prepare(const StepDraws& draws) {}
  // Draws a token as each of `draws` says, from its row of `logits` (float32), which is undefined afterwards.
  // An operation like those of Kernels: the next step may take the tokens (StepRows::taken), and finds them
  // counted, before the host has them. At most two launches are in flight.
  virtual void Launch(Matrix logits, const StepDraws& draws) = 0;
  // Waits for the oldest launch in flight and gives its tokens, one per draw: -1 where no logit was a number
  // above -inf.
  virtual void Await(std::span<TokenId> tokens) = 0;
};

}  // namespace baton::kernels
