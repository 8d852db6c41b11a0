// The prompts that a simulated decode worker prefills itself: cut into steps as the real one cuts them.
#include "lab/simulate/decode_worker.h"

#include <gtest/gtest.h>

#include <deque>
#include <vector>

#include "lab/simulate/events.h"

namespace baton::lab::simulate {
namespace {

class SimulatedDecodeWorkerTest : public ::testing::Test {
 protected:
  SimulatedDecodeWorkerTest() {
    model_.block_tokens = 16;
    model_.decode_blocks = 1000;
    model_.prefill_token = 100e-6;
    model_.prefill_pair = 0;
    model_.step_context = 0;
    Make();
  }
  void Make(double slo_tpot = 1) {
    worker_ = std::make_unique<DecodeWorker>(
        model_,
        DecodeWorker::Setup{
            .slo_tpot = slo_tpot,
            .prefilled = [this](RequestRecord& record) { record.first_token = events_.now(); },
            .finished = [](RequestRecord&) {}},
        events_);
  }

  RequestRecord& Reserve(int64_t prompt_tokens, int64_t output_tokens = 1) {
    requests_.push_back({.prompt_tokens = prompt_tokens, .output_tokens = output_tokens});
    records_.emplace_back().request = &requests_.back();
    worker_->Reserve(records_.back());
    return records_.back();
  }
  RequestRecord& Prefill(int64_t prompt_tokens) {
    RequestRecord& record = Reserve(prompt_tokens);
    worker_->PrefillLocally(record);
    return record;
  }
  void Run() {
    while (events_.Step()) {
    }
  }
  // The time of a step with the first rows of so many prompts, and so many rows in all.
  double Seconds(int prompts, int64_t rows) const {
    return prompts * model_.prefill_base + model_.prefill_token * static_cast<double>(rows);
  }

  FleetModel model_;
  Events events_;
  std::unique_ptr<DecodeWorker> worker_;
  std::deque<Request> requests_;
  std::deque<RequestRecord> records_;
};

TEST_F(SimulatedDecodeWorkerTest, PromptsShareAStep) {
  const RequestRecord& longer = Prefill(300);  // its first chunk of 256 rows is computed at once
  const RequestRecord& shorter = Prefill(100);
  Run();
  EXPECT_NEAR(longer.first_token, Seconds(1, 256) + Seconds(1, 44 + 100), 1e-12);
  EXPECT_EQ(shorter.first_token, longer.first_token) << "in one step with the other's rest";
}

TEST_F(SimulatedDecodeWorkerTest, AShortPromptBehindALongOneEndsFirst) {
  const RequestRecord& longer = Prefill(1000);
  const RequestRecord& shorter = Prefill(100);
  Run();
  EXPECT_NEAR(shorter.first_token, Seconds(1, 256) + Seconds(1, 256 + 100), 1e-12);
  EXPECT_NEAR(longer.first_token, Seconds(2, 1000 + 100), 1e-12);
}

TEST_F(SimulatedDecodeWorkerTest, AllPromptsStayWithinTheTokenBudget) {
  model_.local_token_budget = model_.local_chunk_tokens = 128;
  Make();
  const RequestRecord& first = Prefill(256);
  const RequestRecord& second = Prefill(100);
  Run();
  EXPECT_NEAR(first.first_token, Seconds(1, 256), 1e-12);
  EXPECT_NEAR(second.first_token, Seconds(2, 256 + 100), 1e-12) << "the first one takes the budget";
}

TEST_F(SimulatedDecodeWorkerTest, ChunksBesideAnAnswerLeaveItsStepWithinTheSlo) {
  Make(0.02);
  worker_->Join(Reserve(16, 100));
  const RequestRecord& prompt = Prefill(192);
  Run();
  // A step of the answer alone, in which the prompt comes; then two with it: (20 - 9.05) ms are room for 109
  // rows, which is 96 in whole blocks.
  const double step = 9e-3 + 50e-6;
  EXPECT_NEAR(prompt.first_token, 3 * step + Seconds(1, 192), 1e-12);
}

}  // namespace
}  // namespace baton::lab::simulate
