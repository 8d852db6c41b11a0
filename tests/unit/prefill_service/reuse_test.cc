// Prompts with reusable spans on a prefill worker: what is shipped is a function of the prompt alone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "common/base/check.h"
#include "prefill_service/scheduler.h"
#include "transfer/host_link.h"

namespace baton::prefill_service {
namespace {

using ::testing::HasSubstr;

constexpr char kReuseModel[] = BATON_SOURCE_DIR "/tests/golden/models/data/llama-gqa-tied";
constexpr uint64_t kSeed = 77;

struct Prompt {
  std::vector<TokenId> tokens;
  std::vector<kv::ReusableSpan> spans;
};

// The results for a prompt.
struct Outcome {
  std::map<std::pair<int64_t, int>, std::string> pieces;  // by block and layer
  std::string logits;
  int64_t cached = 0;
  absl::Status status = absl::UnknownError("not finished");
};

struct Given {
  std::string backend = "reference";
  std::optional<tensor::DType> dtype = {};
  int64_t blocks = 160;
  SchedulerOptions options = {
      .chunk_tokens = 64, .token_budget = 64, .landing_tokens = 4096, .chunk_reuse = true};
  int tp = 1;
};

class Worker {
 public:
  explicit Worker(Given given = {}) {
    engine::EngineOptions options = {.model_folder = kReuseModel, .backend = given.backend, .tp = given.tp};
    options.threads = given.tp;
    options.key_dtype = options.value_dtype = given.dtype;
    options.kv_blocks = given.blocks;
    engine_ = engine::Engine::Load(options).value();
    scheduler_ = std::make_unique<Scheduler>(given.options, *engine_, link_, clock_, probe_);
  }

  engine::Engine& engine() { return *engine_; }
  Scheduler& scheduler() { return *scheduler_; }

  absl::Status Submit(JobId id, const Prompt& prompt, int64_t first_block = 0) {
    Job job;
    job.tokens = prompt.tokens;
    job.reusable = prompt.spans;
    job.root = engine_->RootFor(kv::TenantSalt("salt"));
    const int64_t blocks = BlocksFor(std::ssize(prompt.tokens)) - first_block;
    job.ticket = {Incarnation(1), TicketId(id), first_block,
                  std::vector<Generation>(static_cast<size_t>(blocks), Generation(1))};
    Outcome& outcome = outcomes_[id] = {};
    const int layers = engine_->store().layout().layers;
    job.send = [this, &outcome, layers](const fleet::v1::PrefillEvent& event) {
      if (event.has_done()) {
        outcome.logits = event.done().logits();
        outcome.cached = event.done().cached_tokens();
      }
      if (!event.has_chunk()) return;
      const fleet::v1::KvChunk& chunk = event.chunk();
      const kv::KvLayout& layout = engine_->store().layout();
      size_t at = 0;
      for (int i = 0; i < chunk.generations_size(); ++i) {
        for (uint32_t l = chunk.first_layer(); l < chunk.first_layer() + chunk.layers(); ++l) {
          const auto bytes = static_cast<size_t>(layout.layers_bytes(static_cast<int>(l), 1));
          const auto piece = std::pair(int64_t{chunk.first_block()} + i, static_cast<int>(l));
          EXPECT_TRUE(outcome.pieces.emplace(piece, chunk.data().substr(at, bytes)).second)
              << "block " << piece.first << " left twice";
          at += bytes;
        }
      }
      EXPECT_LE(outcome.pieces.rbegin()->first.second, layers);
    };
    job.finish = [&outcome](const absl::Status& status) { outcome.status = status; };
    job.congested = [] { return false; };
    return scheduler_->Submit(id, std::move(job));
  }

  Outcome Run(const Prompt& prompt, int64_t first_block = 0) {
    const JobId id = next_++;
    EXPECT_TRUE(Submit(id, prompt, first_block).ok());
    RunUntilIdle();
    return Result(id);
  }
  void RunUntilIdle() {
    while (scheduler_->Step()) {
    }
    EXPECT_EQ(engine_->pool().counts().held, 0);
    engine_->pool().CheckConservation();
  }
  Outcome Result(JobId id) {
    EXPECT_TRUE(outcomes_[id].status.ok()) << outcomes_[id].status;
    return outcomes_[id];
  }

  // By the definition: canonical sequences, landings and rows one after the other, in blocks that nobody else
  // sees.
  Outcome Define(const Prompt& prompt) {
    const auto size = std::ssize(prompt.tokens);
    const auto own = engine_->pool().Allocate(BlocksFor(size)).value();
    std::vector<float> logits;
    const auto forward = [&](std::span<const TokenId> tokens, int64_t first,
                             std::span<const BlockId> blocks) {
      engine::Batch batch;
      batch.Add({.tokens = tokens, .first_position = first, .blocks = blocks, .logit_rows = 1});
      const engine::StepResult result = engine_->Forward(batch, [](int) {});
      logits.assign(result.logits(0).begin(), result.logits(0).end());
    };
    int64_t at = 0;
    const auto rows_to = [&](int64_t end) {
      if (end > at) forward(std::span(prompt.tokens).subspan(at, end - at), at, own);
      at = end;
    };
    for (const kv::ReusableSpan& span : prompt.spans) {
      const kv::ReusableSpan landed = kv::LandedPart(span);
      rows_to(landed.begin);
      const auto canonical = kv::CanonicalTokens(span, prompt.tokens);
      const auto blocks = engine_->pool().Allocate(BlocksFor(std::ssize(canonical))).value();
      forward(canonical, 0, blocks);
      engine_->Land({.from = blocks,
                     .from_position = kv::CanonicalPosition(span, landed.begin),
                     .to = own,
                     .to_position = landed.begin,
                     .tokens = landed.tokens()});
      engine_->pool().Release(blocks);
      at = landed.end;
    }
    rows_to(size);
    Outcome outcome;
    outcome.logits.assign(reinterpret_cast<const char*>(logits.data()), logits.size() * sizeof(float));
    for (int64_t b = 0; b < std::ssize(own); ++b) {
      for (int l = 0; l < engine_->store().layout().layers; ++l) {
        std::vector<std::span<std::byte>> pieces;
        engine_->store().AppendPieces(own[static_cast<size_t>(b)], l, 1, pieces);
        std::string& bytes = outcome.pieces[{b, l}];
        for (const auto piece : pieces)
          bytes.append(reinterpret_cast<const char*>(piece.data()), piece.size());
      }
    }
    engine_->pool().Release(own);
    return outcome;
  }

 private:
  FakeClock clock_;
  telemetry::Metrics metrics_;
  Probe probe_{metrics_, "host"};
  transfer::HostLinkSender link_;
  std::unique_ptr<engine::Engine> engine_;
  std::map<JobId, Outcome> outcomes_;
  JobId next_ = 1000;
  std::unique_ptr<Scheduler> scheduler_;
};

// A prompt's last block has places behind the last token: whatever was there before.
void ExpectSame(Outcome a, Outcome b, int64_t tokens) {
  if (tokens % kBlockTokens != 0) {
    const auto last = [&](const auto& entry) { return entry.first.first == tokens / kBlockTokens; };
    std::erase_if(a.pieces, last);
    std::erase_if(b.pieces, last);
  }
  EXPECT_EQ(a.pieces.size(), b.pieces.size());
  for (const auto& [where, bytes] : a.pieces) {
    EXPECT_TRUE(bytes == b.pieces[where]) << "block " << where.first << ", layer " << where.second;
  }
  EXPECT_TRUE(a.logits == b.logits);
}

std::vector<TokenId> Document(int number, int tokens) {
  std::vector<TokenId> document;
  for (int i = 0; i < tokens; ++i) document.emplace_back((number * 31 + i * (7 + number) + i * i) % 199 + 1);
  return document;
}

// Documents in the order of `order`, with a few unmarked tokens before each and a question behind them.
Prompt Ask(const std::vector<int>& order, int question = 0) {
  Prompt prompt;
  prompt.tokens = {TokenId(1)};
  const int sizes[] = {48, 61, 33, 90};
  for (int number : order) {
    for (int i = 0; i < 3; ++i) prompt.tokens.emplace_back(190 + i);
    const auto document = Document(number, sizes[number]);
    const auto begin = std::ssize(prompt.tokens);
    prompt.tokens.insert(prompt.tokens.end(), document.begin(), document.end());
    prompt.spans.push_back({begin, std::ssize(prompt.tokens)});
  }
  for (int i = 0; i < 7; ++i) prompt.tokens.emplace_back(50 + question + i);
  return prompt;
}

class ReuseTest : public ::testing::TestWithParam<std::string> {
 protected:
  Given With() const { return {.backend = GetParam()}; }
};

INSTANTIATE_TEST_SUITE_P(Backends, ReuseTest, ::testing::Values("reference", "cpu"),
                         [](const auto& info) { return info.param; });

TEST_P(ReuseTest, IsWhatTheDefinitionSays) {
  for (const auto dtype : {tensor::DType::kF32, tensor::DType::kBF16, tensor::DType::kI8}) {
    SCOPED_TRACE(tensor::Name(dtype));
    Given given = With();
    given.dtype = dtype;
    Worker worker(given);
    const Prompt prompt = Ask({0, 1, 2, 3});
    const Outcome expected = worker.Define(prompt);
    ExpectSame(worker.Run(prompt), expected, std::ssize(prompt.tokens));
  }
}

TEST_P(ReuseTest, TheBitsDoNotDependOnWhatIsCachedNorOnTheOrderOfWork) {
  const std::vector<Prompt> prompts = {Ask({0, 1, 2, 3}), Ask({3, 0, 2, 1}), Ask({2, 2, 1}), Ask({1}, 5)};
  std::vector<Outcome> cold;
  for (const Prompt& prompt : prompts) cold.push_back(Worker(With()).Run(prompt));
  std::mt19937_64 random(kSeed);
  SCOPED_TRACE(kSeed);
  for (int round = 0; round < 6; ++round) {
    Given given = With();
    given.options.chunk_tokens = 16 + static_cast<int64_t>(random() % 100);
    given.options.token_budget = 16 + static_cast<int64_t>(random() % 100);
    given.options.landing_tokens = 1 + static_cast<int64_t>(random() % 50);
    // Barely enough for one prompt and its spans: others are evicted half-way.
    given.blocks = round % 2 == 0 ? 40 : 160;
    Worker worker(given);
    for (int i = 0; i < 8; ++i) {
      const size_t which = random() % prompts.size();
      ExpectSame(worker.Run(prompts[which]), cold[which], std::ssize(prompts[which].tokens));
    }
    for (JobId id = 1; id <= 4; ++id) ASSERT_TRUE(worker.Submit(id, prompts[id - 1]).ok());
    worker.RunUntilIdle();
    for (JobId id = 1; id <= 4; ++id) {
      ExpectSame(worker.Result(id), cold[id - 1], std::ssize(prompts[id - 1].tokens));
    }
  }
}

TEST_P(ReuseTest, DocumentsAreFoundInAnotherOrder) {
  Worker worker(With());
  EXPECT_EQ(worker.Run(Ask({0, 1, 2, 3})).cached, 0);
  const Prompt other = Ask({3, 1, 0, 2}, 9);
  EXPECT_EQ(worker.Run(other).cached, kv::LandedTokens(other.spans));
  // And as a prefix, once it was computed: in full blocks, and behind them what lands.
  const int64_t full = std::ssize(other.tokens) / kBlockTokens * kBlockTokens;
  EXPECT_EQ(worker.Run(other).cached, std::max(full, kv::LandedPart(other.spans.back()).end));
}

// Blocks that the receiver has are not counted again, and not sent.
TEST_P(ReuseTest, BeginsWhereTheTicketDoes) {
  Worker worker(With());
  const Prompt prompt = Ask({0, 1, 2, 3});
  const Outcome whole = worker.Run(prompt);
  const Prompt other = Ask({0, 1, 3, 2});
  Outcome all = Worker(With()).Run(other);
  constexpr int64_t kFirst = 5;  // within the second document
  const Outcome rest = worker.Run(other, kFirst);
  std::erase_if(all.pieces, [](const auto& entry) { return entry.first.first < kFirst; });
  ExpectSame(rest, all, std::ssize(other.tokens));
  EXPECT_GT(rest.cached, kFirst * kBlockTokens);
  EXPECT_LE(rest.cached, std::ssize(other.tokens));
}

// Wrong bytes in every block that a marked prompt has published do not reach an exact one, and the other way
// round.
TEST_P(ReuseTest, ExactPromptsNeverFindApproximateBlocks) {
  const auto poison = [](Worker& worker) {
    for (int64_t b = 0; b < worker.engine().store().blocks(); ++b) {
      std::vector<std::span<std::byte>> pieces;
      worker.engine().store().AppendPieces(BlockId(static_cast<int32_t>(b)), 0,
                                           worker.engine().store().layout().layers, pieces);
      for (const auto piece : pieces) std::fill(piece.begin(), piece.end(), std::byte{0x3F});
    }
  };
  const Prompt marked = Ask({0, 1, 2, 3});
  const Prompt exact = {marked.tokens, {}};
  // The document alone, as a prompt: what its canonical sequence begins with.
  Prompt alone = {kv::CanonicalTokens(marked.spans[3], marked.tokens), {}};
  alone.tokens.emplace_back(5);
  Prompt fewer = marked;
  fewer.spans.pop_back();
  for (const Prompt& prompt : {exact, alone}) {
    const Outcome expected = Worker(With()).Run(prompt);
    Worker worker(With());
    worker.Run(marked);
    poison(worker);
    const Outcome got = worker.Run(prompt);
    EXPECT_EQ(got.cached, 0);
    ExpectSame(got, expected, std::ssize(prompt.tokens));
  }
  const Outcome expected = Worker(With()).Run(marked);
  Worker worker(With());
  worker.Run(exact);
  worker.Run(alone);
  poison(worker);
  const Outcome got = worker.Run(marked);
  EXPECT_EQ(got.cached, 0);
  ExpectSame(got, expected, std::ssize(marked.tokens));
}

TEST_P(ReuseTest, RanksLandTheirPartsOfTheBlocks) {
  Given given = With();
  given.tp = 2;
  given.dtype = tensor::DType::kI4;
  Worker worker(given);
  const Prompt prompt = Ask({2, 0});
  const Outcome expected = worker.Define(prompt);
  ExpectSame(worker.Run(prompt), expected, std::ssize(prompt.tokens));
}

TEST(ReuseLimitsTest, IsRefusedWithoutTheFlagAndWithoutTheBlocks) {
  Given given;
  given.options.chunk_reuse = false;
  Worker off(given);
  const Prompt prompt = Ask({0, 1, 2, 3});
  const absl::Status refused = off.Submit(1, prompt);
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("--chunk-reuse"));
  EXPECT_TRUE(off.Submit(2, {prompt.tokens, {}}).ok());
  given = {.blocks = BlocksFor(std::ssize(prompt.tokens)) + 3};
  Worker small(given);
  const absl::Status too_small = small.Submit(1, prompt);
  EXPECT_EQ(too_small.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(too_small.message()), HasSubstr("--kv-memory"));
}

TEST(ReuseLimitsTest, CancelBetweenStepsFreesEverything) {
  Worker worker(
      {.options = {.chunk_tokens = 16, .token_budget = 16, .landing_tokens = 7, .chunk_reuse = true}});
  for (int steps = 0; steps < 40; ++steps) {
    ASSERT_TRUE(worker.Submit(1, Ask({0, 1, 2, 3}, steps)).ok());
    for (int i = 0; i < steps; ++i) worker.scheduler().Step();
    worker.scheduler().Cancel(1);
    EXPECT_EQ(worker.engine().pool().counts().held, 0) << "after " << steps << " steps";
    worker.engine().pool().CheckConservation();
  }
}

// The rest of a prompt whose documents are found, the first tokens of each and the tokens between them, is
// one step.
TEST(ReuseLimitsTest, AllRunsOfAPromptAreOneStep) {
  Worker worker({.options = {.chunk_tokens = 512, .token_budget = 512, .chunk_reuse = true}});
  const Prompt other = Ask({3, 2, 1, 0});
  const Outcome expected = worker.Run(other);
  Worker warm({.options = {.chunk_tokens = 512, .token_budget = 512, .chunk_reuse = true}});
  warm.Run(Ask({0, 1, 2, 3}));
  ASSERT_TRUE(warm.Submit(1, other).ok());
  warm.scheduler().Step();
  ExpectSame(warm.Result(1), expected, std::ssize(other.tokens));
}

// A long landing does not keep the others waiting.
TEST(ReuseLimitsTest, LandingIsSpreadOverSteps) {
  Worker worker(
      {.options = {.chunk_tokens = 64, .token_budget = 64, .landing_tokens = 10, .chunk_reuse = true}});
  worker.Run(Ask({0, 1, 2, 3}));
  const Prompt other = Ask({3, 2, 1, 0});
  ASSERT_TRUE(worker.Submit(1, other).ok());
  int steps = 1;
  while (worker.scheduler().Step()) ++steps;
  EXPECT_GE(steps, kv::LandedTokens(other.spans) / 10);
}

}  // namespace
}  // namespace baton::prefill_service
