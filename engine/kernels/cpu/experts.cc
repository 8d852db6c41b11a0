#include "engine/kernels/cpu/experts.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "common/base/check.h"
#include "engine/kernels/routing.h"

namespace baton::kernels::cpu {
namespace {

// Work, in multiply-adds or values touched, below which waking another thread costs more than it brings.
constexpr int64_t kSmallExpertWork = 32 << 10;
// Rows whose experts are computed together: what lies between the products stays within some tens of MiB.
constexpr int64_t kRowsPerPass = 512;

const Panels& GateUpOf(const ExpertLayer& layer, int32_t expert) {
  return static_cast<const Panels&>(*layer.experts[static_cast<size_t>(expert)].gate_up);
}
const Panels& DownOf(const ExpertLayer& layer, int32_t expert) {
  return static_cast<const Panels&>(*layer.experts[static_cast<size_t>(expert)].down);
}

}  // namespace

void ExpertProducts::For(int64_t count, int64_t work, absl::FunctionRef<void(int64_t)> task) {
  if (work < kSmallExpertWork) {
    for (int64_t i = 0; i < count; ++i) task(i);
  } else {
    pool_.ParallelFor(count, task);
  }
}

void ExpertProducts::Route(Matrix logits, const Routing& routing, std::span<const float> choice_bias,
                           Choices choices) {
  BATON_CHECK_EQ(logits.cols, int64_t{routing.logits()});
  BATON_CHECK_EQ(choices.rows, logits.rows);
  BATON_CHECK_EQ(choices.per_row, routing.per_row());
  const auto experts = static_cast<size_t>(routing.experts), chosen = static_cast<size_t>(routing.chosen);
  scores_.resize(2 * experts);
  const std::span<float> scores = std::span(scores_).first(experts),
                         scratch = std::span(scores_).last(experts);
  // values = exp(values - max), over their sum; in the order of the values.
  const auto softmax = [this](std::span<float> values) {
    const float max = *std::ranges::max_element(values);
    elementwise_.exponentials(values.data(), max, std::ssize(values), values.data());
    float sum = 0;
    for (const float value : values) sum += value;
    for (float& value : values) value /= sum;
  };
  const auto sigmoid = [this](std::span<const float> from, std::span<float> to) {
    std::ranges::transform(from, to.begin(), [](float x) { return -x; });
    elementwise_.exponentials(to.data(), 0, std::ssize(to), to.data());
    for (float& value : to) value = 1 / (1 + value);
  };
  for (int64_t r = 0; r < logits.rows; ++r) {
    const std::span<const float> row(logits.row(r), experts);
    const std::span<ExpertChoice> to = choices.row(r);
    if (routing.score == Routing::Score::kSigmoid) {
      sigmoid(row, scores);
    } else {
      std::ranges::copy(row, scores.begin());
      softmax(scores);
    }
    ChooseExperts(routing, row, scores, choice_bias, scratch, to);
    if (routing.late_softmax) {
      for (size_t k = 0; k < chosen; ++k) scratch[k] = to[k].weight;
      softmax(scratch.first(chosen));
      for (size_t k = 0; k < chosen; ++k) to[k].weight = scratch[k];
    }
    FinishWeights(routing, to.first(chosen));
    if (!routing.shared) continue;
    to[chosen] = {.expert = routing.experts, .weight = 1};
    if (routing.shared_gated) {
      const float logit = logits.row(r)[experts];
      sigmoid({&logit, 1}, {&to[chosen].weight, 1});
    }
  }
}

void ExpertProducts::Run(Matrix x, Choices choices, const ExpertLayer& layer, Matrix out, Collective* group,
                         std::span<double> norms) {
  BATON_CHECK_EQ(choices.rows, x.rows);
  BATON_CHECK_EQ(out.rows, x.rows);
  BATON_CHECK(norms.empty() || (group == nullptr && std::ssize(norms) == x.rows * choices.per_row));
  for (int64_t first = 0; first < x.rows; first += kRowsPerPass) {
    const int64_t rows = std::min(kRowsPerPass, x.rows - first);
    const Choices some = {choices.data + first * choices.per_row, rows, choices.per_row};
    const size_t begin = static_cast<size_t>(first * choices.per_row);
    RunSome(x.Rows(first, rows), some, layer, out.Rows(first, rows), group,
            norms.empty() ? norms : norms.subspan(begin, static_cast<size_t>(rows * choices.per_row)));
  }
  if (group != nullptr && !layer.exact_sums) group->AllReduce(out);
}

void ExpertProducts::GroupRows(const Choices& choices, const ExpertLayer& layer) {
  const int64_t count = choices.rows * choices.per_row;
  const std::span<const ExpertChoice> all(choices.data, static_cast<size_t>(count));
  std::vector<int64_t> next(layer.experts.size(), 0);  // the number of each expert's slots, then its next one
  for (const ExpertChoice& choice : all) {
    BATON_CHECK(choice.expert >= 0 && choice.expert < std::ssize(layer.experts)) << " expert";
    ++next[static_cast<size_t>(choice.expert)];
  }
  groups_.clear();
  int64_t first = 0;
  widest_ = 0;
  for (size_t e = 0; e < next.size(); ++e) {
    const int64_t rows = next[e];
    next[e] = first;
    if (rows == 0) continue;
    const auto expert = static_cast<int32_t>(e);
    groups_.push_back({expert, first, rows});
    widest_ = std::max(widest_, DownOf(layer, expert).cols());
    first += rows;
  }
  slots_.resize(static_cast<size_t>(count));
  slot_of_.resize(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    const int32_t expert = all[static_cast<size_t>(i)].expert;
    const int64_t slot = next[static_cast<size_t>(expert)]++;
    slots_[static_cast<size_t>(slot)] = {.row = i / choices.per_row, .expert = expert};
    slot_of_[static_cast<size_t>(i)] = slot;
  }
}

void ExpertProducts::PlaceRow(int64_t slot, const Panels& weights, const float* row, const int32_t* largest) {
  if (weights.row_bytes() == 0) {
    std::copy_n(row, weights.cols(), x_.data() + slot * x_cols_);
    return;
  }
  weights.Prepare(row, largest, prepared_.data() + slot * row_bytes_);
}

void ExpertProducts::ForPanels(const ExpertLayer& layer, std::span<const Group> groups, Half half, Matrix out,
                               bool biased,
                               absl::FunctionRef<void(const PanelProduct&, const Panels&)> task) {
  const auto weights = [&](const Group& group) -> const Panels& {
    return half == Half::kGateUp ? GateUpOf(layer, group.expert) : DownOf(layer, group.expert);
  };
  std::vector<int64_t> ends;  // of each group's panels among all
  int64_t work = 0;
  for (const Group& group : groups) {
    ends.push_back((ends.empty() ? 0 : ends.back()) + weights(group).panels());
    work += group.rows * weights(group).rows() * weights(group).cols();
  }
  For(ends.back(), work, [&](int64_t i) {
    const auto at = static_cast<size_t>(std::ranges::upper_bound(ends, i) - ends.begin());
    const Group& group = groups[at];
    const Panels& panels = weights(group);
    const Matrix x = {.data = x_.data() + group.first * x_cols_,
                      .rows = group.rows,
                      .cols = panels.cols(),
                      .stride = x_cols_};
    const PreparedRows prepared = {prepared_.data() + group.first * row_bytes_, row_bytes_};
    const Expert& expert = layer.experts[static_cast<size_t>(group.expert)];
    const std::span<const float> bias = half == Half::kGateUp ? expert.gate_up_bias : expert.down_bias;
    task(panels.Product(x, i - (at == 0 ? 0 : ends[at - 1]), biased ? bias : std::span<const float>(),
                        out.Rows(group.first, group.rows), prepared),
         panels);
  });
}

void ExpertProducts::MultiplySum(const ExpertLayer& layer, std::span<const Group> groups, int64_t hidden,
                                 Collective& group) {
  const auto slots = std::ssize(slots_);
  const auto row = [this](int64_t slot) { return activated_.data() + slot * widest_; };
  const auto down = [&](int64_t slot) -> const Panels& {
    return DownOf(layer, slots_[static_cast<size_t>(slot)].expert);
  };
  // The scale of a row is that of its whole width, and integers of all ranks add up without rounding.
  largest_.resize(static_cast<size_t>(slots));
  For(slots, slots * widest_,
      [&](int64_t slot) { largest_[static_cast<size_t>(slot)] = down(slot).LargestOf(row(slot)); });
  group.AllMax(largest_);
  For(slots, slots * widest_,
      [&](int64_t slot) { PlaceRow(slot, down(slot), row(slot), &largest_[static_cast<size_t>(slot)]); });
  sums_.resize(static_cast<size_t>(slots * hidden));
  const Matrix given = {.data = given_.data(), .rows = slots, .cols = hidden, .stride = hidden};
  // They lie as the products do.
  const auto sums = [&](const PanelProduct& job) { return sums_.data() + (job.out - given.row(0)); };
  ForPanels(layer, groups, Half::kDown, given, true, [&](const PanelProduct& job, const Panels& panels) {
    panels.integers()->sum(job, sums(job), hidden);
  });
  group.AllSum(sums_);
  ForPanels(layer, groups, Half::kDown, given, true, [&](const PanelProduct& job, const Panels& panels) {
    panels.integers()->finish(job, sums(job), hidden);
  });
}

void ExpertProducts::Multiply(const ExpertLayer& layer, std::span<const Group> groups, Matrix x,
                              int64_t hidden, Collective* group) {
  some_slots_.clear();
  for (const Group& g : groups) {
    for (int64_t r = 0; r < g.rows; ++r) some_slots_.push_back(g.first + r);
  }
  const auto count = std::ssize(some_slots_), slots = std::ssize(slots_);
  For(count, count * x.cols, [&](int64_t i) {
    const int64_t slot = some_slots_[static_cast<size_t>(i)];
    const Slot& at = slots_[static_cast<size_t>(slot)];
    PlaceRow(slot, GateUpOf(layer, at.expert), x.row(at.row), nullptr);
  });
  const Matrix gate_up = {.data = gate_up_.data(), .rows = slots, .cols = 2 * widest_, .stride = 2 * widest_};
  const auto multiply = [](const PanelProduct& job, const Panels& panels) { panels.Multiply(job); };
  ForPanels(layer, groups, Half::kGateUp, gate_up, true, multiply);
  const bool summed = group != nullptr && layer.exact_sums;
  For(count, count * widest_ * 8, [&](int64_t i) {
    const int64_t slot = some_slots_[static_cast<size_t>(i)];
    const Panels& down = DownOf(layer, slots_[static_cast<size_t>(slot)].expert);
    const float* gate = gate_up.row(slot);
    float* const to = activated_.data() + slot * widest_;
    if (layer.limit == 0) {
      elementwise_.swiglu(gate, gate + down.cols(), down.cols(), to);
    } else {
      elementwise_.clamped_swiglu(gate, gate + down.cols(), layer.limit, layer.slope, down.cols(), to);
    }
    if (!summed) PlaceRow(slot, down, to, nullptr);
  });
  const Matrix given = {.data = given_.data(), .rows = slots, .cols = hidden, .stride = hidden};
  if (summed) {
    MultiplySum(layer, groups, hidden, *group);
  } else {
    // In a sum over the ranks, only rank 0 adds the bias.
    ForPanels(layer, groups, Half::kDown, given, group == nullptr || group->rank() == 0, multiply);
  }
}

void ExpertProducts::MultiplyAsTheyCome(const ExpertLayer& layer, Matrix x, int64_t hidden) {
  std::vector<int32_t> experts;
  for (const Group& g : groups_) experts.push_back(g.expert);
  std::vector<Group> there;
  for (std::span<int32_t> left = experts; !left.empty();) {
    const size_t held = layer.residency->Hold(left);
    BATON_CHECK(held >= 1 && held <= left.size()) << " experts held";
    for (size_t done = 0; done < held;) {
      const size_t until = layer.residency->Await(done + 1);
      BATON_CHECK(until > done && until <= held) << " experts there";
      there.clear();
      for (; done < until; ++done) {
        there.push_back(*std::ranges::lower_bound(groups_, left[done], {}, &Group::expert));
      }
      Multiply(layer, there, x, hidden, nullptr);
    }
    layer.residency->Release();
    left = left.subspan(held);
  }
}

void ExpertProducts::RunSome(Matrix x, Choices choices, const ExpertLayer& layer, Matrix out,
                             Collective* group, std::span<double> norms) {
  if (x.rows == 0) return;
  BATON_CHECK(layer.residency == nullptr || group == nullptr) << " ranks hold all their experts";
  GroupRows(choices, layer);
  const auto slots = std::ssize(slots_);
  const int64_t hidden = out.cols;
  x_cols_ = std::max(x.cols, widest_);
  row_bytes_ = 0;
  bool floats = false;
  for (const Group& g : groups_) {
    for (const Panels* panels : {&GateUpOf(layer, g.expert), &DownOf(layer, g.expert)}) {
      floats |= panels->row_bytes() == 0;
      row_bytes_ = std::max(row_bytes_, panels->row_bytes());
    }
    BATON_CHECK_EQ(GateUpOf(layer, g.expert).cols(), x.cols);
    BATON_CHECK_EQ(GateUpOf(layer, g.expert).rows(), 2 * DownOf(layer, g.expert).cols());
    BATON_CHECK_EQ(DownOf(layer, g.expert).rows(), hidden);
    const Expert& expert = layer.experts[static_cast<size_t>(g.expert)];
    BATON_CHECK(expert.gate_up_bias.empty() ||
                std::ssize(expert.gate_up_bias) == GateUpOf(layer, g.expert).rows());
    BATON_CHECK(expert.down_bias.empty() || std::ssize(expert.down_bias) == hidden);
  }
  const auto grow = [](auto& values, int64_t size) {
    values.resize(std::max(values.size(), static_cast<size_t>(size)));
  };
  if (floats) grow(x_, slots * x_cols_);
  prepared_.Take(slots * row_bytes_);
  grow(gate_up_, slots * 2 * widest_);
  grow(activated_, slots * widest_);
  grow(given_, slots * hidden);

  if (layer.residency == nullptr) {
    Multiply(layer, groups_, x, hidden, group);
  } else {
    MultiplyAsTheyCome(layer, x, hidden);
  }

  const Matrix given = {.data = given_.data(), .rows = slots, .cols = hidden, .stride = hidden};
  For(out.rows, slots * hidden, [&](int64_t r) {
    std::fill_n(out.row(r), hidden, 0.0f);
    for (int k = 0; k < choices.per_row; ++k) {
      const auto i = static_cast<size_t>(r * choices.per_row + k);
      const float* const from = given.row(slot_of_[i]);
      elementwise_.add_scaled(out.row(r), choices.data[i].weight, from, hidden);
      if (norms.empty()) continue;
      double squares = 0;
      for (int64_t c = 0; c < hidden; ++c) squares += double{from[c]} * from[c];
      norms[i] = std::sqrt(squares);
    }
  });
}

}  // namespace baton::kernels::cpu
