#include <fmt/format.h>

#include <cmath>
#include <string_view>

#include "absl/container/flat_hash_set.h"
#include "common/base/status.h"
#include "engine/sampling/sampler.h"

namespace baton::sampling {
namespace {

absl::Status Refuse(std::string_view field, double value, std::string_view range) {
  return absl::InvalidArgumentError(fmt::format("{} is {}: it must be {}", field, value, range));
}

}  // namespace

bool Params::Penalises() const {
  return repetition_penalty != 1 || presence_penalty != 0 || frequency_penalty != 0;
}

bool Params::ChangesLogits() const { return Penalises() || !logit_bias.empty(); }

Cut Params::CutOf(double total) const {
  Cut cut{.weight = static_cast<double>(min_p)};
  if (top_p < 1) cut.mass = static_cast<double>(top_p) * total;
  return cut;
}

// Each comparison is written so that NaN fails it.
absl::Status Params::Validate(int64_t vocabulary) const {
  if (!(temperature >= 0) || std::isinf(temperature))
    return Refuse("temperature", temperature, "finite and >= 0");
  if (top_k < 0) return Refuse("top_k", top_k, ">= 0 (0 for all)");
  if (!(top_p > 0 && top_p <= 1)) return Refuse("top_p", top_p, "in (0, 1]");
  if (!(min_p >= 0 && min_p <= 1)) return Refuse("min_p", min_p, "in [0, 1]");
  if (!(repetition_penalty > 0) || std::isinf(repetition_penalty)) {
    return Refuse("repetition_penalty", repetition_penalty, "finite and > 0");
  }
  if (!(presence_penalty >= -2 && presence_penalty <= 2)) {
    return Refuse("presence_penalty", presence_penalty, "in [-2, 2]");
  }
  if (!(frequency_penalty >= -2 && frequency_penalty <= 2)) {
    return Refuse("frequency_penalty", frequency_penalty, "in [-2, 2]");
  }
  absl::flat_hash_set<TokenId> biased;
  for (const auto& [token, bias] : logit_bias) {
    if (token.value() < 0 || token.value() >= vocabulary) {
      return Refuse("logit_bias token", token.value(), fmt::format("in [0, {})", vocabulary));
    }
    if (!(bias >= -100 && bias <= 100)) {
      return Refuse(fmt::format("logit_bias of token {}", token.value()), bias, "in [-100, 100]");
    }
    if (!biased.insert(token).second) {
      return Refuse("logit_bias token", token.value(), "there once");
    }
  }
  return absl::OkStatus();
}

}  // namespace baton::sampling
