#include "engine/measure.h"

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "common/base/check.h"

namespace baton::engine {
namespace {

using forecast::StepLoad;

// Tokens that the steps with a long context attend to, where model and pool have them.
constexpr int64_t kLongContext = 2048;
constexpr int64_t kMaxRunning = 8;
// The fastest of so many rounds counts: the first one warms up, and other processes start at the same time.
// In a round a step that is shorter than this is repeated for as long, up to kMaxRepeats times: an
// interruption is a large part of it.
constexpr int kRounds = 3;
constexpr double kRepeatSeconds = 5e-3;
constexpr int kMaxRepeats = 32;

// One step: `running` sequences of a row each, or a chunk of `rows`, behind `first` tokens.
struct Step {
  int64_t running = 0;
  int64_t rows = 0;
  int64_t first = 0;

  StepLoad Load() const {
    StepLoad load{.running = running, .context = running * (first + 1)};
    if (rows > 0) load.AddRows(first, rows);
    return load;
  }
};

// All sequences attend to the first blocks; each writes into a block of its own behind them.
class Bench {
 public:
  Bench(Engine& engine, std::vector<BlockId> blocks, bool drafts, const Clock& clock)
      : engine_(engine),
        blocks_(std::move(blocks)),
        drafts_(drafts),
        clock_(clock),
        tokens_(blocks_.size() * kBlockTokens) {}

  double Seconds(const Step& step) {
    batch_.Clear();
    const auto shared = blocks_.begin() + step.first / kBlockTokens;
    if (step.rows > 0) {
      batch_.Add(
          {.tokens = std::span(tokens_).first(step.rows), .first_position = step.first, .blocks = blocks_});
    } else {
      tables_.clear();
      tables_.resize(step.running);
      for (int64_t i = 0; i < step.running; ++i) {
        tables_[i].assign(blocks_.begin(), shared);
        tables_[i].push_back(*(shared + i));
        batch_.Add({.tokens = std::span(tokens_).first(1),
                    .first_position = step.first,
                    .blocks = tables_[i],
                    .logit_rows = 1});
      }
    }
    const absl::Time begin = clock_.Now();
    drafts_ ? engine_.ForwardDraft(batch_) : engine_.Forward(batch_, [](int) {});
    AwaitDevice();
    return absl::ToDoubleSeconds(clock_.Now() - begin);
  }

  double Quickest(const Step& step) {
    double quickest = Seconds(step);
    double all = quickest;
    for (int repeats = 1; repeats < kMaxRepeats && all + quickest <= kRepeatSeconds; ++repeats) {
      const double seconds = Seconds(step);
      all += seconds;
      quickest = std::min(quickest, seconds);
    }
    return quickest;
  }

 private:
  // A step without logits may still run on a device when it is finished; downloads come after it.
  void AwaitDevice() {
    kv::KvStore& store = engine_.store();
    if (store.memory().host()) return;
    std::byte byte;
    const absl::Status ended = store.memory().Download(store.block(blocks_.front()), &byte, 1);
    BATON_CHECK(ended.ok()) << " " << ended.ToString();
  }

  Engine& engine_;
  const std::vector<BlockId> blocks_;
  const bool drafts_;
  const Clock& clock_;
  const std::vector<TokenId> tokens_;
  std::vector<std::vector<BlockId>> tables_;
  Batch batch_;
};

}  // namespace

forecast::StepCost MeasureStepCost(Engine& engine, const MeasureOptions& options, const Clock& clock) {
  const int64_t have = std::min(engine.pool().available(), engine.config().context / kBlockTokens);
  const int64_t chunk = std::min(options.chunk_tokens, have * kBlockTokens);
  const int64_t running = std::min(kMaxRunning, have);
  const int64_t behind = std::max(BlocksFor(chunk), running);  // blocks that a step writes
  const int64_t context = std::min(kLongContext / kBlockTokens, have - behind) * kBlockTokens;
  if (have < 1) return {};
  auto blocks = engine.pool().Allocate(context / kBlockTokens + behind);
  BATON_CHECK(blocks.ok()) << blocks.status().ToString();

  // The most informative steps first: with a large model there is time for those only.
  std::vector<Step> steps = {{.rows = std::min<int64_t>(kBlockTokens, chunk)}, {.running = 1}};
  if (chunk >= 64) steps.push_back({.rows = 64});
  if (running > 1) steps.push_back({.running = running});
  if (context > 0) steps.push_back({.rows = kBlockTokens, .first = context});
  if (chunk >= 256) steps.push_back({.rows = 256});
  if (context > 0) steps.push_back({.running = running, .first = context});
  if (chunk > 256) steps.push_back({.rows = chunk});
  constexpr size_t kAlways = 2;

  Bench bench(engine, *blocks, options.drafts, clock);
  const absl::Time begin = clock.Now();
  const auto left = [&] { return absl::ToDoubleSeconds(options.budget - (clock.Now() - begin)); };
  std::vector<forecast::StepForecast::Measured> quickest;
  forecast::StepForecast forecast{forecast::StepCost()};
  for (int round = 0; round < kRounds; ++round) {
    // Steps that the first round could not afford are not tried again.
    const size_t count = round == 0 ? steps.size() : quickest.size();
    for (size_t i = 0; i < count; ++i) {
      const StepLoad load = steps[i].Load();
      if ((round > 0 || i >= kAlways) && forecast.Seconds(load) > left()) break;
      const double seconds = bench.Quickest(steps[i]);
      if (round == 0) {
        quickest.push_back({load, seconds});
      } else {
        quickest[i].seconds = std::min(quickest[i].seconds, seconds);
      }
      forecast.Fit(quickest);
    }
  }
  engine.pool().Release(*blocks);
  return forecast.cost();
}

}  // namespace baton::engine
