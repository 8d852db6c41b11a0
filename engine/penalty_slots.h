// PenaltySlots: which sequence owns which of the backend's slots. A slot is where a backend that draws tokens
// counts the tokens of one sequence with penalties (kernels::RowDraw::slot). A slot is free again when its
// PenaltySlot is destroyed: a step in flight may still count there, but that step ends before the next
// owner's tokens are counted. Engine thread; PenaltySlots outlives every PenaltySlot.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

namespace baton::engine {

class PenaltySlots;

// The slot of one sequence.
class PenaltySlot {
 public:
  PenaltySlot(PenaltySlots& slots, int32_t index) : slots_(slots), index_(index) {}
  ~PenaltySlot();
  PenaltySlot(const PenaltySlot&) = delete;
  PenaltySlot& operator=(const PenaltySlot&) = delete;

  int32_t index() const { return index_; }
  // Tokens [0, counted) of the sequence will be counted when every step that was planned so far has ended.
  int64_t counted() const { return counted_; }
  void set_counted(int64_t tokens) { counted_ = tokens; }

 private:
  PenaltySlots& slots_;
  const int32_t index_;
  int64_t counted_ = 0;
};

class PenaltySlots {
 public:
  // reserve(n) has the backend make room for n slots, and returns false if it can't.
  explicit PenaltySlots(std::function<bool(int32_t)> reserve) : reserve_(std::move(reserve)) {}

  // Null if the backend does not count, or has no memory for another slot.
  std::unique_ptr<PenaltySlot> Take();

 private:
  friend class PenaltySlot;

  const std::function<bool(int32_t)> reserve_;
  int32_t reserved_ = 0;
  bool full_ = false;  // the backend refused to make more room
  std::vector<int32_t> free_;
};

}  // namespace baton::engine
