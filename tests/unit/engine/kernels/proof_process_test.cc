// A check that passes, fails, crashes or never ends, as the worker that waits for it sees it.
#include "engine/kernels/cuda/proof_process.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "tests/patience.h"

namespace baton::kernels::cuda {
namespace {

using testing::HasSubstr;

absl::Status Prove(const std::string& script, absl::Duration limit = Scaled(absl::Seconds(60))) {
  // $0 is the number that comes behind.
  return RunProof(std::vector<std::string>{"/bin/sh", "-c", script}, 3, limit);
}

TEST(ProofProcessTest, PassesWithTheNumberOfItsGpu) { EXPECT_TRUE(Prove("test $0 = 3").ok()); }

TEST(ProofProcessTest, AFailureSaysWhatWasPrinted) {
  const absl::Status failed = Prove("echo 'heads of 64: 3 of 9 values differ'; exit 1");
  EXPECT_EQ(failed.code(), absl::StatusCode::kInternal);
  EXPECT_EQ(failed.message(), "heads of 64: 3 of 9 values differ");
  EXPECT_THAT(std::string(Prove("exit 7").message()), HasSubstr("ended with 7"));
  // However much that is.
  EXPECT_LT(Prove("head -c 1000000 /dev/zero | tr '\\0' x; exit 1").message().size(), 10'000u);
}

TEST(ProofProcessTest, ACrashIsNotOurs) {
  const absl::Status crashed = Prove("kill -SEGV $$");
  EXPECT_EQ(crashed.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(crashed.message()), HasSubstr("signal 11"));
}

TEST(ProofProcessTest, WhatNeverEndsIsKilled) {
  EXPECT_EQ(Prove("exec sleep 1000", absl::Milliseconds(100)).code(), absl::StatusCode::kDeadlineExceeded);
}

TEST(ProofProcessTest, AProgramThatIsNotThereIsNamed) {
  const absl::Status missing =
      RunProof(std::vector<std::string>{"/no/such/program"}, 0, Scaled(absl::Seconds(60)));
  EXPECT_THAT(std::string(missing.message()), HasSubstr("/no/such/program"));
}

}  // namespace
}  // namespace baton::kernels::cuda
