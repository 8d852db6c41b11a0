// StoredExperts: the experts of one layer, whose bytes an ExpertStore brings while the layer is computed. The
// kernels' thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/kernels/experts.h"
#include "engine/model/expert_store.h"
#include "engine/model/weights.h"

namespace baton::model {

// A worker that can't read its own weights has nothing to go on with: it ends, with the reason, and its
// requests go to others.
class StoredExperts final : public kernels::ExpertResidency {
 public:
  // `experts`: all matrices of the layer, of which the first `routed` are in the store; a shared expert
  // behind them is in memory. All outlive it.
  StoredExperts(int layer, int routed, std::span<const ExpertMatrices> experts, ExpertStore& store)
      : layer_(layer), routed_(routed), experts_(experts), store_(store) {}

  size_t Hold(std::span<int32_t> experts) override;
  size_t Await(size_t count) override;
  void Release() override { store_.Release(); }

 private:
  const int layer_;
  const int routed_;
  const std::span<const ExpertMatrices> experts_;
  ExpertStore& store_;
  // State of the held experts.
  size_t in_memory_ = 0;  // the first ones, which are not the store's
  std::vector<ExpertId> ids_;
  std::span<const ExpertStore::Held> held_;
  size_t placed_ = 0;
};

}  // namespace baton::model
