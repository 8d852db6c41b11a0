#include "decode_service/drafting/past_answers.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace baton::decode_service::drafting {
namespace {

constexpr TokenId kMark(-1);
// Looking for what is too old is linear in the salts.
constexpr absl::Duration kLookEvery = absl::Minutes(1);

}  // namespace

// The texts that were there when the answer began, and what was added to them since; not those that the store
// has let go meanwhile.
class PastAnswersDrafter final : public Drafter {
 public:
  using Text = PastAnswers::Text;
  explicit PastAnswersDrafter(const PastAnswers::OfSalt& of) : texts_{of.newer, of.older} {}

  DrafterKind kind() const override { return DrafterKind::kPastAnswers; }

  void Follow(std::span<const TokenId> tokens) override {
    const std::shared_ptr<Text> in = in_.lock();
    if (in == nullptr) at_ = {};
    if (seen_ > 0) {
      for (; seen_ < tokens.size() && at_.length > 0; ++seen_) {
        const std::vector<TokenId>& text = in->tokens;
        if (at_.next >= text.size() || text[at_.next] == kMark) {
          at_ = {};
          break;
        }
        const bool right = text[at_.next] == tokens[seen_];
        survival_.Observe(at_.length, right);
        at_ = right ? NgramIndex::Match{at_.next + 1, at_.length + 1} : NgramIndex::Match{};
      }
    }
    seen_ = tokens.size();
    for (const std::weak_ptr<Text>& of : texts_) {
      const std::shared_ptr<Text> text = of.lock();
      if (text == nullptr || at_.length >= NgramIndex::kLongest) continue;
      const NgramIndex::Match found = text->index.Find(text->tokens, tokens, at_.length);
      if (found.length == 0) continue;
      at_ = found;
      in_ = text;
    }
  }

  void Guess(std::span<const TokenId>, size_t most, Draft& draft) override {
    const std::shared_ptr<Text> in = in_.lock();
    if (in == nullptr || at_.length == 0) return;
    double survival = 1;
    for (size_t i = 0; i < most; ++i) {
      const size_t place = at_.next + i;
      if (place >= in->tokens.size() || in->tokens[place] == kMark) return;
      survival *= survival_.Chance(at_.length + i);
      draft.tokens.push_back(in->tokens[place]);
      draft.survival.push_back(survival);
    }
  }

 private:
  const std::array<std::weak_ptr<Text>, 2> texts_;
  Survival survival_{{0.25, 0.5, 0.7, 0.85, 0.9}};
  std::weak_ptr<Text> in_;  // empty until something matched
  NgramIndex::Match at_;
  size_t seen_ = 0;
};

void PastAnswers::Add(const std::string& salt, std::span<const TokenId> before,
                      std::span<const TokenId> answer, absl::Time now) {
  if (answer.empty()) return;
  OfSalt& of = salts_[salt];
  if (of.newer != nullptr && of.newer->tokens.size() >= limits_.tokens) {
    if (of.older != nullptr) bytes_ -= of.older->bytes();
    of.older = std::exchange(of.newer, nullptr);
  }
  if (of.newer == nullptr) {
    of.newer = std::make_shared<Text>();
  } else {
    bytes_ -= of.newer->bytes();
  }
  Text& text = *of.newer;
  const auto kept = answer.first(std::min(answer.size(), limits_.tokens));
  const auto prompt = before.last(std::min(before.size(), NgramIndex::kLongest));
  text.tokens.push_back(kMark);
  text.tokens.insert(text.tokens.end(), prompt.begin(), prompt.end());
  text.tokens.insert(text.tokens.end(), kept.begin(), kept.end());
  text.index.Extend(text.tokens, std::numeric_limits<size_t>::max());
  text.last = now;
  bytes_ += text.bytes();
  while (bytes_ > limits_.bytes) {
    const auto silent =
        std::ranges::min_element(salts_, {}, [](const auto& entry) { return entry.second.newer->last; });
    const std::string longest = silent->first;
    Forget(longest);
  }
}

void PastAnswers::Forget(const std::string& salt) {
  const auto found = salts_.find(salt);
  for (const auto& text : {found->second.newer, found->second.older}) {
    if (text != nullptr) bytes_ -= text->bytes();
  }
  salts_.erase(found);
}

void PastAnswers::ForgetOld(absl::Time now) {
  if (now - looked_ < kLookEvery) return;
  looked_ = now;
  std::vector<std::string> silent;
  for (auto& [salt, of] : salts_) {
    if (now - of.newer->last > limits_.age) {
      silent.push_back(salt);
    } else if (of.older != nullptr && now - of.older->last > limits_.age) {
      bytes_ -= of.older->bytes();
      of.older = nullptr;
    }
  }
  for (const std::string& salt : silent) Forget(salt);
}

std::unique_ptr<Drafter> PastAnswers::DrafterFor(const std::string& salt, absl::Time now) {
  const auto found = salts_.find(salt);
  if (found == salts_.end() || now - found->second.newer->last > limits_.age) return nullptr;
  OfSalt of = found->second;
  if (of.older != nullptr && now - of.older->last > limits_.age) of.older = nullptr;
  return std::make_unique<PastAnswersDrafter>(of);
}

}  // namespace baton::decode_service::drafting
