// TestSeed: the seed of a test with random input. Without BATON_SEED in the environment it is a function of
// the test's name, so every run draws the same numbers. BATON_SEED=random draws another seed for each test
// (`scripts/nightly` does), and a number is taken as the seed itself: a test that fails prints its seed
// (SCOPED_TRACE), and BATON_SEED=SEED runs it again.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "common/base/random.h"

namespace baton {

inline uint64_t TestSeed() {
  const char* const asked = std::getenv("BATON_SEED");
  if (asked != nullptr && std::string_view(asked) == "random") return RandomU64();
  if (asked != nullptr) return std::strtoull(asked, nullptr, 10);
  uint64_t seed = 14695981039346656037u;  // FNV-1a of suite and name
  const auto add = [&seed](std::string_view text) {
    for (const char c : text) seed = (seed ^ static_cast<unsigned char>(c)) * 1099511628211u;
  };
  if (const ::testing::TestInfo* const test = ::testing::UnitTest::GetInstance()->current_test_info()) {
    add(test->test_suite_name());
    add(test->name());
  }
  return seed;
}

}  // namespace baton
