// Answers of the engine alone, and the requests that ask for the same: for tests of links.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "engine/solo.h"
#include "tests/e2e/fleet.h"

namespace baton::e2e {

// Await scales it: a link that failed has to be connected again first.
inline constexpr auto kLinkPatience = std::chrono::seconds(120);

inline std::vector<int32_t> Prompt(int size, int salt) {
  std::vector<int32_t> tokens;
  for (int i = 0; i < size; ++i) tokens.push_back(20 + (i * 31 + salt * 77) % 1990);
  return tokens;
}

inline engine::SoloRun Alone(engine::Engine& engine, const std::vector<int32_t>& prompt, int64_t tokens) {
  std::vector<TokenId> ids;
  for (int32_t id : prompt) ids.emplace_back(id);
  return engine::GenerateSolo(engine, ids, {.temperature = 0}, tokens, {}, 0).value();
}

inline v1::GenerateRequest Request(const std::vector<int32_t>& prompt, uint32_t tokens) {
  v1::GenerateRequest request = TokenRequest(prompt, tokens);
  request.mutable_sampling()->set_repetition_penalty(1);
  return request;
}

inline std::unique_ptr<engine::Engine> OneEngine(const std::string& model = kModel) {
  return engine::Engine::Load({.model_folder = model, .threads = 2, .kv_bytes = 64 << 20}).value();
}

// Twelve prompts, every other one with the one before as its prefix: each answer has the bits of the engine
// alone and no failover, and what was shipped went over `link`. How many were shipped: eight or more.
inline int ExpectSoloAnswersOver(Fleet& fleet, const std::string& link) {
  const auto engine = OneEngine();
  int shipped = 0;
  for (int i = 0; i < 12; ++i) {
    SCOPED_TRACE(i);
    const auto prompt = Prompt(60 + 40 * i, i / 2);
    const engine::SoloRun alone = Alone(*engine, prompt, 6);
    const Answer answer = fleet.Generate(Request(prompt, 6));
    EXPECT_TRUE(answer.status.ok()) << answer.status;
    if (!answer.status.ok()) return shipped;
    EXPECT_EQ(answer.digests, alone.logits_digests) << "the logits differ in at least one bit";
    EXPECT_EQ(answer.end().relay().failovers(), 0u);
    if (answer.end().relay().shipped_blocks() == 0) continue;
    ++shipped;
    EXPECT_EQ(answer.end().relay().link(), link);
  }
  EXPECT_GE(shipped, 8);
  return shipped;
}

// Eight clients, each of which leaves while its prompt is computed. The fleet is gated, and its one prefill
// worker computes a block at a time: a prompt takes 75 steps.
inline void LeaveWhilePromptsAreComputed(Fleet& fleet) {
  for (int i = 0; i < 8; ++i) {
    fleet.prefill_gates().Allow(20 + i);
    grpc::ClientContext context;
    const auto reader = fleet.stub().Generate(&context, Request(Prompt(1200, i), 4));
    EXPECT_TRUE(fleet.prefill_gates()[0].AwaitUsed());
    // It goes on for a while, so that KV is on its way when the client leaves.
    fleet.prefill_gates().Allow(20);
    context.TryCancel();
    v1::GenerateResponse response;
    while (reader->Read(&response)) {
    }
    EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
    const auto has_ended = [&] {
      return Metric(fleet.prefill(), "baton_prefill_requests_total{outcome=\"cancelled\"}") == i + 1;
    };
    EXPECT_TRUE(Await(has_ended, "the end of a prompt", kLinkPatience));
  }
  fleet.prefill_gates().Open();
}

// The answer to a prompt of 500 tokens over `link`: the bits of the engine alone, without a failover.
inline void ExpectSoloAnswerOver(Fleet& fleet, const std::string& link) {
  const auto prompt = Prompt(500, 99);
  const Answer answer = fleet.Generate(Request(prompt, 6));
  ASSERT_TRUE(answer.status.ok()) << answer.status;
  EXPECT_EQ(answer.digests, Alone(*OneEngine(), prompt, 6).logits_digests);
  EXPECT_EQ(answer.end().relay().link(), link);
  EXPECT_EQ(answer.end().relay().failovers(), 0u);
}

}  // namespace baton::e2e
