// Tests that are written for a GPU know of no emulated machine: each finds a new one with one GPU.
#include <gtest/gtest.h>

#include "tests/gpu/emulation/runtime.h"

namespace emulation {
namespace {

class NewMachine final : public testing::EmptyTestEventListener {
  void OnTestStart(const testing::TestInfo&) override { StartMachine({}); }
};

[[maybe_unused]] const bool listens = [] {
  testing::UnitTest::GetInstance()->listeners().Append(new NewMachine);  // which owns it
  return true;
}();

}  // namespace
}  // namespace emulation
