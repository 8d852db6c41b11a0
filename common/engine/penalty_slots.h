// PenaltySlots: which sequence has which of the backend's slots, where that counts the tokens that a sequence
// with penalties has seen (kernels::RowDraw). A slot goes back when its PenaltySlot does: a step under way may
// still count there, and is done before the next owner's tokens are counted. Engine thread; outlives its
// slots.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

namespace baton::engine {

class PenaltySlots;

// One sequence's.
class PenaltySlot {
 public:
  PenaltySlot(PenaltySlots& slots, int32_t index) : slots_(slots), index_(index) {}
  ~PenaltySlot();
  PenaltySlot(const PenaltySlot&) = delete;
  PenaltySlot& operator=(const PenaltySlot&) = delete;

  int32_t index() const { return index_; }
  // Tokens [0, counted) of the sequence are counted once all steps that were put together have been computed.
  int64_t counted() const { return counted_; }
  void set_counted(int64_t tokens) { counted_ = tokens; }

 private:
  PenaltySlots& slots_;
  const int32_t index_;
  int64_t counted_ = 0;
};

class PenaltySlots {
 public:
  // reserve(n): has the backend make room for n slots; false if it can't.
  explicit PenaltySlots(std::function<bool(int32_t)> reserve) : reserve_(std::move(reserve)) {}

  // Null: the backend does not count, or has no memory for more.
  std::unique_ptr<PenaltySlot> Take();

 private:
  friend class PenaltySlot;

  const std::function<bool(int32_t)> reserve_;
  int32_t reserved_ = 0;
  bool full_ = false;  // the backend said no
  std::vector<int32_t> free_;
};

}  // namespace baton::engine
