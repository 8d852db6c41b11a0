#include "common/worker/worker_runtime.h"

#include <gtest/gtest.h>

namespace baton::worker {
namespace {

// What a router hears with the first snapshot: how quick this worker is, before it has served anybody.
TEST(WorkerRuntimeTest, SaysWhatItsStepsTake) {
  Options options;
  options.engine.model_folder = BATON_SOURCE_DIR "/models/baton-tiny";
  options.engine.threads = 1;
  options.engine.kv_bytes = int64_t{16} << 20;
  const auto runtime = WorkerRuntime::Create(options, v1::ROLE_DECODE, "decode");
  ASSERT_TRUE(runtime.ok()) << runtime.status();
  const v1::WorkerInfo& info = (*runtime)->hub().info();
  ASSERT_TRUE(info.has_step_cost());
  const v1::StepCost& said = info.step_cost();
  const forecast::StepCost& measured = (*runtime)->step_cost();
  EXPECT_TRUE(forecast::Plausible(measured));
  EXPECT_NE(measured, forecast::StepCost()) << "measured, not assumed";
  EXPECT_EQ(said.base(), measured.base);
  EXPECT_EQ(said.sequence(), measured.sequence);
  EXPECT_EQ(said.context(), measured.context);
  EXPECT_EQ(said.token(), measured.token);
  EXPECT_EQ(said.pair(), measured.pair);
  EXPECT_EQ(info.chunk_tokens(), options.chunk_tokens);
  EXPECT_EQ((*runtime)->engine().pool().counts().held, 0);
}

}  // namespace
}  // namespace baton::worker
