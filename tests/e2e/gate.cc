#include "tests/e2e/gate.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>

#include "tests/patience.h"

namespace baton::e2e {
namespace {

constexpr auto kStepPatience = std::chrono::seconds(120);  // before it is scaled

std::string NewPath() {
  static std::atomic<int> made = 0;
  return ::testing::TempDir() + "/baton_gate_" + std::to_string(getpid()) + "_" + std::to_string(made++);
}

}  // namespace

Gate::Gate() : path_(NewPath()), file_(path_, /*make=*/true) {}

Gate::~Gate() { std::remove(path_.c_str()); }

bool Gate::AwaitUsed() const {
  const auto awaited = [this] { return std::to_string(file_.steps().load()) + " more steps of a worker"; };
  return Await([this] { return used(); }, awaited, kStepPatience);
}

int Gates::AwaitHeld() const {
  int held = 0;
  const auto one_is_held = [&] {
    const auto found = std::ranges::find_if(gates_, &Gate::used);
    held = static_cast<int>(found - gates_.begin());
    return found != gates_.end();
  };
  return Await(one_is_held, "a worker that has made its steps", kStepPatience) ? held : 0;
}

}  // namespace baton::e2e
