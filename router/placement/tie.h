// Tie: a number that decides between equals: a function of seed, key and slot, so it does not depend on the
// order in which workers are listed, and two routers with the same view don't all choose the same worker.
#pragma once

#include <cstdint>

#include "router/index/worker_slot.h"

namespace baton::router::placement {

// Finalizer of splitmix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA'14).
constexpr uint64_t Mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

constexpr uint64_t Tie(uint64_t seed, uint64_t key, WorkerSlot slot) {
  constexpr uint64_t kGolden = 0x9e3779b97f4a7c15ull;
  return Mix(Mix(seed + kGolden * (key + 1)) + kGolden * (uint64_t{slot.value()} + 1));
}

}  // namespace baton::router::placement
