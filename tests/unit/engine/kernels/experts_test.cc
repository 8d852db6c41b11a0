// Mixtures of experts: Route against its definition, and the grouped products against single ones. What is
// promised to the bit is compared by bits: a row's result is that of the row alone, whatever is beside it.
#include "engine/kernels/experts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <deque>
#include <functional>
#include <limits>
#include <numeric>
#include <ostream>
#include <span>

#include "common/tensor/dtype.h"
#include "tests/unit/engine/kernels/trial.h"

namespace baton::kernels {
namespace {

using tensor::DType;

// The definition, in the plainest way: everything is sorted.
std::vector<ExpertChoice> Defined(const Routing& routing, std::span<const float> logits,
                                  std::span<const float> bias) {
  const auto experts = static_cast<size_t>(routing.experts), chosen = static_cast<size_t>(routing.chosen);
  const auto softmax = [](std::vector<double> values) {
    const double max = *std::ranges::max_element(values);
    double sum = 0;
    for (double& value : values) sum += value = std::exp(value - max);
    for (double& value : values) value /= sum;
    return values;
  };
  std::vector<double> scores(logits.begin(), logits.begin() + static_cast<int64_t>(experts));
  if (routing.score == Routing::Score::kSigmoid) {
    for (double& score : scores) score = 1 / (1 + std::exp(-score));
  } else if (!routing.late_softmax) {
    scores = softmax(scores);
  }
  // Choice is by float32.
  std::vector<float> values(scores.begin(), scores.end());
  for (size_t e = 0; e < experts; ++e) values[e] += bias.empty() ? 0 : bias[e];
  const size_t size = experts / static_cast<size_t>(routing.groups);
  std::vector<size_t> groups(static_cast<size_t>(routing.groups));
  std::iota(groups.begin(), groups.end(), 0);
  if (routing.groups > 1) {
    std::vector<float> sums;
    for (const size_t g : groups) {
      std::vector<float> own(values.begin() + static_cast<int64_t>(g * size),
                             values.begin() + static_cast<int64_t>((g + 1) * size));
      std::ranges::sort(own, std::greater());
      sums.push_back(own[0] + own[1]);
    }
    std::ranges::stable_sort(groups, [&](size_t a, size_t b) { return sums[a] > sums[b]; });
    groups.resize(static_cast<size_t>(routing.chosen_groups));
  }
  std::vector<size_t> order;
  for (size_t e = 0; e < experts; ++e) {
    if (std::ranges::find(groups, e / size) != groups.end()) order.push_back(e);
  }
  std::ranges::stable_sort(order, [&](size_t a, size_t b) { return values[a] > values[b]; });
  order.resize(chosen);
  std::ranges::sort(order);
  std::vector<double> weights;
  for (const size_t e : order) weights.push_back(scores[e]);
  if (routing.late_softmax) weights = softmax(weights);
  const double sum = std::accumulate(weights.begin(), weights.end(), 1e-20);
  std::vector<ExpertChoice> choices;
  for (size_t k = 0; k < chosen; ++k) {
    const double weight = weights[k] / (routing.normalize ? sum : 1) * routing.scale;
    choices.push_back({static_cast<int32_t>(order[k]), static_cast<float>(weight)});
  }
  if (routing.shared) {
    const double weight = routing.shared_gated ? 1 / (1 + std::exp(-double{logits[experts]})) : 1;
    choices.push_back({routing.experts, static_cast<float>(weight)});
  }
  return choices;
}

std::vector<Routing> Routings() {
  using Score = Routing::Score;
  return {
      {.experts = 8, .chosen = 2, .normalize = true},
      {.experts = 60, .chosen = 4, .shared = true, .shared_gated = true},
      {.experts = 128, .chosen = 8, .normalize = true},
      {.experts = 32, .chosen = 4, .late_softmax = true},
      {.experts = 1, .chosen = 1},
      {.experts = 5, .chosen = 5, .normalize = true, .scale = 0.5f},
      {.experts = 64,
       .chosen = 8,
       .score = Score::kSigmoid,
       .normalize = true,
       .scale = 2.5f,
       .shared = true},
      {.experts = 32,
       .chosen = 6,
       .score = Score::kSigmoid,
       .normalize = true,
       .scale = 1.5f,
       .groups = 8,
       .chosen_groups = 3,
       .shared = true},
      {.experts = 12, .chosen = 2, .score = Score::kSigmoid, .groups = 4, .chosen_groups = 1},
  };
}

class RouteTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    std::string why;
    kernels_ = GetParam() == "reference" ? MakeReferenceKernels() : TryMakeCpu(GetParam(), 2, &why);
    if (kernels_ == nullptr) GTEST_SKIP() << why;
  }
  std::unique_ptr<Kernels> kernels_;
};

INSTANTIATE_TEST_SUITE_P(Backends, RouteTest,
                         testing::Values("reference", "baseline", "avx2", "avx512", "avx512vnni", "amx"),
                         [](const auto& info) { return info.param; });

TEST_P(RouteTest, IsItsDefinition) {
  constexpr uint64_t kSeed = 61;
  SCOPED_TRACE(testing::Message() << "seed " << kSeed);
  Random random(kSeed);
  for (const Routing& routing : Routings()) {
    for (const bool biased : {false, true}) {
      for (const char* kind : {"normal", "ties", "extremes"}) {
        constexpr int64_t kRows = 40;
        std::vector<float> logits = random.Normals(kRows * routing.logits(), 2);
        const float largest = std::numeric_limits<float>::max();
        const float extremes[] = {0, -0.0f, 80, -80, 1e6f, -1e6f, largest, -largest, 1e-30f};
        for (float& logit : logits) {
          if (kind == std::string("ties")) logit = std::round(logit) / 2;
          if (kind == std::string("extremes")) logit = extremes[random.Int(0, 8)];
        }
        std::vector<float> bias = random.Normals(biased ? routing.experts : 0, 0.3f);
        if (kind == std::string("ties")) std::ranges::fill(bias, 0.25f);
        OwnedMatrix matrix = OwnedMatrix::From(logits, kRows, routing.logits(), 3);
        std::vector<ExpertChoice> found(static_cast<size_t>(kRows * routing.per_row()));
        const Choices choices = {found.data(), kRows, routing.per_row()};
        kernels_->Route(matrix.view(), routing, bias, choices);
        for (int64_t r = 0; r < kRows; ++r) {
          SCOPED_TRACE(testing::Message() << kind << ", row " << r << ", " << routing.experts << " experts"
                                          << (biased ? ", biased" : ""));
          const auto expected = Defined(routing, matrix.row(r), bias);
          ASSERT_EQ(expected.size(), choices.row(r).size());
          for (size_t k = 0; k < expected.size(); ++k) {
            ASSERT_EQ(choices.row(r)[k].expert, expected[k].expert);
            ASSERT_NEAR(choices.row(r)[k].weight, expected[k].weight,
                        1e-6f + 2e-6f * std::abs(expected[k].weight));
          }
        }
      }
    }
  }
}

// NaNs and infinities must not lead out of the experts, nor to one of them twice.
TEST_P(RouteTest, ChoosesDifferentExpertsWhateverTheLogits) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (const Routing& routing : Routings()) {
    for (const float filler : {std::nanf(""), infinity, -infinity}) {
      OwnedMatrix matrix(2, routing.logits());
      for (int64_t r = 0; r < 2; ++r) std::fill_n(matrix.view().row(r), routing.logits(), filler);
      matrix.view().row(1)[0] = 1;
      std::vector<ExpertChoice> found(static_cast<size_t>(2 * routing.per_row()));
      const Choices choices = {found.data(), 2, routing.per_row()};
      kernels_->Route(matrix.view(), routing, {}, choices);
      for (int64_t r = 0; r < 2; ++r) {
        int32_t before = -1;
        for (const ExpertChoice& choice : choices.row(r)) {
          ASSERT_GT(choice.expert, before);
          ASSERT_LT(choice.expert, routing.experts + (routing.shared ? 1 : 0));
          before = choice.expert;
        }
      }
    }
  }
}

// A layer with random weights that every format takes without loss.
struct TrialLayer {
  static constexpr int64_t kHidden = 112;

  TrialLayer(const std::string& format, int experts, Random& random) {
    for (int e = 0; e < experts; ++e) {
      // The last one is shared, and wider.
      const int64_t width = e + 1 < experts ? 48 : 80;
      gate_up_bias.push_back(random.Normals(2 * width));
      down_bias.push_back(random.Normals(kHidden));
      for (const auto& [rows, cols] : {std::pair{2 * width, kHidden}, {kHidden, width}}) {
        Storage& to = storage.emplace_back();
        to.view = {.rows = rows, .cols = cols};
        if (format == "f32" || format == "bf16") {
          to.numbers = random.Normals(rows * cols, 1 / std::sqrt(static_cast<float>(cols)));
          for (const float value : to.numbers) to.halves.push_back(tensor::ToBF16(value));
          to.view.data = format == "f32" ? static_cast<const void*>(to.numbers.data()) : to.halves.data();
          to.view.dtype = format == "f32" ? DType::kF32 : DType::kBF16;
          continue;
        }
        const bool halves = format == "i4";
        for (int64_t i = 0; i < rows * cols / (halves ? 2 : 1); ++i) {
          to.integers.push_back(static_cast<int8_t>(halves ? random.Int(-128, 127) : random.Int(-127, 127)));
        }
        for (int64_t r = 0; r < rows; ++r)
          to.scales.push_back(0.0002f * static_cast<float>(random.Int(1, 9)));
        for (int64_t g = 0; halves && g < rows * cols / 16; ++g) {
          to.factors.push_back(static_cast<uint8_t>(random.Int(1, 8)));
          to.zeros.push_back(static_cast<uint8_t>(random.Int(0, 15)));
        }
        to.view.data = to.integers.data();
        to.view.dtype = DType::kI8;
        to.view.quantization = {.bits = halves ? 4 : 8,
                                .group = halves ? 16 : cols,
                                .scales = to.scales.data(),
                                .zeros = halves ? to.zeros.data() : nullptr,
                                .factors = halves ? to.factors.data() : nullptr};
      }
    }
  }

  struct Storage {
    std::vector<float> numbers, scales;
    std::vector<uint16_t> halves;
    std::vector<int8_t> integers;
    std::vector<uint8_t> factors, zeros;
    WeightView view;
  };
  std::deque<Storage> storage;  // of each expert: gate and up, down
  std::vector<std::vector<float>> gate_up_bias, down_bias;
};

// The values of gpt-oss, but for the limit, which is within reach of random numbers.
constexpr float kLimit = 1.5f, kSlope = 1.702f;

// The same, packed by one backend. clamped: with biases and gpt-oss' activation.
struct PackedLayer {
  PackedLayer(Kernels& kernels, const TrialLayer& layer, bool clamped) : clamped(clamped) {
    for (size_t i = 0; i < layer.storage.size(); i += 2) {
      for (const size_t m : {i, i + 1}) matrices.push_back(*kernels.Pack({&layer.storage[m].view, 1}));
      experts.push_back({matrices[i].get(), matrices[i + 1].get()});
      if (!clamped) continue;
      experts.back().gate_up_bias = layer.gate_up_bias[i / 2];
      experts.back().down_bias = layer.down_bias[i / 2];
    }
  }
  ExpertLayer view() const {
    return {.experts = experts, .exact_sums = false, .limit = clamped ? kLimit : 0, .slope = kSlope};
  }

  bool clamped;
  std::vector<std::unique_ptr<PackedMatrix>> matrices;
  std::vector<Expert> experts;
};

constexpr int kExperts = 7, kChosen = 3;  // and a shared one

std::vector<ExpertChoice> RandomChoices(int64_t rows, Random& random) {
  std::vector<ExpertChoice> all;
  for (int64_t r = 0; r < rows; ++r) {
    std::vector<int32_t> ids(kExperts - 1);
    std::iota(ids.begin(), ids.end(), 0);
    random.Shuffle(ids);
    // Some experts are chosen by nearly all rows, others by few.
    if (random.Int(0, 3) != 0) {
      ids.erase(std::ranges::find(ids, 2));
      ids.insert(ids.begin(), 2);
    }
    ids.resize(kChosen);
    std::ranges::sort(ids);
    ids.push_back(kExperts - 1);
    for (const int32_t id : ids) all.push_back({id, random.Normals(1)[0]});
  }
  return all;
}

struct ExpertTrial {
  std::string isa, format;
  bool clamped = false;
};
void PrintTo(const ExpertTrial& trial, std::ostream* out) {
  *out << trial.isa << " " << trial.format << (trial.clamped ? " clamped" : "");
}

class ExpertsTest : public testing::TestWithParam<ExpertTrial> {
 protected:
  void SetUp() override {
    for (const int threads : {1, 2, 3}) {
      std::string why;
      kernels_.push_back(TryMakeCpu(GetParam().isa, threads, &why));
      if (kernels_.back() == nullptr) GTEST_SKIP() << why;
    }
  }
  std::vector<std::unique_ptr<Kernels>> kernels_;
};

std::vector<ExpertTrial> Trials() {
  std::vector<ExpertTrial> trials;
  for (const char* isa : {"baseline", "avx2", "avx512", "avx512vnni", "amx"}) {
    for (const char* format : {"f32", "bf16", "i8", "i4"}) {
      for (const bool clamped : {false, true}) trials.push_back({isa, format, clamped});
    }
  }
  return trials;
}
INSTANTIATE_TEST_SUITE_P(Formats, ExpertsTest, testing::ValuesIn(Trials()), [](const auto& info) {
  return info.param.isa + "_" + info.param.format + (info.param.clamped ? "_clamped" : "");
});

// gpt-oss' activation of a row: by an expert that has the row as its bias, matrices that are zero and one.
OwnedMatrix Activated(Kernels& kernels, OwnedMatrix& gate_up) {
  const std::vector<float> bias = gate_up.row(0);
  const auto width = std::ssize(bias) / 2;
  const std::vector<float> zeros(static_cast<size_t>(2 * width * width));
  std::vector<float> identity(static_cast<size_t>(width * width));
  for (int64_t i = 0; i < width; ++i) identity[static_cast<size_t>(i * (width + 1))] = 1;
  const WeightView none = {zeros.data(), DType::kF32, 2 * width, width};
  const WeightView one = {identity.data(), DType::kF32, width, width};
  const auto zero = *kernels.Pack({&none, 1}), same = *kernels.Pack({&one, 1});
  const Expert expert = {.gate_up = zero.get(), .down = same.get(), .gate_up_bias = bias};
  ExpertChoice choice = {0, 1};
  OwnedMatrix x(1, width), out(1, width);
  kernels.Experts(x.view(), {&choice, 1, 1}, {.experts = {&expert, 1}, .limit = kLimit, .slope = kSlope},
                  out.view(), nullptr, {});
  return out;
}

// Alone, by the operations of a dense block, summed up one after the other.
std::vector<float> OneByOne(Kernels& kernels, const PackedLayer& layer, const std::vector<float>& x,
                            std::span<const ExpertChoice> choices, bool fused) {
  std::vector<float> sum(static_cast<size_t>(TrialLayer::kHidden), 0.0f);
  for (const auto& [id, weight] : choices) {
    const Expert& expert = layer.experts[static_cast<size_t>(id)];
    OwnedMatrix row = OwnedMatrix::From(x, 1, TrialLayer::kHidden);
    OwnedMatrix gate_up(1, expert.gate_up->rows()), activated(1, expert.down->cols()),
        given(1, TrialLayer::kHidden);
    kernels.MatMul(row.view(), *expert.gate_up, expert.gate_up_bias, gate_up.view());
    if (layer.clamped) {
      // Each value is activated by itself: an expert whose `down` is the identity gives its activations.
      activated = Activated(kernels, gate_up);
    } else {
      kernels.SwiGlu(gate_up.view(), activated.view());
    }
    kernels.MatMul(activated.view(), *expert.down, expert.down_bias, given.view());
    const std::vector<float> values = given.row(0);
    for (size_t i = 0; i < sum.size(); ++i) {
      const float product = weight * values[i];
      sum[i] = fused ? std::fma(weight, values[i], sum[i]) : sum[i] + product;
    }
  }
  return sum;
}

TEST_P(ExpertsTest, RowsAreThoseOfTheRowAlone) {
  constexpr uint64_t kSeed = 62;
  SCOPED_TRACE(testing::Message() << "seed " << kSeed);
  Random random(kSeed);
  const TrialLayer weights(GetParam().format, kExperts, random);
  const PackedLayer layer(*kernels_[0], weights, GetParam().clamped);
  constexpr int64_t kRows = 61, kHidden = TrialLayer::kHidden;
  const std::vector<float> x = random.Normals(kRows * kHidden);
  const std::vector<ExpertChoice> choices = RandomChoices(kRows, random);
  const auto choices_of = [&](int64_t r) {
    return std::span(choices).subspan(static_cast<size_t>(r * (kChosen + 1)), kChosen + 1);
  };
  std::vector<std::vector<float>> alone;
  for (int64_t r = 0; r < kRows; ++r) {
    const std::vector<float> row(x.begin() + r * kHidden, x.begin() + (r + 1) * kHidden);
    alone.push_back(OneByOne(*kernels_[0], layer, row, choices_of(r), GetParam().isa != "baseline"));
  }
  // Batches of any size, order and repetition; the largest takes several passes.
  for (const int64_t size : {1, 2, 3, 8, 17, 61, 1200}) {
    for (auto& kernels : kernels_) {
      std::vector<int64_t> picked;
      std::vector<float> values;
      std::vector<ExpertChoice> some;
      for (int64_t i = 0; i < size; ++i) {
        picked.push_back(random.Int(0, kRows - 1));
        values.insert(values.end(), x.begin() + picked.back() * kHidden,
                      x.begin() + (picked.back() + 1) * kHidden);
        some.insert(some.end(), choices_of(picked.back()).begin(), choices_of(picked.back()).end());
      }
      OwnedMatrix batch = OwnedMatrix::From(values, size, kHidden, 5), out(size, kHidden, 3);
      std::vector<double> norms(some.size());
      kernels->Experts(batch.view(), {some.data(), size, kChosen + 1}, layer.view(), out.view(), nullptr,
                       size % 2 == 0 ? std::span<double>() : norms);
      EXPECT_TRUE(out.GapsIntact());
      for (int64_t i = 0; i < size; ++i) {
        ASSERT_TRUE(SameBits(out.row(i), alone[static_cast<size_t>(picked[static_cast<size_t>(i)])]))
            << "row " << i << " of " << size;
      }
    }
  }
}

// Keeps the weights of some experts at once, at a place that changes whenever they come: what they had before
// is overwritten.
class FewExperts final : public ExpertResidency {
 public:
  FewExperts(PackedLayer& layer, size_t most, Random& random)
      : layer_(layer), most_(most), random_(random), places_(2 * most) {
    for (const auto& matrix : layer.matrices) {
      images_.emplace_back(matrix->image().begin(), matrix->image().end());
      matrix->Place({});
    }
  }

  size_t Hold(std::span<int32_t> experts) override {
    EXPECT_TRUE(held_.empty());
    const auto count =
        std::min(experts.size(), static_cast<size_t>(random_.Int(1, static_cast<int64_t>(most_))));
    std::vector<int32_t> shuffled(experts.begin(), experts.end());
    random_.Shuffle(shuffled);
    std::ranges::copy(shuffled, experts.begin());
    held_.assign(shuffled.begin(), shuffled.begin() + static_cast<std::ptrdiff_t>(count));
    order_.resize(places_.size());
    std::iota(order_.begin(), order_.end(), 0);
    random_.Shuffle(order_);
    there_ = 0;
    return count;
  }
  // Some more than asked for.
  size_t Await(size_t count) override {
    EXPECT_LE(count, held_.size());
    const auto until =
        static_cast<size_t>(random_.Int(static_cast<int64_t>(count), static_cast<int64_t>(held_.size())));
    for (size_t i = 2 * there_; i < 2 * until; ++i) {
      const auto matrix = 2 * static_cast<size_t>(held_[i / 2]) + i % 2;
      Place& place = places_[order_[i]];
      place = Place(images_[matrix].size() / sizeof(Line) + 1);
      std::memcpy(place.data(), images_[matrix].data(), images_[matrix].size());
      layer_.matrices[matrix]->Place({place.front().bytes, images_[matrix].size()});
    }
    there_ = std::max(there_, until);
    return there_;
  }
  void Release() override {
    EXPECT_EQ(there_, held_.size());
    held_.clear();
    for (Place& place : places_) {
      const auto bytes =
          std::as_writable_bytes(std::span(place));  // empty for an expert that was never there
      std::fill(bytes.begin(), bytes.end(), std::byte{0xff});
    }
  }

 private:
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  using Place = std::vector<Line>;
  PackedLayer& layer_;
  const size_t most_;
  Random& random_;
  std::vector<Place> places_;
  std::vector<std::vector<std::byte>> images_;
  std::vector<int32_t> held_;
  std::vector<size_t> order_;  // of places
  size_t there_ = 0;
};

TEST_P(ExpertsTest, BitsAreTheSameWhereverWeightsLieAndHoweverFewAreThereAtOnce) {
  constexpr uint64_t kSeed = 67;
  SCOPED_TRACE(testing::Message() << "seed " << kSeed);
  Random random(kSeed);
  const TrialLayer weights(GetParam().format, kExperts, random);
  for (size_t most = 1; most <= kExperts; ++most) {
    PackedLayer layer(*kernels_[1], weights, GetParam().clamped);
    const int64_t rows = random.Int(1, 40);
    OwnedMatrix x = OwnedMatrix::From(random.Normals(rows * TrialLayer::kHidden), rows, TrialLayer::kHidden);
    std::vector<ExpertChoice> choices = RandomChoices(rows, random);
    const Choices view = {choices.data(), rows, kChosen + 1};
    OwnedMatrix all(rows, TrialLayer::kHidden), out(rows, TrialLayer::kHidden);
    kernels_[1]->Experts(x.view(), view, layer.view(), all.view(), nullptr, {});
    FewExperts few(layer, most, random);
    ExpertLayer outside = layer.view();
    outside.residency = &few;
    for (auto& kernels : kernels_) {
      kernels->Experts(x.view(), view, outside, out.view(), nullptr, {});
      ASSERT_TRUE(SameBits(out.values(), all.values())) << most << " at once";
    }
  }
}

TEST_P(ExpertsTest, AgreesWithTheReference) {
  constexpr uint64_t kSeed = 63;
  SCOPED_TRACE(testing::Message() << "seed " << kSeed);
  Random random(kSeed);
  const auto reference = MakeReferenceKernels();
  const TrialLayer weights(GetParam().format, kExperts, random);
  const PackedLayer layer(*kernels_[1], weights, GetParam().clamped),
      judge(*reference, weights, GetParam().clamped);
  constexpr int64_t kRows = 19, kHidden = TrialLayer::kHidden;
  OwnedMatrix x = OwnedMatrix::From(random.Normals(kRows * kHidden), kRows, kHidden);
  std::vector<ExpertChoice> choices = RandomChoices(kRows, random);
  const Choices view = {choices.data(), kRows, kChosen + 1};
  OwnedMatrix out(kRows, kHidden), expected(kRows, kHidden);
  std::vector<double> norms(choices.size()), expected_norms(choices.size());
  kernels_[1]->Experts(x.view(), view, layer.view(), out.view(), nullptr, norms);
  reference->Experts(x.view(), view, judge.view(), expected.view(), nullptr, expected_norms);
  const bool integers = GetParam().format[0] == 'i';
  double error = 0, size = 0;
  for (int64_t r = 0; r < kRows; ++r) {
    for (int64_t c = 0; c < kHidden; ++c) {
      error += std::pow(double{out.row(r)[c]} - expected.row(r)[c], 2);
      size += std::pow(double{expected.row(r)[c]}, 2);
    }
  }
  // Activations of 8 bits, or of bfloat16, twice, beside float32.
  const bool narrow = GetParam().format == "bf16";
  EXPECT_LT(std::sqrt(error / size), integers ? 2e-2 : narrow ? 4e-3 : 1e-6);
  EXPECT_GT(size, 0);
  for (size_t i = 0; i < norms.size(); ++i) {
    EXPECT_NEAR(norms[i], expected_norms[i], expected_norms[i] * (integers ? 5e-2 : narrow ? 1e-2 : 1e-6));
  }
}

// The activation itself, to its limits and beyond.
TEST_P(ExpertsTest, ClampsAsDefined) {
  if (!GetParam().clamped || GetParam().format != "f32") GTEST_SKIP() << "once is enough";
  const float values[] = {0, -0.0f, 0.3f, -0.3f, 1.49f, 1.5f, 1.51f, -1.51f, 7, -7, 90, -90, 1e30f, -1e30f};
  std::vector<float> gates, ups;
  for (const float gate : values) {
    for (const float up : values) {
      gates.push_back(gate);
      ups.push_back(up);
    }
  }
  std::vector<float> both = gates;
  both.insert(both.end(), ups.begin(), ups.end());
  OwnedMatrix gate_up = OwnedMatrix::From(both, 1, std::ssize(both));
  const auto reference = MakeReferenceKernels();
  for (Kernels* kernels : {kernels_[0].get(), reference.get()}) {
    const std::vector<float> found = Activated(*kernels, gate_up).row(0);
    for (size_t i = 0; i < gates.size(); ++i) {
      const double g = std::min<double>(gates[i], kLimit), u = std::clamp<double>(ups[i], -kLimit, kLimit);
      const double exact = g / (1 + std::exp(-kSlope * g)) * (u + 1);
      ASSERT_NEAR(found[i], exact, 1e-6 * std::abs(exact) + 1e-7) << gates[i] << ", " << ups[i];
    }
  }
}

}  // namespace
}  // namespace baton::kernels
