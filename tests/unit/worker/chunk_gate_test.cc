#include "worker/chunk_gate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <limits>

namespace baton::worker {
namespace {

using testing::HasSubstr;

protocol::Fingerprint Print() {
  protocol::Fingerprint fingerprint;
  fingerprint.config = std::string(32, 'c');
  fingerprint.weights = std::string(32, 'w');
  fingerprint.kv.key_dtype = tensor::DType::kI8;
  return fingerprint;
}

ChunkGate Good() {
  ChunkGate gate = ChunkGate::For(Print());
  gate.limits = {.kl = 0.5, .exact_match = 0.6, .recall_loss = 0.03};
  gate.measured = {
      .questions = 100, .kl = 0.1, .exact_match = 0.9, .recall_full = 0.95, .recall_reused = 0.93};
  return gate;
}

class ChunkGateTest : public testing::Test {
 protected:
  absl::StatusOr<ChunkGate> Read(const std::string& text) {
    std::ofstream(path_) << text;
    return ChunkGate::Read(path_);
  }
  ~ChunkGateTest() override { std::filesystem::remove(path_); }
  const std::string path_ = testing::TempDir() + "/chunk_gate_test.json";
};

TEST_F(ChunkGateTest, GoesToAFileAndBack) {
  const auto read = Read(Good().ToJson());
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->ToJson(), Good().ToJson());
  EXPECT_TRUE(read->Check(Print()).ok()) << read->Check(Print());
}

TEST_F(ChunkGateTest, IsForOneModelFormatAndMode) {
  const auto refusal = [](const ChunkGate& gate, const protocol::Fingerprint& fingerprint) {
    const absl::Status status = gate.Check(fingerprint);
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    return std::string(status.message());
  };
  protocol::Fingerprint other = Print();
  other.weights[3] = 'x';
  EXPECT_THAT(refusal(Good(), other), HasSubstr("weights differ"));
  other = Print();
  other.config[3] = 'x';
  EXPECT_THAT(refusal(Good(), other), HasSubstr("another model"));
  other = Print();
  other.kv.value_dtype = tensor::DType::kI4;
  EXPECT_THAT(refusal(Good(), other), HasSubstr("KV of i8 and f32, this worker has i8 and i4"));
  ChunkGate gate = Good();
  gate.mode = "chunk-reuse/0";
  EXPECT_THAT(refusal(gate, Print()), HasSubstr("chunk-reuse/0"));
}

TEST_F(ChunkGateTest, RefusesFiguresBeyondTheirLimits) {
  const auto refused = [](auto change) {
    ChunkGate gate = Good();
    change(gate.measured);
    return !gate.Check(Print()).ok();
  };
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_FALSE(refused([](ChunkGate::Measured&) {}));
  EXPECT_TRUE(refused([](ChunkGate::Measured& m) { m.kl = 0.51; }));
  EXPECT_TRUE(refused([](ChunkGate::Measured& m) { m.exact_match = 0.59; }));
  EXPECT_TRUE(refused([](ChunkGate::Measured& m) { m.recall_reused = 0.91; }));
  EXPECT_TRUE(refused([](ChunkGate::Measured& m) { m.questions = 0; }));
  EXPECT_TRUE(refused([nan](ChunkGate::Measured& m) { m.kl = nan; }));
  EXPECT_TRUE(refused([nan](ChunkGate::Measured& m) { m.exact_match = nan; }));
  EXPECT_TRUE(refused([nan](ChunkGate::Measured& m) { m.recall_reused = nan; }));
}

TEST_F(ChunkGateTest, RefusesWhatIsNoGate) {
  for (const std::string text : {"", "{", "[]", "7", "{}", R"({"mode": 3})"}) {
    EXPECT_EQ(Read(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
  std::string without = Good().ToJson();
  without.replace(without.find("recall_loss"), 11, "recall_lost");
  EXPECT_THAT(std::string(Read(without).status().message()), HasSubstr("\"recall_loss\" is missing"));
  EXPECT_THAT(std::string(ChunkGate::Read("/nowhere/gate.json").status().message()),
              HasSubstr("baton eval chunk-reuse"));
}

}  // namespace
}  // namespace baton::worker
