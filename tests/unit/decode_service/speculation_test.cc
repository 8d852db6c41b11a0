// Drafts change no answer: random requests on a scheduler whose drafters are adversaries, or the real ones,
// against the same requests without drafts. Pools are short of blocks, clients stop reading, hand-offs break,
// masks come late, answers move to another sequence in the middle of a draft. BATON_SPECULATION_REQUESTS: how
// many requests, 3,000 without it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/patience.h"
#include "tests/seed.h"
#include "tests/unit/decode_service/adversary_drafter.h"
#include "tests/unit/decode_service/random_requests.h"
#include "tests/unit/decode_service/speculation_rig.h"

namespace baton::decode_service {
namespace {

int HowMany() {
  const char* const asked = std::getenv("BATON_SPECULATION_REQUESTS");
  return asked == nullptr ? 3000 : std::atoi(asked);
}

// The next turn, on the blocks that the answer has left: what was refused is not among them.
fleet::v1::DecodeRequest NextTurn(const fleet::v1::DecodeRequest& request, const Answer& answer) {
  fleet::v1::DecodeRequest next = request;
  for (const int32_t token : answer.tokens) next.add_token_ids(token);
  next.add_token_ids(request.token_ids(0));
  next.mutable_stop()->set_max_tokens(4);
  next.mutable_output()->set_logits_digest(true);
  next.mutable_output()->set_prompt_logprobs(false);
  next.clear_grammar();
  next.clear_answer_format();
  next.set_request_id("next");
  return next;
}

struct Counted {
  int64_t tokens = 0, drafted = 0, accepted = 0, merged = 0, at_context = 0;
  size_t handoffs = 0;
};

// `rig` has the model, its backend and the draft model. real: with the n-gram drafters and grammars;
// otherwise, without a draft model, with adversaries.
Counted DraftsChangeNothing(RigOptions rig, int requests, bool real, const RequestsOptions& kinds = {}) {
  const uint64_t seed = TestSeed();
  std::printf("seed %llu, %s\n", static_cast<unsigned long long>(seed), rig.backend.c_str());
  std::fflush(stdout);  // a failed check ends the program
  RandomRequests random(seed, kinds);
  std::map<std::string, std::vector<TokenId>> right;  // by request
  Speculation speculation;
  RigOptions without = rig;
  without.blocks = 256;
  without.drafts = DraftModel::kNone;
  without.handoffs = false;
  SpeculationRig plain(without);
  const int32_t vocabulary = plain.engine().config().vocabulary;
  if (rig.drafts != DraftModel::kNone) {
    speculation = {.ngram = real, .grammar = real, .draft_model = true, .self = true};
  } else if (real) {
    speculation = {.ngram = true, .past_answers = true, .grammar = true};
  } else {
    speculation.make = [&](const Sequence& sequence) {
      const Adversary adversary = kAdversaries[static_cast<size_t>(random.Below(kAdversaries.size()))];
      std::vector<std::unique_ptr<drafting::Drafter>> drafters;
      drafters.push_back(std::make_unique<AdversaryDrafter>(adversary, vocabulary, right[sequence.request_id],
                                                            static_cast<size_t>(sequence.prompt_tokens),
                                                            static_cast<uint64_t>(random.Below(1 << 20))));
      return drafters;
    };
  }
  rig.speculation = speculation;
  SpeculationRig drafts(rig);
  Counted counted;
  for (int done = 0; done < requests;) {
    std::vector<fleet::v1::DecodeRequest> round;
    for (int i = 0; i < 6; ++i) round.push_back(random.Next());
    const std::vector<Answer> expected = plain.Run(round, 0);
    for (size_t i = 0; i < round.size(); ++i) {
      auto& answer = right[round[i].request_id()];
      for (const int32_t token : expected[i].tokens) answer.emplace_back(token);
    }
    const std::vector<Answer> seen = drafts.Run(round, seed + static_cast<uint64_t>(done));
    std::vector<fleet::v1::DecodeRequest> turns;
    for (size_t i = 0; i < round.size(); ++i) {
      ExpectSameAnswer(round[i], expected[i], seen[i]);
      if (testing::Test::HasFatalFailure()) return counted;
      counted.drafted += seen[i].drafted;
      counted.accepted += seen[i].accepted;
      counted.tokens += std::ssize(seen[i].tokens);
      counted.merged += std::ssize(seen[i].tokens) - seen[i].deltas;
      const bool full = round[i].token_ids_size() + std::ssize(seen[i].tokens) == kinds.context;
      counted.at_context += full ? 1 : 0;
      if (i < 2 && !full && round[i].token_ids_size() < 200) turns.push_back(NextTurn(round[i], expected[i]));
    }
    right.clear();
    const std::vector<Answer> next = plain.Run(turns, 0), next_seen = drafts.Run(turns, 0);
    for (size_t i = 0; i < turns.size(); ++i) {
      ExpectSameAnswer(turns[i], next[i], next_seen[i]);
      if (testing::Test::HasFatalFailure()) return counted;
    }
    done += 6;
  }
  EXPECT_EQ(plain.handoffs(), 0u);
  counted.handoffs = drafts.handoffs();
  std::printf("%d requests of %ld tokens, %ld drafted, %ld accepted: none differs\n", requests,
              static_cast<long>(counted.tokens), static_cast<long>(counted.drafted),
              static_cast<long>(counted.accepted));
  return counted;
}

// It was no comparison of nothing with nothing.
void ExpectDrafts(const Counted& counted) {
  EXPECT_GT(counted.drafted, counted.tokens / 10);
  EXPECT_GT(counted.accepted, counted.tokens / 50);
  EXPECT_GT(counted.merged, 0);
}

TEST(SpeculationTest, AdversariesChangeNoAnswer) {
  ExpectDrafts(DraftsChangeNothing({}, HowMany() / 3, false));
}
TEST(SpeculationTest, AdversariesChangeNoAnswerWhereStepsDoNotOverlap) {
  ExpectDrafts(DraftsChangeNothing({.backend = "cpu"}, HowMany() / 3, false));
}
TEST(SpeculationTest, TheDraftersChangeNoAnswer) {
  ExpectDrafts(DraftsChangeNothing({}, HowMany() / 3, true));
}

// So near to it that many drafts are refused for the sake of the other answers.
TEST(SpeculationTest, DraftsAtTheTargetOfTpotChangeNoAnswer) {
  const Counted counted = DraftsChangeNothing({.slo_tpot = 11.2e-3}, HowMany() / 10, false);
  EXPECT_GT(counted.drafted, 0);
}

// A worker is no slower to a router where more is drafted. Here each step takes the same time.
TEST(SpeculationTest, RoutersHearOfStepsWithoutTheirDrafts) {
  fleet::v1::DecodeRequest request;
  for (int i = 0; i < 24; ++i) request.add_token_ids(300 + i % 3);
  request.mutable_stop()->set_max_tokens(60);
  request.mutable_stop()->set_ignore_eos(true);
  request.mutable_sampling()->set_temperature(0);
  for (const int id : {300, 301, 302}) (*request.mutable_sampling()->mutable_logit_bias())[id] = 20;
  request.mutable_output()->set_token_ids(true);
  const auto answered = [&](const Speculation& speculation) {
    SpeculationRig rig({.backend = "cpu", .speculation = speculation, .tick = absl::Milliseconds(1)});
    return rig.Run({request}, 0).front();
  };
  const Answer plain = answered({}), drafted = answered({.ngram = true});
  ExpectSameAnswer(request, plain, drafted);
  EXPECT_GT(drafted.accepted, 20u);
  EXPECT_GT(plain.step_seconds, 0);
  EXPECT_LT(drafted.step_seconds, 0.97 * plain.step_seconds);
}

TEST(SpeculationTest, PastAnswersOfAWorkerWithoutRequestsGo) {
  SpeculationRig rig({.speculation = {.past_answers = true}});
  RandomRequests random(TestSeed(), {});
  std::vector<fleet::v1::DecodeRequest> requests;
  for (int i = 0; i < 6; ++i) requests.push_back(random.Next());
  rig.Run(requests, 0);
  constexpr char kNone[] = "\nbaton_decode_past_answers_bytes 0\n";
  rig.Idle(absl::Minutes(28));
  EXPECT_EQ(rig.Metrics().find(kNone), std::string::npos);
  rig.Idle(absl::Minutes(4));
  EXPECT_NE(rig.Metrics().find(kNone), std::string::npos);
}

TEST(SpeculationTest, NothingIsRememberedOfWhatWasCancelled) {
  SpeculationRig rig({.speculation = {.ngram = true, .past_answers = true}});
  RandomRequests random(TestSeed(), {});
  std::vector<fleet::v1::DecodeRequest> requests;
  for (int i = 0; i < 6; ++i) {
    fleet::v1::DecodeRequest& request = requests.emplace_back(random.Next());
    request.mutable_stop()->Clear();
    request.mutable_stop()->set_max_tokens(100);
    request.mutable_stop()->set_ignore_eos(true);
    request.clear_grammar();
    request.clear_answer_format();
  }
  rig.Abandon(requests);
  constexpr char kNone[] = "\nbaton_decode_past_answers_bytes 0\n";
  EXPECT_NE(rig.Metrics().find(kNone), std::string::npos);
  rig.Run(requests, 0);
  EXPECT_EQ(rig.Metrics().find(kNone), std::string::npos) << "answers that have ended are";
}

// Prompts come from a prefill worker, whose link breaks at times: the drafts begin on its KV, beside others'
// blocks that are still on their way.
TEST(SpeculationTest, DraftsOnHandedOffKvChangeNoAnswer) {
  for (const char* const backend : {"reference", "cpu"}) {
    const int requests = HowMany() / (kSanitized ? 60 : 16);
    for (const bool real : {false, true}) {
      const Counted counted = DraftsChangeNothing({.backend = backend, .handoffs = true}, requests, real);
      ExpectDrafts(counted);
      EXPECT_GT(counted.handoffs, static_cast<size_t>(requests / 2));
    }
  }
}

// Where steps overlap, an answer begins beside a step in flight that it is not in, also one that is about to
// end.
TEST(SpeculationTest, DraftsOfItselfOnHandedOffKvChangeNoAnswer) {
  for (const char* const backend : {"reference", "cpu"}) {
    const int requests = HowMany() / (kSanitized ? 60 : 16);
    const Counted counted = DraftsChangeNothing(
        {.backend = backend, .drafts = DraftModel::kSelf, .handoffs = true}, requests, false);
    EXPECT_GT(counted.accepted, 0);
    EXPECT_GT(counted.handoffs, static_cast<size_t>(requests / 2));
  }
}

// It takes the same tokens as the model, also with penalties and at any temperature, because it draws as that
// does; only what a grammar or a budget decides, it does not know. A dozen drawn seeds had 0.59 to 0.7
// accepted.
TEST(SpeculationTest, ADraftModelChangesNoAnswer) {
  for (const char* const backend : {"reference", "cpu"}) {
    const Counted counted =
        DraftsChangeNothing({.backend = backend, .drafts = DraftModel::kRight}, HowMany() / 6, false);
    EXPECT_GT(counted.accepted, counted.tokens / 2);
    EXPECT_GT(static_cast<double>(counted.accepted), 0.5 * static_cast<double>(counted.drafted));
  }
}
TEST(SpeculationTest, ADraftModelThatIsAlwaysWrongChangesNoAnswer) {
  for (const char* const backend : {"reference", "cpu"}) {
    const Counted counted =
        DraftsChangeNothing({.backend = backend, .drafts = DraftModel::kWrong}, HowMany() / 6, false);
    EXPECT_GT(counted.drafted, 0);
    EXPECT_LT(counted.drafted, counted.tokens / 2) << "it is not given up";
  }
}
TEST(SpeculationTest, ADraftModelBesideOtherDraftersChangesNoAnswer) {
  ExpectDrafts(DraftsChangeNothing({.drafts = DraftModel::kRight}, HowMany() / 6, true));
}
TEST(SpeculationTest, DraftsOfItselfChangeNoAnswer) {
  for (const char* const backend : {"reference", "cpu"}) {
    const Counted counted =
        DraftsChangeNothing({.backend = backend, .drafts = DraftModel::kSelf}, HowMany() / 6, false);
    EXPECT_GT(counted.drafted, counted.tokens / 20);
    EXPECT_GT(counted.accepted, 0);
  }
}

// Models of every make, with KV and weights in every format, some of whose answers end where the context
// does.
struct Make {
  const char* name;
  const char* model;
  RigOptions rig;
};

class SpeculationOfTest : public testing::TestWithParam<Make> {
 protected:
  static Counted Compare(int requests, bool real, DraftModel drafts = DraftModel::kNone,
                         bool handoffs = false) {
    RigOptions rig = GetParam().rig;
    rig.model_folder = std::string(BATON_SOURCE_DIR "/tests/golden/models/data/") + GetParam().model;
    rig.drafts = drafts;
    rig.handoffs = handoffs;
    // Their vocabulary has 150 tokens.
    return DraftsChangeNothing(rig, requests, real, {.first_token = 40, .formats = false, .context = 256});
  }
  static int Requests() {
    const bool slow = GetParam().rig.backend == "reference";
    return HowMany() / 40 / (slow ? 4 : 1) / (kSanitized ? 3 : 1);
  }
};

TEST_P(SpeculationOfTest, AdversariesChangeNoAnswer) {
  const Counted counted = Compare(Requests(), false);
  ExpectDrafts(counted);
  EXPECT_GT(counted.at_context, 0);
}
TEST_P(SpeculationOfTest, TheDraftersChangeNoAnswerOnHandedOffKv) {
  const Counted counted = Compare(Requests() / 2, true, DraftModel::kNone, true);
  EXPECT_GT(counted.handoffs, 0u);
}
TEST_P(SpeculationOfTest, DraftsOfItselfChangeNoAnswer) {
  if (GetParam().rig.weights == model::WeightPrecision::kInt4) GTEST_SKIP() << "a worker refuses it";
  EXPECT_GT(Compare(Requests() / 2, false, DraftModel::kSelf).drafted, 0);
}

using tensor::DType;

INSTANTIATE_TEST_SUITE_P(
    Makes, SpeculationOfTest,
    testing::Values(
        Make{"f32", "llama-mha", {.backend = "cpu"}},
        Make{"kv_bf16",
             "qwen3-window",
             {.backend = "cpu", .key_dtype = DType::kBF16, .value_dtype = DType::kBF16}},
        Make{"kv_i8",
             "llama-gqa-tied",
             {.backend = "cpu", .key_dtype = DType::kI8, .value_dtype = DType::kI8}},
        Make{"kv_i4", "qwen3", {.backend = "cpu", .key_dtype = DType::kI4, .value_dtype = DType::kI4}},
        Make{"kv_mixed_reference",
             "mistral-window",
             {.backend = "reference", .key_dtype = DType::kI8, .value_dtype = DType::kI4}},
        Make{"weights_int8", "qwen2", {.backend = "cpu", .weights = model::WeightPrecision::kInt8}},
        Make{"weights_int4", "llama-mha", {.backend = "cpu", .weights = model::WeightPrecision::kInt4}},
        Make{"experts", "qwen3-moe", {.backend = "cpu"}},
        Make{"experts_int8_kv_i8",
             "mixtral",
             {.backend = "cpu",
              .key_dtype = DType::kI8,
              .value_dtype = DType::kI8,
              .weights = model::WeightPrecision::kInt8}},
        Make{"sinks", "gpt-oss", {.backend = "cpu"}}, Make{"sinks_reference", "gpt-oss", {}},
        Make{"tp2", "llama-mha", {.backend = "cpu", .tp = 2}},
        Make{"tp2_kv_i8_reference",
             "llama-mha",
             {.backend = "reference", .tp = 2, .key_dtype = DType::kI8, .value_dtype = DType::kI8}}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace baton::decode_service
