// A decode worker whose drafters lie: the tokens of an n-gram draft, filled up to the longest that may be
// asked for, and from a random place on wrong tokens or ids that no model has, whatever a grammar allows; all
// of them said to be certain. For speculation_test.cc: no answer may change by it.
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "decode_service/command.h"
#include "decode_service/drafting/ngram_drafter.h"
#include "tests/e2e/gated_worker.h"

namespace baton {
namespace {

class LyingDrafter final : public decode_service::drafting::Drafter {
 public:
  explicit LyingDrafter(size_t seed) : random_(static_cast<uint32_t>(seed)) {}
  decode_service::drafting::DrafterKind kind() const override { return honest_.kind(); }
  void Follow(std::span<const TokenId> tokens) override { honest_.Follow(tokens); }
  void Guess(std::span<const TokenId> tokens, size_t most, decode_service::drafting::Draft& draft) override {
    honest_.Guess(tokens, most, draft);
    const size_t lie = random_() % 8, from = random_() % 6;
    for (size_t i = draft.tokens.size(); i < most; ++i) {
      draft.tokens.push_back(Any());
      draft.survival.push_back(1);
    }
    for (size_t i = lie < 4 ? from : most; i < most; ++i) {
      draft.tokens[i] = lie < 3 ? Any() : TokenId(random_() % 2 == 0 ? -7 : 1 << 30);
    }
    for (double& survival : draft.survival) survival = 1;
  }

 private:
  TokenId Any() { return TokenId(static_cast<int32_t>(random_() % 2048)); }

  decode_service::drafting::NgramDrafter honest_;
  std::minstd_rand random_;
};

}  // namespace
}  // namespace baton

int main(int argc, char** argv) {
  using namespace baton;
  const auto gate = e2e::TakeGate(argc, argv);
  decode_service::ServerOptions options;
  options.worker.step_gate = gate.get();
  options.speculation = "off";
  options.scheduler.speculation.make = [](const decode_service::Sequence& sequence) {
    std::vector<std::unique_ptr<decode_service::drafting::Drafter>> drafters;
    drafters.push_back(std::make_unique<LyingDrafter>(sequence.tokens.size() + 1));
    return drafters;
  };
  return decode_service::RunCommand(argc, argv, std::move(options));
}
