#include "engine/sampling/trace.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "common/base/check.h"
#include "common/base/random.h"
#include "engine/sampling/sampler.h"
#include "engine/sampling/softmax.h"

namespace baton::sampling {
namespace {

constexpr float kImpossible = -std::numeric_limits<float>::infinity();

int64_t Possible(std::span<const float> logits) {
  return std::ranges::count_if(logits, [](float logit) { return logit > kImpossible; });
}

}  // namespace

// It goes through the steps of Sample again, by the same functions, so that the two never differ.
Trace Sampler::Explain(std::span<const float> logits, const Params& params, const History& history,
                       uint64_t position, TokenId token, bool forced, std::span<const uint32_t> mask) {
  std::span<const float> unmasked = Adjust(logits, params, history);
  const float unmasked_max = Max(unmasked);
  const double unmasked_sum = WeightSum(unmasked, unmasked_max, 1.0);
  std::vector<float> kept;  // what the mask is about to hide
  if (!mask.empty()) {
    kept.assign(unmasked.begin(), unmasked.end());
    unmasked = kept;
  }
  const std::span<const float> adjusted = mask.empty() ? unmasked : Adjust(logits, params, history, mask);
  const float max = Max(adjusted);
  BATON_CHECK(!std::isinf(max)) << "nothing can be drawn";

  Trace trace{.token = token, .vocabulary = Possible(logits), .after_mask = Possible(adjusted)};
  SelectHead(adjusted, kTracedTokens);
  std::vector<Candidate> listed = head_;
  if (std::ranges::find(listed, token.value(), &Candidate::id) == listed.end()) {
    listed.push_back({adjusted[token.value()], token.value()});
  }

  double tempered_mass = 1, mass = 1;
  if (params.temperature == 0) {
    trace.after_temperature = trace.after_top_k = trace.after_top_p = trace.after_min_p = 1;
  } else {
    ranking_.Rank(adjusted, max, params.InverseTemperature());
    tempered_mass = ranking_.total();
    trace.after_temperature = trace.after_top_k = ranking_.kept_count();
    Params top_p = params;
    top_p.min_p = 0;
    if (params.top_k > 0) {
      trace.after_top_k = std::min<int64_t>(params.top_k, trace.after_temperature);
      SelectHead(adjusted, params.top_k);
      CutHead(max, top_p);
      trace.after_top_p = std::ssize(head_);
      SelectHead(adjusted, params.top_k);
      mass = CutHead(max, params);
      trace.after_min_p = std::ssize(head_);
    } else {
      ranking_.Keep(top_p.CutOf(tempered_mass));
      trace.after_top_p = ranking_.kept_count();
      mass = ranking_.Keep(params.CutOf(tempered_mass));
      trace.after_min_p = ranking_.kept_count();
    }
  }
  if (forced) {
    trace.how = Trace::How::kForced;
  } else if (params.temperature == 0) {
    trace.how = Trace::How::kGreedy;
  } else {
    trace.uniform = UniformAt(params.seed, position);
  }

  for (size_t i = 0; i < listed.size(); ++i) {
    const Candidate candidate = listed[i];
    TokenTrace& one = trace.likeliest.emplace_back(
        TokenTrace{.token = TokenId(candidate.id),
                   .logit = logits[candidate.id],
                   .adjusted = unmasked[candidate.id],
                   .probability = Weight(unmasked[candidate.id], unmasked_max, 1.0) / unmasked_sum});
    if (!(candidate.logit > kImpossible)) continue;  // forced, whatever the logits say
    const auto better = [&](const float& logit) {
      return Candidate{logit, static_cast<int32_t>(&logit - adjusted.data())} < candidate;
    };
    // The head is in the order of ranks; the one behind it has to be looked up.
    const int64_t rank =
        i < kTracedTokens ? static_cast<int64_t>(i) : std::ranges::count_if(adjusted, better);
    if (rank >= trace.after_temperature) continue;
    const double weight =
        params.temperature == 0 ? 1 : Weight(candidate.logit, max, params.InverseTemperature());
    one.tempered = weight / tempered_mass;
    if (rank < trace.after_min_p) one.drawn = weight / mass;
  }
  return trace;
}

}  // namespace baton::sampling
