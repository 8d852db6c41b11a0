// A router's predictions for workers that it has not seen at work yet, and how soon it knows better.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/unit/router/dispatcher_fixture.h"

namespace baton::router {
namespace {

class DispatcherPredictionTest : public DispatcherTest {
 protected:
  static Dispatcher::Options Roomy() {
    Dispatcher::Options options = Options();
    options.worker_concurrency = 100;
    return options;
  }
  // A decode worker says for the first time what it is, and what its steps take.
  void UpWith(const std::optional<forecast::StepCost>& cost, uint32_t chunk_tokens = 0) {
    baton::fleet::v1::WatchEvent event;
    event.set_sequence(1);
    baton::fleet::v1::WorkerInfo& info = *event.mutable_snapshot()->mutable_info();
    info.set_worker_id("d0");
    info.set_role(baton::fleet::v1::ROLE_DECODE);
    info.set_incarnation(1);
    info.set_chunk_tokens(chunk_tokens);
    if (cost.has_value()) {
      info.mutable_step_cost()->set_base_seconds(cost->base);
      info.mutable_step_cost()->set_sequence_seconds(cost->sequence);
      info.mutable_step_cost()->set_context_seconds(cost->context);
      info.mutable_step_cost()->set_token_seconds(cost->token);
      info.mutable_step_cost()->set_pair_seconds(cost->pair);
    }
    ASSERT_TRUE(fleet_.OnEvent(0, event).ok());
  }
  // Seconds that the router predicts for a prompt when nothing else is there; the prompt then took so many.
  double Predicted(int64_t tokens, double took) {
    const int name = next_++;
    auto request = MakeRequest(name, 1, tokens);
    request->debug = true;
    EXPECT_TRUE(dispatcher2_.Submit(request).ok());
    Placement& placement = *results_[name].at(0);
    v1::Finished finished;
    finished.mutable_usage()->set_prompt_tokens(static_cast<uint32_t>(tokens));
    finished.mutable_usage()->set_completion_tokens(1);
    finished.mutable_timing()->set_prefill_seconds(took);
    placement.booking.FirstToken(clock_.Now());
    placement.FirstToken(absl::Seconds(took));
    placement.Finished(&finished, {});
    results_.erase(name);
    return finished.placement().predicted_ttft_seconds();
  }
  static double Off(double predicted, double took) { return std::max(predicted / took, took / predicted); }

  Dispatcher dispatcher2_{Roomy(), fleet_, *placement::MakePolicy("prefix_affinity", 1), clock_, probe_};
  int next_ = 0;
};

// 4 ms a token: eighty times what a router expects that knows nothing.
double Takes(int64_t tokens) { return 0.06 + 4e-3 * static_cast<double>(tokens); }

TEST_F(DispatcherPredictionTest, ThreeAnswersAreEnoughOnAnyMachine) {
  UpWith(std::nullopt);
  for (const int64_t tokens : {60, 2000, 500}) Predicted(tokens, Takes(tokens));
  for (const int64_t tokens : {100, 2048, 700, 1500}) {
    EXPECT_LT(Off(Predicted(tokens, Takes(tokens)), Takes(tokens)), 1.5) << tokens;
  }
}

TEST_F(DispatcherPredictionTest, ShortPromptsDoNotUseUpItsTrust) {
  UpWith(std::nullopt);
  for (int i = 0; i < 30; ++i) Predicted(8, 0.2);  // so 2,048 tokens are expected to take about a second
  Predicted(2048, 23);
  const double next = Predicted(2048, 23);
  EXPECT_LT(Off(next, 23), 1.5) << next;
}

TEST_F(DispatcherPredictionTest, AWorkerThatHasMeasuredItselfIsKnownFromTheFirstRequest) {
  UpWith(forecast::StepCost{.base = 0.06, .sequence = 4e-3, .context = 2e-6, .token = 4e-3, .pair = 0});
  EXPECT_NEAR(Predicted(2048, 8), Takes(2048), 0.01);
}

TEST_F(DispatcherPredictionTest, LocalPrefillBesideAnswersIsPricedByTheWorkersChunk) {
  const forecast::StepCost cost = {
      .base = 1e-3, .sequence = 1e-4, .context = 1e-9, .token = 1e-6, .pair = 1e-12};
  UpWith(cost, 32);
  ASSERT_TRUE(dispatcher2_.Submit(MakeRequest(1000)).ok());
  results_[1000].at(0)->booking.FirstToken(clock_.Now());  // an answer runs from now on
  const double steps = 2048 / 32 + 1;
  EXPECT_NEAR(Predicted(2048, 1), cost.prefill().Seconds(2048, 0) + steps * (cost.base + cost.sequence),
              1e-3);
  results_.clear();
}

TEST_F(DispatcherPredictionTest, TheRuleThatAWorkerTellsIsKept) {
  for (const bool told : {false, true}) {
    baton::fleet::v1::WatchEvent event;
    event.set_sequence(1);
    baton::fleet::v1::WorkerInfo& info = *event.mutable_snapshot()->mutable_info();
    info.set_worker_id("d0");
    info.set_role(baton::fleet::v1::ROLE_DECODE);
    info.set_incarnation(told ? 2 : 1);
    if (told) info.set_local_prefill_tokens(64);
    ASSERT_TRUE(fleet_.OnEvent(0, event).ok());
    for (const int64_t tokens : {64, 65}) {
      const int name = next_++;
      auto request = MakeRequest(name, 1, tokens);
      request->debug = true;
      ASSERT_TRUE(dispatcher2_.Submit(request).ok());
      v1::Finished finished;
      results_[name].at(0)->Finished(&finished, {});
      EXPECT_EQ(finished.placement().reason(), told && tokens > 64 ? "no_prefill" : "local") << tokens;
      results_.erase(name);
    }
  }
}

TEST_F(DispatcherPredictionTest, AnImpossibleCostIsIgnored) {
  UpWith(forecast::StepCost{.base = 0.06, .sequence = 4e-3, .context = 2e-6, .token = -4e-3, .pair = 0});
  const double prior = forecast::PrefillCost().Seconds(2048, 0);
  EXPECT_NEAR(Predicted(2048, 8), prior, 1e-6);
}

}  // namespace
}  // namespace baton::router
