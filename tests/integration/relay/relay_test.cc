// Whatever happens on the way, a relay's tokens are those of the engine alone, and afterwards every block is
// free.
#include "tests/integration/relay/relay.h"

#include "spdlog/spdlog.h"

namespace baton {
namespace {

using testing::Answer;
using testing::MakeEngine;
using testing::Relay;

class RelayTest : public ::testing::Test {
 protected:
  // The faults are meant; their warnings would bury a failure.
  static void SetUpTestSuite() { spdlog::set_level(spdlog::level::off); }

  std::vector<TokenId> Prompt(int64_t size) {
    std::vector<TokenId> tokens;
    for (int64_t i = 0; i < size; ++i) tokens.emplace_back(static_cast<int32_t>(random_() % 2000 + 20));
    return tokens;
  }

  static engine::SoloRun Alone(const std::vector<TokenId>& prompt, const sampling::Params& params,
                               int64_t max_tokens) {
    static engine::Engine* engine = MakeEngine(512).release();  // shared by all tests of the process
    return engine::GenerateSolo(*engine, prompt, params, max_tokens, {}, 0).value();
  }

  static void ExpectSame(const Answer& answer, const engine::SoloRun& alone) {
    ASSERT_TRUE(answer.status.has_value());
    EXPECT_TRUE(answer.status->ok()) << *answer.status;
    EXPECT_EQ(answer.tokens, alone.tokens);
    EXPECT_EQ(answer.digests, alone.logits_digests) << "the logits differ in at least one bit";
    ASSERT_TRUE(answer.finished.has_value());
    // At least the last token of a prompt is computed, and nothing is counted twice.
    const v1::Usage& usage = answer.finished->usage();
    EXPECT_LT(usage.decode_cached_tokens() + usage.prefill_cached_tokens(), usage.prompt_tokens());
    EXPECT_EQ(usage.completion_tokens(), answer.tokens.size());
  }

  const uint32_t seed_ = 7;
  std::mt19937 random_{seed_};
};

TEST_F(RelayTest, TokensAndLogitsAreThoseOfTheEngineAloneAtEveryChunkSizeAndCacheState) {
  for (int64_t chunk : {16, 64, 512}) {
    SCOPED_TRACE(chunk);
    Relay relay({.chunk = chunk, .budget = std::max<int64_t>(chunk, 128)});
    for (int round = 0; round < 4; ++round) {
      const std::vector<TokenId> prompt = Prompt(33 + static_cast<int64_t>(random_() % 200));
      const sampling::Params params = {
          .temperature = round % 2 == 0 ? 0.0f : 0.9f, .top_p = 0.95f, .seed = 5};
      const engine::SoloRun alone = Alone(prompt, params, 12);
      Answer cold, warm, elsewhere, half;
      relay.Ask(prompt, params, 12, cold, {"a"});
      relay.RunUntilIdle();
      ExpectSame(cold, alone);
      EXPECT_EQ(cold.finished->relay().link(), "host");
      EXPECT_EQ(cold.finished->usage().decode_cached_tokens(), 0u);
      // Cached on the decode worker.
      relay.Ask(prompt, params, 12, warm, {"a"});
      relay.RunUntilIdle();
      ExpectSame(warm, alone);
      EXPECT_GT(warm.finished->usage().decode_cached_tokens(), 0u);
      // Cached on the prefill worker alone: another tenant's salt hits nowhere, so first warm it there.
      Answer other;
      relay.Ask(prompt, params, 1, other, {"b"}, "second tenant");
      relay.RunUntilIdle();
      EXPECT_EQ(other.finished->usage().decode_cached_tokens(), 0u) << "another tenant's prefix was hit";
      // A prompt that shares half: part of it is cached on both sides.
      std::vector<TokenId> longer(prompt.begin(), prompt.begin() + prompt.size() / 2);
      for (TokenId token : Prompt(90)) longer.push_back(token);
      relay.Ask(longer, params, 12, half, {"a"});
      relay.RunUntilIdle();
      ExpectSame(half, Alone(longer, params, 12));
    }
    relay.ExpectNothingHeld();
  }
}

TEST_F(RelayTest, WithInt8WeightsTokensAndLogitsAreThoseOfTheEngineAlone) {
  constexpr auto kInt8 = model::WeightPrecision::kInt8;
  const auto engine = MakeEngine(512, "cpu", testing::kShippedModel, kInt8);
  const auto alone = [&](const std::vector<TokenId>& prompt) {
    return engine::GenerateSolo(*engine, prompt, {.temperature = 0}, 12, {}, 0).value();
  };
  for (int64_t chunk : {16, 512}) {
    SCOPED_TRACE(chunk);
    Relay relay({.chunk = chunk, .budget = std::max<int64_t>(chunk, 128), .weights = kInt8});
    std::vector<std::vector<TokenId>> prompts;
    std::vector<Answer> answers(5);
    for (Answer& answer : answers) {
      prompts.push_back(Prompt(33 + static_cast<int64_t>(random_() % 200)));
      relay.Ask(prompts.back(), {.temperature = 0}, 12, answer, {"a"});
      relay.Turn();
    }
    relay.RunUntilIdle();
    for (size_t i = 0; i < answers.size(); ++i) {
      SCOPED_TRACE(i);
      ExpectSame(answers[i], alone(prompts[i]));
      EXPECT_EQ(answers[i].finished->relay().link(), "host");
      // The judge has teeth: the stored weights' logits are others.
      EXPECT_NE(answers[i].digests, Alone(prompts[i], {.temperature = 0}, 12).logits_digests);
    }
    Answer warm;
    relay.Ask(prompts[0], {.temperature = 0}, 12, warm, {"a"});
    relay.RunUntilIdle();
    ExpectSame(warm, alone(prompts[0]));
    EXPECT_GT(warm.finished->usage().decode_cached_tokens(), 0u);
    relay.ExpectNothingHeld();
  }
}

TEST_F(RelayTest, APrefillWorkersCacheIsShippedNotComputed) {
  Relay relay({.chunk = 32});
  const std::vector<TokenId> prompt = Prompt(160);
  Answer first, second;
  relay.Ask(prompt, {.temperature = 0}, 4, first, {"a"});
  relay.RunUntilIdle();
  // The decode worker forgets: everything it caches is pushed out.
  {
    const int64_t all = relay.decode().pool().available();
    relay.decode().pool().Release(relay.decode().pool().Allocate(all).value());
  }
  relay.Ask(prompt, {.temperature = 0}, 4, second, {"a"});
  relay.RunUntilIdle();
  ExpectSame(second, Alone(prompt, {.temperature = 0}, 4));
  EXPECT_EQ(second.finished->usage().decode_cached_tokens(), 0u);
  EXPECT_EQ(second.finished->usage().prefill_cached_tokens(), 144u) << "all but the block of the last token";
  EXPECT_EQ(second.finished->relay().shipped_blocks(), 10u);
  relay.ExpectNothingHeld();
}

TEST_F(RelayTest, AWarmRequestHasThePromptCachedAndDrawsNothing) {
  for (const bool handed_off : {true, false}) {
    SCOPED_TRACE(handed_off);
    Relay relay({.chunk = 32});
    const std::vector<TokenId> prompt = Prompt(160);
    const std::vector<std::string> targets =
        handed_off ? std::vector<std::string>{"a"} : std::vector<std::string>{};
    Answer warm, again, answer;
    relay.Ask(prompt, {.temperature = 0}, 0, warm, targets, "tenant", {},
              {{.lease_class = kv::LeaseClass::k1h, .blocks = 4},
               {.lease_class = kv::LeaseClass::k5m, .blocks = 10}});
    relay.RunUntilIdle();
    ASSERT_TRUE(warm.finished.has_value());
    EXPECT_TRUE(warm.status->ok());
    EXPECT_TRUE(warm.tokens.empty());
    EXPECT_EQ(warm.finished->reason(), v1::FINISH_REASON_LENGTH);
    EXPECT_FALSE(warm.finished->timing().has_tpot_seconds());
    EXPECT_EQ(warm.finished->usage().completion_tokens(), 0u);
    EXPECT_EQ(warm.finished->usage().written_hour_tokens(), 64u);
    EXPECT_EQ(warm.finished->usage().written_five_minutes_tokens(), 96u);
    EXPECT_EQ(warm.finished->usage().retained_tokens(), 160u);
    EXPECT_EQ(relay.decode().pool().counts().leased, 10);
    EXPECT_EQ(relay.prefill_a().pool().counts().leased, handed_off ? 10 : 0);
    relay.ExpectNothingHeld();
    // Found, and so not written again: but for the last block, whose last token is always computed.
    relay.Ask(prompt, {.temperature = 0}, 0, again, targets, "tenant", {},
              {{.lease_class = kv::LeaseClass::k1h, .blocks = 10}});
    relay.RunUntilIdle();
    ASSERT_TRUE(again.finished.has_value());
    EXPECT_EQ(again.finished->usage().decode_cached_tokens(), 144u);
    EXPECT_EQ(again.finished->usage().written_hour_tokens(), 16u);
    EXPECT_EQ(again.finished->usage().retained_tokens(), 160u);
    relay.Ask(prompt, {.temperature = 0}, 4, answer, targets);
    relay.RunUntilIdle();
    ExpectSame(answer, Alone(prompt, {.temperature = 0}, 4));
    EXPECT_EQ(answer.finished->usage().decode_cached_tokens(), 144u);
    EXPECT_EQ(answer.finished->usage().written_five_minutes_tokens(), 0u) << "it has no marks";
    EXPECT_EQ(answer.finished->usage().retained_tokens(), 0u);
    relay.ExpectNothingHeld();
  }
}

TEST_F(RelayTest, LeasesOutlastPressureAndRefuseNobody) {
  Relay relay({.decode_blocks = 40, .chunk = 32});
  const std::vector<TokenId> marked = Prompt(160), unmarked = Prompt(160);
  const auto ask = [&](const std::vector<TokenId>& prompt, std::vector<kv::PrefixLease> leases = {}) {
    Answer answer;
    relay.Ask(prompt, {.temperature = 0}, 2, answer, {}, "tenant", {}, std::move(leases));
    relay.RunUntilIdle();
    EXPECT_TRUE(answer.finished.has_value());
    return answer.finished.value_or(v1::Finished()).usage();
  };
  EXPECT_EQ(ask(marked, {{.lease_class = kv::LeaseClass::k5m, .blocks = 10}}).retained_tokens(), 160u);
  ask(unmarked);
  for (int i = 0; i < 6; ++i) ask(Prompt(250));
  EXPECT_EQ(ask(marked).decode_cached_tokens(), 144u);
  EXPECT_EQ(ask(unmarked).decode_cached_tokens(), 0u);
  // All blocks: what is leased goes too.
  EXPECT_EQ(ask(Prompt(638)).decode_cached_tokens(), 0u);
  EXPECT_EQ(ask(marked).decode_cached_tokens(), 0u);
  relay.ExpectNothingHeld();
}

TEST_F(RelayTest, OnlyMissingBlocksTravel) {
  Relay relay({.chunk = 32});
  std::vector<TokenId> prompt = Prompt(128);
  Answer first, second;
  relay.Ask(prompt, {.temperature = 0}, 1, first, {"a"});
  relay.RunUntilIdle();
  EXPECT_EQ(first.finished->relay().shipped_blocks(), 8u);
  for (TokenId token : Prompt(64)) prompt.push_back(token);
  relay.Ask(prompt, {.temperature = 0}, 2, second, {"a"});
  relay.RunUntilIdle();
  ExpectSame(second, Alone(prompt, {.temperature = 0}, 2));
  // One token of the first answer's last block was never computed, so seven or eight blocks were there.
  EXPECT_LE(second.finished->relay().shipped_blocks(), 5u);
  EXPECT_GE(second.finished->usage().decode_cached_tokens(), 112u);
}

TEST_F(RelayTest, AShortRestIsPrefilledLocally) {
  Relay relay({.local_prefill = 64});
  const std::vector<TokenId> prompt = Prompt(50);
  Answer answer;
  relay.Ask(prompt, {.temperature = 0}, 6, answer);
  relay.RunUntilIdle();
  ExpectSame(answer, Alone(prompt, {.temperature = 0}, 6));
  EXPECT_EQ(answer.finished->relay().link(), "local");
  EXPECT_EQ(relay.client().calls_started(), 0u);
}

TEST_F(RelayTest, ManyAtOnceChangeNothing) {
  Relay relay({.chunk = 48, .budget = 96});
  std::vector<std::vector<TokenId>> prompts;
  std::vector<Answer> answers(12);
  for (size_t i = 0; i < answers.size(); ++i)
    prompts.push_back(Prompt(20 + static_cast<int64_t>(random_() % 150)));
  for (size_t i = 0; i < answers.size(); ++i) {
    relay.Ask(prompts[i], {.temperature = 0.8f, .top_k = 50, .seed = i}, 10, answers[i]);
    relay.Turn();
  }
  relay.RunUntilIdle();
  for (size_t i = 0; i < answers.size(); ++i) {
    SCOPED_TRACE(i);
    ExpectSame(answers[i], Alone(prompts[i], {.temperature = 0.8f, .top_k = 50, .seed = i}, 10));
  }
  relay.ExpectNothingHeld();
}

// The reference backend draws tokens itself, as GPUs do: nobody who asks for no logits can tell.
TEST_F(RelayTest, TokensThatTheBackendDrawsAreTheSamplers) {
  const auto judge = MakeEngine(16, "reference");
  const std::vector<TokenId> prompt = Prompt(12);
  for (const sampling::Params& params :
       {sampling::Params{.temperature = 0},
        sampling::Params{.temperature = 0.9f, .top_k = 40, .top_p = 0.9f, .seed = 3},
        sampling::Params{.temperature = 0.8f, .seed = 4, .frequency_penalty = 0.5f}}) {
    Relay relay({.decode_blocks = 16, .prefill_blocks = 16, .backend = "reference", .logits_digests = false});
    Answer answer;
    relay.Ask(prompt, params, 5, answer);
    bool in_flight = false;  // as a step is only if the backend draws a token for each of its rows
    for (int idle = 0; idle < 3;) {
      idle = relay.Turn() ? 0 : idle + 1;
      in_flight |= relay.scheduler().step_in_flight();
    }
    EXPECT_TRUE(in_flight);
    EXPECT_EQ(answer.tokens, engine::GenerateSolo(*judge, prompt, params, 5, {}, 0).value().tokens);
    relay.ExpectNothingHeld();
  }
}

TEST_F(RelayTest, PreemptionLosesNoToken) {
  // Room for about two of the four at full length.
  Relay relay({.decode_blocks = 20, .chunk = 32});
  std::vector<std::vector<TokenId>> prompts;
  std::vector<Answer> answers(4);
  for (size_t i = 0; i < answers.size(); ++i) {
    prompts.push_back(Prompt(60));
    relay.Ask(prompts[i], {.temperature = 0.7f, .seed = i}, 90, answers[i]);
  }
  relay.RunUntilIdle();
  uint32_t preemptions = 0;
  for (size_t i = 0; i < answers.size(); ++i) {
    SCOPED_TRACE(i);
    ExpectSame(answers[i], Alone(prompts[i], {.temperature = 0.7f, .seed = i}, 90));
    preemptions += answers[i].finished->relay().preemptions();
  }
  EXPECT_GT(preemptions, 0u) << "the pool was meant to be too small";
  relay.ExpectNothingHeld();
}

TEST_F(RelayTest, AFullPoolRefusesBeforeAnythingIsComputed) {
  Relay relay({.decode_blocks = 12});
  Answer held, refused, never;
  const SequenceId id = relay.Ask(Prompt(150), {.temperature = 0}, 20, held);
  relay.Ask(Prompt(100), {.temperature = 0}, 4, refused);
  EXPECT_TRUE(held.accepted);
  EXPECT_EQ(refused.status->code(), absl::StatusCode::kResourceExhausted);
  EXPECT_FALSE(refused.accepted);
  relay.Ask(Prompt(190), {.temperature = 0}, 40, never);
  EXPECT_EQ(never.status->code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(never.status->message()), ::testing::HasSubstr("--kv-memory"));
  relay.scheduler().Cancel(id);
  relay.RunUntilIdle();
  relay.ExpectNothingHeld();
}

TEST_F(RelayTest, CancelIsLegalInEveryStateAndFreesEverything) {
  // Cancels after each possible number of turns, until one run ends before its cancel.
  Relay relay({.chunk = 16, .budget = 16});
  const std::vector<TokenId> prompt = Prompt(100);
  for (int turns = 0;; ++turns) {
    ASSERT_LT(turns, 5000);
    Answer answer;
    const SequenceId id =
        relay.Ask(prompt, {.temperature = 0}, 5, answer, {"a"}, "salt " + std::to_string(turns));
    for (int turn = 0; turn < turns && !answer.status.has_value(); ++turn) relay.Turn();
    if (answer.status.has_value()) break;
    relay.scheduler().Cancel(id);
    relay.RunUntilIdle();
    relay.ExpectNothingHeld();
    EXPECT_FALSE(answer.status.has_value()) << "a cancelled request is told nothing";
  }
}

TEST_F(RelayTest, APrefillWorkerThatDiesAnywhereIsReplacedFromTheCommittedBlocks) {
  const std::vector<TokenId> prompt = Prompt(100);
  const engine::SoloRun alone = Alone(prompt, {.temperature = 0}, 8);
  bool died = true;
  for (int at = 0; died; ++at) {
    SCOPED_TRACE(at);
    Relay relay({.chunk = 32});
    died = false;
    relay.client().SetFault("a", [&](int index, fleet::v1::PrefillEvent&, bool&) {
      if (index < at) return absl::OkStatus();
      died = true;
      return absl::UnavailableError("killed");
    });
    Answer answer;
    relay.Ask(prompt, {.temperature = 0}, 8, answer);
    relay.RunUntilIdle();
    ExpectSame(answer, alone);
    EXPECT_EQ(answer.finished->relay().failovers(), died ? 1u : 0u);
    // A short rest is prefilled locally; a longer one by the next worker.
    EXPECT_EQ(answer.finished->relay().prefill_worker() == "a", !died);
    relay.ExpectNothingHeld();
  }
}

// A public failure, sglang#30233: prefill refuses a prompt, and decode goes on without its KV.
TEST_F(RelayTest, APromptTooLongForThePrefillWorkerIsComputedHere) {
  Relay relay({.prefill_blocks = 4, .chunk = 32});
  const std::vector<TokenId> prompt = Prompt(100);
  Answer answer;
  relay.Ask(prompt, {.temperature = 0}, 8, answer);
  relay.RunUntilIdle();
  ExpectSame(answer, Alone(prompt, {.temperature = 0}, 8));
  EXPECT_EQ(answer.finished->relay().failovers(), 2u);
  EXPECT_EQ(answer.finished->relay().link(), "local");
  relay.ExpectNothingHeld();
}

TEST_F(RelayTest, WithoutAnyPrefillWorkerTheDecodeWorkerDoesItAlone) {
  Relay relay({.chunk = 32});
  const std::vector<TokenId> prompt = Prompt(100);
  Answer answer;
  relay.Ask(prompt, {.temperature = 0}, 8, answer, {"nowhere", "neither"});
  relay.RunUntilIdle();
  ExpectSame(answer, Alone(prompt, {.temperature = 0}, 8));
  EXPECT_EQ(answer.finished->relay().failovers(), 2u);
  EXPECT_EQ(answer.finished->relay().link(), "local");
}

TEST_F(RelayTest, DamagedChunksAreErrorsNeverTokens) {
  const std::vector<TokenId> prompt = Prompt(100);
  const engine::SoloRun alone = Alone(prompt, {.temperature = 0}, 8);
  const auto flip = [](fleet::v1::PrefillEvent& event) {
    if (event.has_chunk()) (*event.mutable_chunk()->mutable_data())[77] ^= 2;
    if (event.has_done()) (*event.mutable_done()->mutable_logits())[5] ^= 2;
  };
  const auto late = [](fleet::v1::PrefillEvent& event) {
    if (event.has_chunk()) event.mutable_chunk()->set_ticket_id(event.chunk().ticket_id() + 1);
  };
  const auto stale = [](fleet::v1::PrefillEvent& event) {
    if (event.has_chunk()) event.mutable_chunk()->set_generations(0, event.chunk().generations(0) - 1);
  };
  const auto cut = [](fleet::v1::PrefillEvent& event) {
    if (event.has_chunk()) event.mutable_chunk()->mutable_data()->resize(10);
    if (event.has_done()) event.mutable_done()->mutable_logits()->resize(8);
  };
  for (const std::function<void(fleet::v1::PrefillEvent&)>& damage :
       std::vector<std::function<void(fleet::v1::PrefillEvent&)>>{flip, late, stale, cut}) {
    for (int at = 0; at < 24; ++at) {
      SCOPED_TRACE(at);
      Relay relay({.chunk = 48});
      relay.client().SetFault("a", [&](int index, fleet::v1::PrefillEvent& event, bool&) {
        if (index == at) damage(event);
        return absl::OkStatus();
      });
      Answer answer;
      relay.Ask(prompt, {.temperature = 0}, 4, answer);
      relay.RunUntilIdle();
      ASSERT_TRUE(answer.status.has_value());
      EXPECT_EQ(answer.tokens, std::vector<TokenId>(alone.tokens.begin(), alone.tokens.begin() + 4));
      relay.ExpectNothingHeld();
    }
  }
}

TEST_F(RelayTest, ADuplicatedChunkIsRefusedAndTheTokensAreRight) {
  const std::vector<TokenId> prompt = Prompt(100);
  Relay relay({.chunk = 48});
  bool repeated = false;
  relay.client().SetFault("a", [&](int index, fleet::v1::PrefillEvent& event, bool& again) {
    again = event.has_chunk() && !std::exchange(repeated, true);
    return absl::OkStatus();
  });
  Answer answer;
  relay.Ask(prompt, {.temperature = 0}, 4, answer);
  relay.RunUntilIdle();
  EXPECT_TRUE(repeated);
  ExpectSame(answer, Alone(prompt, {.temperature = 0}, 4));
  EXPECT_EQ(answer.finished->relay().failovers(), 1u);
  relay.ExpectNothingHeld();
}

TEST_F(RelayTest, ASlowClientIsPausedAndGoesOnWhereItStopped) {
  Relay relay({.chunk = 64});
  const std::vector<TokenId> prompt = Prompt(40);
  Answer answer;
  relay.Ask(prompt, {.temperature = 0}, 20, answer);
  while (answer.tokens.size() < 5) relay.Turn();
  relay.SetClientCongested(true);
  const size_t before = answer.tokens.size();
  relay.RunUntilIdle();
  EXPECT_EQ(answer.tokens.size(), before) << "tokens were made for a client that does not read";
  relay.SetClientCongested(false);
  relay.RunUntilIdle();
  ExpectSame(answer, Alone(prompt, {.temperature = 0}, 20));
}

TEST_F(RelayTest, TheSixPhasesOfTtftAddUp) {
  Relay relay({.chunk = 32});
  Answer remote, local;
  relay.Ask(Prompt(120), {.temperature = 0}, 3, remote);
  relay.RunUntilIdle();
  relay.Ask(Prompt(10), {.temperature = 0}, 3, local);
  relay.RunUntilIdle();
  for (const Answer* answer : {&remote, &local}) {
    const v1::Timing& timing = answer->finished->timing();
    EXPECT_NEAR(timing.decode_queue_seconds() + timing.prefill_queue_seconds() + timing.prefill_seconds() +
                    timing.transfer_seconds() + timing.first_token_seconds(),
                timing.ttft_seconds(), 1e-9);
    EXPECT_GT(timing.prefill_seconds(), 0);
    EXPECT_TRUE(timing.has_tpot_seconds());
  }
}

}  // namespace
}  // namespace baton
