#include "common/base/status.h"
#include "engine/kernels/kernels.h"

namespace baton::kernels {

absl::StatusOr<Values> Values::Place(std::vector<float> values, device::Memory& memory) {
  Values placed;
  if (memory.host()) {
    placed.host_ = std::move(values);
    placed.view_ = placed.host_;
  } else if (!values.empty()) {
    const auto bytes = static_cast<int64_t>(values.size() * sizeof(float));
    BATON_ASSIGN_OR_RETURN(placed.device_, memory.Allocate(bytes));
    BATON_RETURN_IF_ERROR(memory.Upload(values.data(), placed.device_.get(), bytes));
    placed.view_ = {reinterpret_cast<const float*>(placed.device_.get()), values.size()};
  }
  return placed;
}

}  // namespace baton::kernels
