// Checks that a backend draws the tokens that sampling::Sampler draws, over rows that are hard in different
// ways. For the tests of every backend that draws, on GPUs and off.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <random>
#include <vector>

#include "common/base/random.h"
#include "engine/kernels/kernels.h"
#include "engine/sampling/sampler.h"

namespace baton::kernels {

// Logits of one row: of a model's kind, crowded, with ties, with what is no number, all equal, at the ends of
// float32.
inline std::vector<float> HardRow(int kind, int vocabulary, std::mt19937& random) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr float kLargest = std::numeric_limits<float>::max();
  std::normal_distribution<float> normal(0, 3);
  std::vector<float> row(static_cast<size_t>(vocabulary));
  for (float& logit : row) {
    const float value = normal(random);
    switch (kind) {
      case 0:
        logit = value;
        break;
      case 1:
        logit = 20 + value / 1000;
        break;
      case 2:
        logit = std::round(value) / 2;
        break;
      case 3:
        logit = value > 3 ? std::numeric_limits<float>::quiet_NaN() : value < -3 ? -kInfinity : value;
        break;
      case 4:
        logit = value > 0 ? 0.0f : -0.0f;
        break;
      case 5:
        logit = value > 4 ? kInfinity : value > 2 ? kLargest : -kLargest;
        break;
      default:
        logit = value > 0 ? -kInfinity : std::numeric_limits<float>::quiet_NaN();
    }
  }
  return row;
}
inline constexpr int kHardKinds = 7;

// `vocabulary` tokens, `draws` of them from each kind of row, with parameters drawn from `seed`.
inline void ExpectDrawsOfTheSampler(Kernels& kernels, int vocabulary, int draws, uint32_t seed) {
  SCOPED_TRACE(testing::Message() << "vocabulary " << vocabulary << ", seed " << seed);
  std::mt19937 random(seed);
  const auto one_of = [&random](auto... values) {
    const std::array choices = {values...};
    return choices[random() % choices.size()];
  };
  // Behind each row lies what would be drawn for certain.
  const int64_t stride = vocabulary + 4;
  std::vector<float> values(static_cast<size_t>(kHardKinds * stride), 1e30f);
  std::vector<std::vector<float>> rows;
  for (int kind = 0; kind < kHardKinds; ++kind) {
    rows.push_back(HardRow(kind, vocabulary, random));
    std::ranges::copy(rows.back(), values.begin() + kind * stride);
  }
  auto buffer = kernels.memory().Allocate(static_cast<int64_t>(values.size() * sizeof(float)));
  ASSERT_TRUE(buffer.ok()) << buffer.status();
  ASSERT_TRUE(kernels.memory()
                  .Upload(values.data(), buffer->get(), static_cast<int64_t>(values.size() * sizeof(float)))
                  .ok());
  std::vector<RowDraw> asked;
  std::vector<sampling::Params> params;
  for (int i = 0; i < draws * kHardKinds; ++i) {
    const sampling::Params own = {
        .temperature = one_of(0.0f, 0.3f, 1.0f, 1.0f, 2.5f, std::numeric_limits<float>::denorm_min()),
        .top_k = one_of(0, 0, 1, 4, 40, vocabulary / 2 + 1, vocabulary, 2 * vocabulary),
        .top_p = one_of(1.0f, 1.0f, 0.95f, 0.5f, 1e-6f),
        .min_p = one_of(0.0f, 0.0f, 0.02f, 1.0f),
        .seed = (uint64_t{random()} << 32) + random()};
    params.push_back(own);
    asked.push_back({.uniform = UniformAt(own.seed, static_cast<uint64_t>(i)),
                     .row = i / draws,
                     .temperature = own.temperature,
                     .top_k = own.top_k,
                     .top_p = own.top_p,
                     .min_p = own.min_p});
  }
  std::vector<TokenId> tokens(asked.size());
  ASSERT_TRUE(kernels.sampler()->CanSample(vocabulary));
  kernels.sampler()->Launch({buffer->get(), kHardKinds, vocabulary, stride}, {asked});
  kernels.sampler()->Await(tokens);
  sampling::Sampler judge;
  for (size_t i = 0; i < asked.size(); ++i) {
    const auto expected =
        judge.Sample(rows[static_cast<size_t>(asked[i].row)], params[i], {}, i, std::nullopt);
    EXPECT_EQ(tokens[i].value(), expected.ok() ? expected->token.value() : -1)
        << "draw " << i << " of a row of kind " << asked[i].row << ": temperature " << params[i].temperature
        << ", top-k " << params[i].top_k << ", top-p " << params[i].top_p << ", min-p " << params[i].min_p;
  }
}

// A mask of one row (RowDraw::mask_words): of few tokens, of many, of one, of none, of fewer words than the
// vocabulary has; or none at all.
inline std::vector<uint32_t> RandomMask(int vocabulary, std::mt19937& random) {
  const auto words = static_cast<size_t>((vocabulary + 31) / 32);
  std::vector<uint32_t> mask(words);
  switch (random() % 6) {
    case 0:
      return {};
    case 1:
      for (uint32_t& word : mask) word = random() & random() & random();
      break;
    case 2:
      for (uint32_t& word : mask) word = random() | random() | random();
      break;
    case 3: {
      const auto only = random() % static_cast<unsigned>(vocabulary);
      mask[only / 32] = uint32_t{1} << (only % 32);
      break;
    }
    case 4:  // none, now and then
      for (uint32_t& word : mask) word = random() % 4 == 0 ? random() : 0;
      break;
    default:
      mask.resize(1 + words / 2);
      for (uint32_t& word : mask) word = random();
  }
  return mask;
}

// Sequences with penalties, biases and masks, some steps each, every step launched before the tokens of the
// one before are awaited: the backend counts what they have seen. Now and then another sequence gets a slot.
inline void ExpectPenaltiesOfTheSampler(Kernels& kernels, int vocabulary, int steps, uint32_t seed) {
  SCOPED_TRACE(testing::Message() << "vocabulary " << vocabulary << ", seed " << seed);
  constexpr int kSequences = kHardKinds;  // one per kind of row
  std::mt19937 random(seed);
  const auto one_of = [&random](auto... values) {
    const std::array choices = {values...};
    return choices[random() % choices.size()];
  };
  const auto token = [&] {
    return TokenId(static_cast<int32_t>(random() % static_cast<unsigned>(vocabulary)));
  };
  struct Sequence {
    int32_t slot = -1;
    sampling::Params params;
    sampling::History history;
    std::vector<TokenId> prompt, output;
    bool fresh = true;
  };
  const auto make = [&](int32_t slot) {
    const auto made = std::make_shared<Sequence>(Sequence{.slot = slot});
    Sequence& sequence = *made;
    sequence.params = {.temperature = one_of(0.0f, 1.0f, 1.0f, 2.5f),
                       .top_k = one_of(0, 0, 3, 40),
                       .top_p = one_of(1.0f, 0.9f),
                       .seed = random(),
                       .repetition_penalty = one_of(1.0f, 1.3f, 0.7f),
                       .presence_penalty = one_of(0.0f, 0.4f, -1.1f),
                       .frequency_penalty = one_of(0.0f, 0.3f, -0.6f)};
    for (int id = 0; id < vocabulary; id += 1 + static_cast<int>(random() % 40)) {
      if (random() % 2 == 0)
        sequence.params.logit_bias.emplace_back(TokenId(id), one_of(-100.0f, -1.5f, 2.0f));
    }
    if (!sequence.params.Penalises()) sequence.slot = -1;
    for (auto i = random() % 30; i > 0; --i) sequence.prompt.push_back(token());
    for (auto i = random() % 3 * 20; i > 0; --i) sequence.output.push_back(token());
    sequence.history.AddPrompt(sequence.prompt);
    for (TokenId seen : sequence.output) sequence.history.AddOutput(seen);
    return made;
  };
  const auto slot_of = [](int s) { return static_cast<int32_t>((s * 3 + 1) % kSequences); };
  ASSERT_TRUE(kernels.sampler()->ReservePenaltySlots(kSequences, vocabulary));
  std::vector<std::shared_ptr<Sequence>> sequences;
  for (int s = 0; s < kSequences; ++s) sequences.push_back(make(slot_of(s)));

  struct Step {
    std::vector<std::shared_ptr<Sequence>> sequences;
    std::vector<std::vector<float>> rows;
    std::vector<std::vector<uint32_t>> masks = {};
  };
  std::vector<Step> launched;
  // The rows of a step that is under way stay.
  std::vector<device::Memory::Buffer> buffers;
  const int64_t stride = vocabulary + 4;
  for (int step = 0; step <= steps; ++step) {
    if (step < steps) {
      Step& now = launched.emplace_back(Step{.sequences = sequences, .rows = {}});
      std::vector<RowDraw> draws;
      std::vector<float> values(static_cast<size_t>(kSequences * stride), 1e30f);
      std::vector<TokenBias> biases;
      std::vector<SeenTokens> seen;
      std::vector<uint32_t> masks;
      for (int s = 0; s < kSequences; ++s) {
        Sequence& own = *sequences[static_cast<size_t>(s)];
        now.rows.push_back(HardRow(s, vocabulary, random));
        std::ranges::copy(now.rows.back(), values.begin() + s * stride);
        now.masks.push_back(RandomMask(vocabulary, random));
        const std::vector<uint32_t>& mask = now.masks.back();
        if (own.slot >= 0 && own.fresh) seen.push_back({own.slot, own.prompt, own.output});
        own.fresh = false;
        draws.push_back({.uniform = UniformAt(own.params.seed, static_cast<uint64_t>(step)),
                         .row = s,
                         .temperature = own.params.temperature,
                         .top_k = own.params.top_k,
                         .top_p = own.params.top_p,
                         .slot = own.slot,
                         .repetition_penalty = own.params.repetition_penalty,
                         .presence_penalty = own.params.presence_penalty,
                         .frequency_penalty = own.params.frequency_penalty,
                         .first_bias = static_cast<int32_t>(biases.size()),
                         .bias_count = static_cast<int32_t>(own.params.logit_bias.size()),
                         .first_mask = static_cast<int32_t>(masks.size()),
                         .mask_words = static_cast<int32_t>(mask.size())});
        masks.insert(masks.end(), mask.begin(), mask.end());
        for (const auto& [id, bias] : own.params.logit_bias) biases.push_back({id.value(), bias});
      }
      const auto bytes = static_cast<int64_t>(values.size() * sizeof(float));
      auto buffer = kernels.memory().Allocate(bytes);
      ASSERT_TRUE(buffer.ok()) << buffer.status();
      ASSERT_TRUE(kernels.memory().Upload(values.data(), buffer->get(), bytes).ok());
      kernels.sampler()->Launch({buffer->get(), kSequences, vocabulary, stride},
                                {draws, biases, seen, masks});
      buffers.push_back(*std::move(buffer));
      // Counts stay when their slots are moved.
      ASSERT_TRUE(kernels.sampler()->ReservePenaltySlots(kSequences + step, vocabulary));
    }
    if (step == 0) continue;
    const Step& before = launched[static_cast<size_t>(step - 1)];
    std::vector<TokenId> tokens(kSequences);
    kernels.sampler()->Await(tokens);
    sampling::Sampler judge;
    for (size_t s = 0; s < tokens.size(); ++s) {
      Sequence& own = *before.sequences[s];
      const auto expected =
          judge.Sample(before.rows[s], own.params, own.history, static_cast<uint64_t>(step - 1), std::nullopt,
                       std::nullopt, before.masks[s]);
      const TokenId drawn = expected.ok() ? expected->token : TokenId(-1);
      ASSERT_EQ(tokens[s], drawn) << "step " << step - 1 << " of a row of kind " << s << ": repetition "
                                  << own.params.repetition_penalty << ", presence "
                                  << own.params.presence_penalty << ", frequency "
                                  << own.params.frequency_penalty << ", " << own.params.logit_bias.size()
                                  << " biases, a mask of " << before.masks[s].size() << " words";
      if (expected.ok()) own.history.AddOutput(drawn);
      // The old sequence's draw in flight is still counted in the slot, before the new one's tokens are.
      if (random() % 8 == 0) sequences[s] = make(slot_of(static_cast<int>(s)));
    }
  }
}

// Each of eight equal logits has an eighth of [0, 1), its lower end included.
inline void ExpectBordersOfTheUpperToken(Kernels& kernels) {
  constexpr int kTokens = 8;
  const std::vector<float> row(kTokens, 1.5f);
  auto buffer = kernels.memory().Allocate(kTokens * sizeof(float));
  ASSERT_TRUE(buffer.ok()) << buffer.status();
  ASSERT_TRUE(kernels.memory().Upload(row.data(), buffer->get(), kTokens * sizeof(float)).ok());
  std::vector<RowDraw> asked;
  for (int i = 0; i < kTokens; ++i) {
    for (double uniform : {i / 8.0, std::nextafter((i + 1) / 8.0, 0.0)})
      asked.push_back({.uniform = uniform});
  }
  std::vector<TokenId> tokens(asked.size());
  kernels.sampler()->Launch({buffer->get(), 1, kTokens, kTokens}, {asked});
  kernels.sampler()->Await(tokens);
  for (size_t i = 0; i < asked.size(); ++i) {
    EXPECT_EQ(tokens[i].value(), static_cast<int32_t>(i / 2)) << "at " << asked[i].uniform;
  }
}

}  // namespace baton::kernels
