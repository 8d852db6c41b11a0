#include "engine/penalty_slots.h"

#include <algorithm>

namespace baton::engine {
namespace {

// Each takes 4 bytes per token of the vocabulary.
constexpr int32_t kMinSlots = 16;

}  // namespace

PenaltySlot::~PenaltySlot() { slots_.free_.push_back(index_); }

std::unique_ptr<PenaltySlot> PenaltySlots::Take() {
  if (free_.empty() && !full_) {
    const int32_t wanted = std::max(kMinSlots, 2 * reserved_);
    full_ = !reserve_(wanted);
    for (int32_t i = wanted - 1; !full_ && i >= reserved_; --i) free_.push_back(i);
    if (!full_) reserved_ = wanted;
  }
  if (free_.empty()) return nullptr;
  const int32_t index = free_.back();
  free_.pop_back();
  return std::make_unique<PenaltySlot>(*this, index);
}

}  // namespace baton::engine
