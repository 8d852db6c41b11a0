#include "engine/model/stored_experts.h"

#include <algorithm>

#include "absl/status/statusor.h"
#include "common/base/check.h"
#include "engine/model/expert_packing.h"

namespace baton::model {

size_t StoredExperts::Hold(std::span<int32_t> experts) {
  const auto first =
      std::stable_partition(experts.begin(), experts.end(), [this](int32_t e) { return e >= routed_; });
  in_memory_ = static_cast<size_t>(first - experts.begin());
  const std::span<int32_t> of_store = experts.subspan(in_memory_);
  ids_.clear();
  for (const int32_t expert : of_store) ids_.push_back({layer_, expert});
  held_ = store_.Begin(ids_);
  placed_ = 0;
  auto next = of_store.begin();
  for (const ExpertStore::Held& one : held_) *next++ = ids_[one.which].expert;
  return in_memory_ + held_.size();
}

size_t StoredExperts::Await(size_t count) {
  const absl::StatusOr<size_t> there = store_.Await(count > in_memory_ ? count - in_memory_ : 0);
  BATON_CHECK(there.ok()) << " " << there.status().message();
  for (; placed_ < *there; ++placed_) {
    PlaceExpert(held_[placed_].image, experts_[static_cast<size_t>(ids_[held_[placed_].which].expert)]);
  }
  return in_memory_ + *there;
}

}  // namespace baton::model
