#include <algorithm>
#include <barrier>

#include "common/base/check.h"
#include "engine/kernels/collective.h"

namespace baton::kernels {
namespace {

// One reduction has three phases between barriers: every rank shows its matrix (or its integers); every rank
// reduces its slice of all and writes the results into all; done.
struct Group {
  explicit Group(int ranks) : barrier(ranks), shown(static_cast<size_t>(ranks)), integers(shown.size()) {}
  std::barrier<> barrier;
  // [ranks]: written by its rank before a barrier, read by all after it.
  std::vector<Matrix> shown;
  std::vector<std::span<int32_t>> integers;
};

class Member final : public Collective {
 public:
  Member(std::shared_ptr<Group> group, int rank) : group_(std::move(group)), rank_(rank) {}

  int rank() const override { return rank_; }
  int ranks() const override { return static_cast<int>(group_->shown.size()); }

  void AllReduce(Matrix matrix) override {
    BATON_CHECK(matrix.dtype == tensor::DType::kF32);
    group_->shown[static_cast<size_t>(rank_)] = matrix;
    group_->barrier.arrive_and_wait();
    // Slices of the matrix as a whole: with one row, too, every rank has its share.
    const int64_t total = matrix.rows * matrix.cols;
    for (int64_t i = total * rank_ / ranks(); i < total * (rank_ + 1) / ranks(); ++i) {
      const int64_t row = i / matrix.cols, col = i % matrix.cols;
      float sum = 0;
      for (const Matrix& part : group_->shown) {
        BATON_DCHECK(part.rows == matrix.rows && part.cols == matrix.cols);
        sum += part.row(row)[col];
      }
      for (const Matrix& part : group_->shown) part.row(row)[col] = sum;
    }
    group_->barrier.arrive_and_wait();
  }

  void AllMax(std::span<int32_t> values) override {
    Reduce(values, [](int32_t a, int32_t b) { return std::max(a, b); });
  }
  void AllSum(std::span<int32_t> values) override {
    Reduce(values, [](int32_t a, int32_t b) { return a + b; });
  }

  void Barrier() override { group_->barrier.arrive_and_wait(); }

 private:
  template <typename Two>
  void Reduce(std::span<int32_t> values, const Two& two) {
    group_->integers[static_cast<size_t>(rank_)] = values;
    group_->barrier.arrive_and_wait();
    const auto total = std::ssize(values);
    for (int64_t i = total * rank_ / ranks(); i < total * (rank_ + 1) / ranks(); ++i) {
      const auto at = static_cast<size_t>(i);
      int32_t result = group_->integers.front()[at];
      for (size_t r = 1; r < group_->integers.size(); ++r) result = two(result, group_->integers[r][at]);
      for (const std::span<int32_t> part : group_->integers) part[at] = result;
    }
    group_->barrier.arrive_and_wait();
  }

  const std::shared_ptr<Group> group_;
  const int rank_;
};

}  // namespace

std::vector<std::unique_ptr<Collective>> MakeInProcessGroup(int ranks) {
  BATON_CHECK(ranks >= 1);
  const auto group = std::make_shared<Group>(ranks);
  std::vector<std::unique_ptr<Collective>> members;
  for (int rank = 0; rank < ranks; ++rank) members.push_back(std::make_unique<Member>(group, rank));
  return members;
}

}  // namespace baton::kernels
