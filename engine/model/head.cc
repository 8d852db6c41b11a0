#include "engine/model/head.h"

#include "common/base/check.h"

namespace baton::model {

using kernels::Matrix;

Matrix Head::Place(std::span<float> logits, int64_t wanted, int64_t rows, Arena& arena) const {
  if (on_host()) return {logits.data(), wanted, vocabulary_, vocabulary_};
  return arena.Take(rows, vocabulary_);
}

void Head::Compute(Matrix normed, Matrix logits) const {
  // Other ranks' columns must be 0 for the sum over the ranks.
  if (rank_.group != nullptr && !on_host()) rank_.kernels.Clear(logits);
  rank_.kernels.MatMul(normed, weights_, {}, Own(logits));
}

void Head::Gather(Matrix logits) const { on_host() ? rank_.Barrier() : rank_.Sum(logits); }

void Head::Deliver(Matrix logits, std::span<const int64_t> rows, std::span<float> to) const {
  if (rows.empty() || logits.data == to.data()) return;
  const Matrix from = Own(logits);
  // All of a step's rows lie side by side more often than not, and are one copy then.
  const bool dense = from.stride == vocabulary_ && own_.count == vocabulary_ &&
                     rows.back() - rows.front() + 1 == std::ssize(rows);
  const int64_t values = dense ? std::ssize(rows) * vocabulary_ : own_.count;
  for (const int64_t r : dense ? rows.first(1) : rows) {
    const absl::Status copied =
        rank_.kernels.memory().Download(from.bytes(r), to.data() + r * vocabulary_ + own_.begin,
                                        values * static_cast<int64_t>(sizeof(float)));
    // A device that failed stays failed, and what it holds can't be trusted: the process has to be started
    // again.
    BATON_CHECK(copied.ok()) << " " << copied.ToString();
  }
}

}  // namespace baton::model
