// Scene: loads to simulate, drawn from a seed, and one call that plays a policy on them.
#pragma once

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "common/base/check.h"
#include "common/base/random.h"
#include "lab/simulate/measures.h"
#include "lab/simulate/policies_under_test.h"

namespace baton::lab::simulate {

inline kv::BlockHash BlockOf(uint64_t id) {
  char bytes[kv::BlockHash::kBytes] = {};
  const auto draw = Philox4x32({static_cast<uint32_t>(id), static_cast<uint32_t>(id >> 32), 0, 0}, {3, 4});
  std::memcpy(bytes, draw.data(), sizeof(bytes));
  return kv::BlockHash::FromBytes({bytes, sizeof(bytes)});
}

class LoadMaker {
 public:
  explicit LoadMaker(uint64_t seed) : seed_(seed) {}
  double Uniform() { return UniformAt(seed_, draws_++); }
  double Exponential(double mean) { return -mean * std::log(1 - Uniform()); }
  uint64_t NewBlock() { return ++blocks_; }

  // `chain` blocks and a tail of less than one.
  static Request Make(double arrival, const std::vector<uint64_t>& chain, int64_t tail, int64_t output) {
    Request request;
    request.arrival = arrival;
    request.prompt_tokens = static_cast<int64_t>(chain.size()) * 512 + tail;
    request.output_tokens = output;
    for (const uint64_t id : chain) request.chain.push_back(BlockOf(id));
    return request;
  }
  // Poisson arrivals; each prompt is `shared` blocks that all have and `own` new ones.
  std::vector<Request> SharedPrompt(int requests, double rate, int shared, int own) {
    std::vector<uint64_t> common;
    for (int i = 0; i < shared; ++i) common.push_back(NewBlock());
    std::vector<Request> load;
    double at = 0;
    for (int i = 0; i < requests; ++i) {
      at += Exponential(1 / rate);
      std::vector<uint64_t> chain = common;
      for (int k = 0; k < own; ++k) chain.push_back(NewBlock());
      load.push_back(Make(at, chain, 100, 64));
    }
    return load;
  }
  // Conversations that begin at `rate` a second, of `turns` turns `gap` seconds apart.
  std::vector<Request> Sessions(int sessions, double rate, int turns, double gap) {
    std::vector<Request> load;
    double at = 0;
    for (int s = 0; s < sessions; ++s) {
      at += Exponential(1 / rate);
      std::vector<uint64_t> chain;
      double turn = at;
      for (int t = 0; t < turns; ++t) {
        const int more = t == 0 ? 8 : 2;
        for (int k = 0; k < more; ++k) chain.push_back(NewBlock());
        load.push_back(Make(turn, chain, 50, 100));
        turn += gap;
      }
    }
    std::stable_sort(load.begin(), load.end(),
                     [](const Request& a, const Request& b) { return a.arrival < b.arrival; });
    return load;
  }

 private:
  const uint64_t seed_;
  uint64_t draws_ = 0;
  uint64_t blocks_ = 0;
};

inline Measures PlayPolicy(const std::string& name, const FleetModel& model, const std::vector<Request>& load,
                           uint64_t seed, RunResult* run = nullptr) {
  const auto under_test = FindPolicy(name, model);
  BATON_CHECK(under_test.ok()) << name;
  Simulation simulation(model, *under_test, load, seed);
  RunResult result = simulation.Run([](int64_t) {});
  const Measures measures = Measure(name, result, Slo(), model.block_tokens);
  if (run != nullptr) *run = std::move(result);
  return measures;
}

// The policies that ours is held against.
inline const std::vector<std::string> kField = {"sglang", "dynamo", "llm-d", "mooncake", "least_loaded"};

}  // namespace baton::lab::simulate
