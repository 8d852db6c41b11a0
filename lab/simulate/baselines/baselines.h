// The field's placement policies, from what their projects publish (each class says where), to be compared
// with in simulations. Each sees the same prefix index and bookings as ours, which is more than some of them
// have. They all keep first come, first served queues on the workers and fetch nothing from peers, but for
// the variant of Mooncake's that says so.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "router/placement/policy.h"

namespace baton::lab::simulate {

// SGLang's router (sgl-project/sglang, sgl-model-gateway/src/policies/cache_aware.rs): if requests are out of
// balance (most - fewest > 32 and most > 1.1 * fewest), the worker with the fewest; else the longest match if
// it covers more than half of the prompt; else the worker with the fewest.
class CacheAware final : public router::placement::Policy {
 public:
  explicit CacheAware(uint64_t seed) : seed_(seed) {}
  std::string_view name() const override { return "sglang"; }
  router::placement::Selection Select(const router::Request& request,
                                      const router::placement::Pools& pools) override;

 private:
  const uint64_t seed_;
  uint64_t next_tie_key_ = 0;
};

// Dynamo's KV router at temperature 0 (ai-dynamo/dynamo, lib/kv-router/src/scheduling/selector): the least of
// max(active prefill blocks + prompt blocks - overlap, 0) + blocks in use; decode by blocks in use.
class BlockCost final : public router::placement::Policy {
 public:
  explicit BlockCost(uint64_t seed) : seed_(seed) {}
  std::string_view name() const override { return "dynamo"; }
  router::placement::Selection Select(const router::Request& request,
                                      const router::placement::Pools& pools) override;

 private:
  const uint64_t seed_;
  uint64_t next_tie_key_ = 0;
};

// llm-d's precise prefix profile (llm-d/llm-d-inference-scheduler, pkg/plugins/scorer, with the guide's
// weights): the most of 3 * share of the prompt that is cached + 2 * emptiness of the queue (1 for the
// shortest of all, 0 for the longest) + 2 * free share of the KV cache.
class WeightedScores final : public router::placement::Policy {
 public:
  explicit WeightedScores(uint64_t seed) : seed_(seed) {}
  std::string_view name() const override { return "llm-d"; }
  router::placement::Selection Select(const router::Request& request,
                                      const router::placement::Pools& pools) override;

 private:
  const uint64_t seed_;
  uint64_t next_tie_key_ = 0;
};

// Mooncake's conductor (Qin et al., FAST'25, algorithm 1): the least of queue time + prefill time, and with
// `fetch` the time to bring the longest match from its holder where that is at least kBalance times what the
// worker has; decode by load. The prefill times are the truth's: it was given an offline model.
class TtftEstimate final : public router::placement::Policy {
 public:
  struct Truth {
    double base = 0;
    double token = 0;
    double pair = 0;
    double transfer_base = 0;
    double transfer_token = 0;
  };
  static constexpr double kBalance = 2;
  TtftEstimate(Truth truth, bool fetch, uint64_t seed) : truth_(truth), fetch_(fetch), seed_(seed) {}
  std::string_view name() const override { return fetch_ ? "mooncake-fetch" : "mooncake"; }
  router::placement::Selection Select(const router::Request& request,
                                      const router::placement::Pools& pools) override;

 private:
  double Prefill(int64_t prompt_tokens, int64_t cached_tokens) const;

  const Truth truth_;
  const bool fetch_;
  const uint64_t seed_;
  uint64_t next_tie_key_ = 0;
};

}  // namespace baton::lab::simulate
