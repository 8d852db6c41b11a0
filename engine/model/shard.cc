#include "engine/model/shard.h"

#include <fmt/format.h>

#include <numeric>
#include <string>
#include <string_view>

namespace baton::model {

absl::Status CheckDivides(const ModelConfig& config, int ranks) {
  // Norms over all heads together are not a rank's own.
  if (config.wide_qk_norm && ranks != 1) {
    return absl::InvalidArgumentError(fmt::format(
        "--tp {}: {} norms all heads together, which runs on one rank only", ranks, config.architecture));
  }
  int64_t common = std::gcd<int64_t>(config.heads, config.kv_heads);
  std::string widths;
  const auto add = [&](std::string_view name, int64_t width) {
    common = std::gcd(common, width);
    widths += fmt::format("{}{} of {}", widths.empty() ? "" : " and ", name, width);
  };
  bool dense = false;
  for (int l = 0; l < config.layers; ++l) dense |= !config.has_experts(l);
  if (dense) add("an intermediate size", config.intermediate);
  if (config.experts.experts > 0) add("experts", config.experts.width);
  if (config.experts.shared_width > 0) add("a shared expert", config.experts.shared_width);
  if (ranks >= 1 && common % ranks == 0) return absl::OkStatus();
  std::string possible;
  for (int64_t n = 1; n <= common; ++n) {
    if (common % n == 0) possible += fmt::format("{}{}", n == 1 ? "" : ", ", n);
  }
  return absl::InvalidArgumentError(
      fmt::format("--tp {}: this model has {} heads, {} KV heads and {}, which can be split over {} ranks",
                  ranks, config.heads, config.kv_heads, widths, possible));
}

}  // namespace baton::model
