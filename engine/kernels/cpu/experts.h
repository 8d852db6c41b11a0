// ExpertProducts: Route and Experts of the cpu backend. Rows are grouped by expert, so that each expert's
// weights are read once for all rows that chose it, and experts that none chose are not read at all. How rows
// are grouped never shows: a row's products are those of the row alone, and one task adds them up, in
// ascending order of ids. Of one backend, on its thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/functional/function_ref.h"
#include "engine/device/thread_pool.h"
#include "engine/kernels/collective.h"
#include "engine/kernels/cpu/elementwise.h"
#include "engine/kernels/cpu/panels.h"
#include "engine/kernels/cpu/prepared_memory.h"
#include "engine/kernels/experts.h"
#include "engine/kernels/matrix.h"

namespace baton::kernels::cpu {

class ExpertProducts {
 public:
  // Both outlive it.
  ExpertProducts(const ElementwiseTable& elementwise, device::ThreadPool& pool)
      : elementwise_(elementwise), pool_(pool) {}

  // As Kernels has them.
  void Route(Matrix logits, const Routing& routing, std::span<const float> choice_bias, Choices choices);
  void Run(Matrix x, Choices choices, const ExpertLayer& layer, Matrix out, Collective* group,
           std::span<double> norms);

 private:
  // A row's choice: the rows of `x_`, `wide_` and `given_` are in the order of slots, those of one expert
  // together.
  struct Slot {
    int64_t row;
    int32_t expert;
  };
  // The slots of one expert.
  struct Group {
    int32_t expert;
    int64_t first, rows;
  };
  enum class Half { kGateUp, kDown };

  // A pass, of which all scratch is.
  void RunSome(Matrix x, Choices choices, const ExpertLayer& layer, Matrix out, Collective* group,
               std::span<double> norms);
  void GroupRows(const Choices& choices, const ExpertLayer& layer);
  // Makes row `slot` of the input of a product, as the weights want it: integers with the largest magnitude
  // of the row if it is given.
  void PlaceRow(int64_t slot, const Panels& weights, const float* row, const int32_t* largest);
  // task(product, weights) for all panels of the matrices of these groups, with their biases if `biased`;
  // rows of `out` are slots.
  void ForPanels(const ExpertLayer& layer, std::span<const Group> groups, Half half, Matrix out, bool biased,
                 absl::FunctionRef<void(const PanelProduct&, const Panels&)> task);
  // Computes given_ of the slots of these groups, which may be in any order. Their weights are in memory.
  void Multiply(const ExpertLayer& layer, std::span<const Group> groups, Matrix x, int64_t hidden,
                Collective* group);
  // Multiply of all groups, some at a time, as layer.residency has room for them and brings them.
  void MultiplyAsTheyCome(const ExpertLayer& layer, Matrix x, int64_t hidden);
  // The second half of Multiply: the sums over ranks of integers, then the products. Of all groups.
  void MultiplySum(const ExpertLayer& layer, std::span<const Group> groups, int64_t hidden,
                   Collective& group);
  void For(int64_t count, int64_t work, absl::FunctionRef<void(int64_t)> task);

  const ElementwiseTable& elementwise_;
  device::ThreadPool& pool_;
  std::vector<Slot> slots_;
  std::vector<int64_t> slot_of_;     // [rows][per_row]
  std::vector<Group> groups_;        // by expert
  std::vector<int64_t> some_slots_;  // of the groups of a product
  std::vector<float> scores_;        // of a row of logits
  std::vector<float> x_;             // [slots][x_cols_]: what goes into a product
  PreparedMemory prepared_;          // or these [slots][row_bytes_]
  std::vector<float> gate_up_;       // [slots][2 widest]
  std::vector<float> activated_;     // [slots][widest]
  std::vector<float> given_;         // [slots][hidden]
  std::vector<int32_t> largest_;     // [slots]
  std::vector<int32_t> sums_;        // [slots][hidden]
  int64_t x_cols_ = 0, row_bytes_ = 0;
  int64_t widest_ = 0;  // width of an expert
};

}  // namespace baton::kernels::cpu
