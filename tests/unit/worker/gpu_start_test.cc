// Settings of a worker's process before it touches a GPU: for GPUs alone, and never against the operator.
#include "worker/gpu_start.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

namespace baton::worker {
namespace {

class GpuStartTest : public testing::Test {
 protected:
  GpuStartTest() { Unset(); }
  ~GpuStartTest() override { Unset(); }
  static void Unset() {
    for (const char* name : {"NCCL_RAS_ENABLE", "CUDA_MODULE_LOADING"}) unsetenv(name);
  }
  static std::string Value(const char* name) {
    const char* const value = std::getenv(name);
    return value == nullptr ? "unset" : value;
  }
  static Options On(const std::string& backend, int tp, const std::string& link) {
    Options options;
    options.engine.backend = backend;
    options.engine.tp = tp;
    options.link.name = link;
    return options;
  }
};

TEST_F(GpuStartTest, NcclListensOnNoPortOfItsOwn) {
  Options options = On("cuda", 1, "host");
  PrepareGpus(options);
  EXPECT_EQ(Value("NCCL_RAS_ENABLE"), "0");
  EXPECT_EQ(Value("CUDA_MODULE_LOADING"), "unset");
  Unset();
  options = On("cuda", 2, "nccl");
  PrepareGpus(options);
  EXPECT_EQ(Value("NCCL_RAS_ENABLE"), "0");
  EXPECT_EQ(Value("CUDA_MODULE_LOADING"), "EAGER");
}

TEST_F(GpuStartTest, TheOperatorsSettingsStay) {
  setenv("NCCL_RAS_ENABLE", "1", 1);
  setenv("CUDA_MODULE_LOADING", "LAZY", 1);
  Options options = On("cuda", 2, "nccl");
  PrepareGpus(options);
  EXPECT_EQ(Value("NCCL_RAS_ENABLE"), "1");
  EXPECT_EQ(Value("CUDA_MODULE_LOADING"), "LAZY");
}

TEST_F(GpuStartTest, NothingIsSetWithoutGpus) {
  Options options = On("cpu", 2, "host");
  PrepareGpus(options);
  for (const char* name : {"NCCL_RAS_ENABLE", "CUDA_MODULE_LOADING"}) EXPECT_EQ(Value(name), "unset") << name;
}

}  // namespace
}  // namespace baton::worker
