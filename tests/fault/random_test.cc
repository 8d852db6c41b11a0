// Random sequences of requests and faults on the rig: both schedulers, the hand-off and the router's flow,
// with several requests at once, which the matrix does not have. Whatever happens, nobody gets a wrong token,
// everybody gets one end, and nothing is left.
#include "common/base/random.h"

#include <gtest/gtest.h>

#include "tests/fault/matrix.h"
#include "tests/seed.h"

namespace baton::fault {
namespace {

class Chaos {
 public:
  Chaos(uint64_t seed, const RigOptions& options) : seed_(seed), rig_(options) {}

  void Run(int steps) {
    for (int step = 0; step < steps; ++step) {
      Do(Draw(17));
      for (int turns = 1 + Draw(40); turns > 0; --turns) Turn();
    }
    // The world is mended, and everything comes to its end.
    for (int i = 0; i < 2; ++i) {
      rig_.Continue(rig_.prefill[i]);
      rig_.Continue(rig_.decode[i]);
      if (!rig_.prefill[i].up) rig_.Restart(rig_.prefill[i]);
      if (!rig_.decode[i].up) rig_.Restart(rig_.decode[i]);
    }
    rig_.Settle(absl::Seconds(60));
    EXPECT_EQ(rig_.Leftovers(), "");
    for (const auto& [request, prompt] : asked_) {
      EXPECT_EQ(Judge(request->seen, Alone(prompt), true), "");
      if (!request->seen.status.has_value()) continue;
      ++ends[request->seen.status->code()];
      if (request->seen.finished.has_value()) {
        migrations += static_cast<int>(request->seen.finished->relay().migrations());
        failovers += static_cast<int>(request->seen.finished->relay().failovers());
        fetched += request->seen.finished->relay().fetched_tokens() > 0;
      }
    }
  }

  std::map<absl::StatusCode, int> ends;
  int migrations = 0, failovers = 0, fetched = 0;

 private:
  int Draw(int below) { return static_cast<int>(UniformAt(seed_, draws_++) * below); }

  void Turn() {
    rig_.Turn();
    while (!mends_.empty() && mends_.begin()->first <= rig_.now()) {
      const auto mend = std::move(mends_.begin()->second);
      mends_.erase(mends_.begin());
      mend();
    }
  }
  void Later(int milliseconds, std::function<void()> mend) {
    mends_.emplace(rig_.now() + absl::Milliseconds(milliseconds), std::move(mend));
  }

  void Do(int operation) {
    PrefillNode& prefill = rig_.prefill[Draw(2)];
    DecodeNode& decode = rig_.decode[Draw(2)];
    Request* request = asked_.empty() ? nullptr : asked_[Draw(static_cast<int>(asked_.size()))].first;
    switch (operation) {
      case 0:
        if (!prefill.up) break;
        rig_.Continue(prefill);
        rig_.Kill(prefill);
        Later(1 + Draw(300), [this, &prefill] {
          if (!prefill.up) rig_.Restart(prefill);
        });
        break;
      case 1:
        if (!decode.up) break;
        rig_.Continue(decode);
        rig_.Kill(decode);
        Later(1 + Draw(300), [this, &decode] {
          if (!decode.up) rig_.Restart(decode);
        });
        break;
      case 2:
      case 3: {
        Node& node = operation == 2 ? static_cast<Node&>(prefill) : decode;
        if (!node.up) break;
        rig_.Stop(node);
        Later(1 + Draw(4000), [this, &node] { rig_.Continue(node); });
        break;
      }
      case 4:
        if (!rig_.wires().empty()) rig_.wires()[Draw(static_cast<int>(rig_.wires().size()))]->Cut();
        break;
      case 5:
        if (!rig_.wires().empty()) {
          rig_.wires()[Draw(static_cast<int>(rig_.wires().size()))]->HoldUntil(
              rig_.now() + absl::Milliseconds(Draw(1000)));
        }
        break;
      case 6:
        if (rig_.prefill[0].hog.empty() && rig_.prefill[1].hog.empty()) {
          rig_.HogPrefill(absl::Milliseconds(1 + Draw(2500)));
        }
        break;
      case 7:
        if (request != nullptr && !request->seen.status.has_value()) rig_.Cancel(*request);
        break;
      case 8:
        if (rig_.handoff() != nullptr) Damage<fleet::v1::PrefillEvent>(*rig_.handoff(), Draw(4));
        if (rig_.fetch() != nullptr) Damage<fleet::v1::FetchEvent>(*rig_.fetch(), Draw(4));
        break;
      case 9: {
        // The second prefill worker has what others may fetch, and it is asked for.
        PrefillNode& holder = rig_.prefill[1];
        const auto prompt = static_cast<uint32_t>(6 + Draw(20));
        if (!holder.up || holder.stopped) break;
        if (holder.engine->pool().available() < BlocksFor(kPromptTokens)) break;
        Rig::Warm(holder, Alone(prompt).prompt);
        asked_.emplace_back(&rig_.Ask(Alone(prompt).prompt, kSampling, kAnswer), prompt);
        break;
      }
      default: {
        const auto prompt = static_cast<uint32_t>(1 + Draw(5));
        asked_.emplace_back(&rig_.Ask(Alone(prompt).prompt, kSampling, kAnswer), prompt);
      }
    }
  }

  template <typename Event>
  static void Damage(Wire<Event>& wire, int kind) {
    wire.SetDamage([kind](std::deque<Event>& waiting) {
      if (!waiting.front().has_chunk()) return false;
      switch (kind) {
        case 0:
          waiting.push_front(waiting.front());
          break;
        case 1:
          waiting.pop_front();
          break;
        case 2:
          waiting.front().mutable_chunk()->mutable_data()->at(17) ^= 1;
          break;
        default:
          waiting.front().mutable_chunk()->mutable_data()->resize(5);
      }
      return true;
    });
  }

  const uint64_t seed_;
  uint64_t draws_ = 0;
  Rig rig_;
  std::multimap<absl::Time, std::function<void()>> mends_;
  std::vector<std::pair<Request*, uint32_t>> asked_;
};

TEST(RandomFaultsTest, NoSequenceOfFaultsLeaksHangsOrServesAWrongToken) {
  const uint64_t seed = TestSeed();
  std::map<absl::StatusCode, int> ends;
  int migrations = 0, failovers = 0, fetched = 0;
  for (uint64_t round = 0; round < BATON_RANDOM_ROUNDS; ++round) {
    SCOPED_TRACE(testing::Message() << "seed " << seed << " round " << round);
    Chaos chaos(seed + round, {.write_takes = absl::Milliseconds(round % 3 * 4),
                               .fetches = static_cast<Fetches>(round / 3 % 3)});
    chaos.Run(60);
    for (const auto& [code, count] : chaos.ends) ends[code] += count;
    migrations += chaos.migrations;
    failovers += chaos.failovers;
    fetched += chaos.fetched;
    if (HasFailure()) break;
  }
  for (const auto& [code, count] : ends) {
    std::printf("%s: %d\n", absl::StatusCodeToString(code).c_str(), count);
  }
  std::printf("%d migrations, %d failovers, %d answers with fetched blocks\n", migrations, failovers,
              fetched);
  // That it all came about; a few rounds alone may well miss some of it.
  if (BATON_RANDOM_ROUNDS < 60) return;
  EXPECT_GT(ends[absl::StatusCode::kOk], BATON_RANDOM_ROUNDS);
  EXPECT_GT(migrations, 0);
  EXPECT_GT(failovers, 0);
  EXPECT_GT(fetched, 0);
}

}  // namespace
}  // namespace baton::fault
