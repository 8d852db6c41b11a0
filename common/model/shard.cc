#include "common/model/shard.h"

#include <fmt/format.h>

#include <numeric>
#include <string>

namespace baton::model {

absl::Status CheckDivides(const ModelConfig& config, int ranks) {
  const int64_t common =
      std::gcd<int64_t>(std::gcd<int64_t>(config.heads, config.kv_heads), config.intermediate);
  if (ranks >= 1 && common % ranks == 0) return absl::OkStatus();
  std::string possible;
  for (int64_t n = 1; n <= common; ++n) {
    if (common % n == 0) possible += fmt::format("{}{}", n == 1 ? "" : ", ", n);
  }
  return absl::InvalidArgumentError(fmt::format(
      "--tp {}: this model has {} heads, {} KV heads and an intermediate size of {}, which can be split "
      "over {} ranks",
      ranks, config.heads, config.kv_heads, config.intermediate, possible));
}

}  // namespace baton::model
