#include "router/api/settings_hints.h"

#include <fmt/format.h>

#include <string>
#include <utility>

namespace baton::router {
namespace {

constexpr float kHighTemperature = 1.5f;
constexpr int kLowTopK = 5;

v1::Warning Hint(std::string message) {
  v1::Warning hint;
  hint.set_kind(v1::Warning::KIND_SETTING);
  hint.set_count(1);
  hint.set_message(std::move(message));
  return hint;
}

}  // namespace

std::vector<v1::Warning> HintsOn(const v1::SamplingParams& asked, float temperature, bool free_text) {
  std::vector<v1::Warning> hints;
  if (asked.has_temperature() && asked.temperature() > kHighTemperature) {
    hints.push_back(Hint(fmt::format(
        "temperature: {:g} is above {:g}, where most models write nonsense; use 0.6 to 1 for varied text",
        asked.temperature(), kHighTemperature)));
  }
  if (temperature == 0) {
    for (const auto& [name, is_set] : {std::pair("top_k", asked.has_top_k() && asked.top_k() > 1),
                                       std::pair("top_p", asked.has_top_p() && asked.top_p() < 1),
                                       std::pair("min_p", asked.has_min_p() && asked.min_p() > 0)}) {
      if (!is_set) continue;
      hints.push_back(Hint(fmt::format(
          "{}: without effect at temperature 0, which takes the likeliest token; leave it out, or raise the "
          "temperature",
          name)));
    }
  } else if (free_text && asked.has_top_k() && asked.top_k() > 0 && asked.top_k() < kLowTopK) {
    hints.push_back(Hint(
        fmt::format("top_k: {} leaves so few tokens that free text repeats itself; use 20 or more, or top_p",
                    asked.top_k())));
  }
  return hints;
}

v1::Warning LoweredMaxTokens(uint32_t asked, uint32_t most) {
  return Hint(fmt::format("max_tokens: {} were asked for, and answers of this model have at most {} here",
                          asked, most));
}

}  // namespace baton::router
