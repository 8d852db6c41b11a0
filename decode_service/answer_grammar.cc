#include "decode_service/answer_grammar.h"

#include <fmt/format.h>
#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "common/base/check.h"
#include "common/base/quote.h"
#include "common/base/status.h"

namespace baton::decode_service {
namespace {

// Tokens of white space that may come between thinking and the answer, which they are no part of.
constexpr int kMaxSpaces = 4;
// Tokens that may come next where text is forced: its beginnings, and some that go beyond it.
constexpr int64_t kMaxAllowed = 512;
// An answer whose masks take longer is of the slow lane, and so is work on so many tokens at once.
constexpr absl::Duration kSwiftCost = absl::Milliseconds(1);
constexpr size_t kSwiftTokens = 64;
// The expected cost of a mask is at least this share of the one before.
constexpr double kCostKept = 0.9;

// The masks of an answer may take so much of a core for each token, and so much once beyond that. The longest
// masks that are allowed take 20 to 50 ms, so an answer has some dozens of them, and not hundreds.
constexpr absl::Duration kTokenBudget = absl::Milliseconds(5);
constexpr absl::Duration kBudgetBeyond = absl::Seconds(2);
// An automaton that took so much of a core to compute may hold megabytes, and the C library keeps what many
// small pieces leave behind: then it is worth the time to give them back.
constexpr absl::Duration kLargeCost = absl::Milliseconds(20);
// An error names a grammar by so many of its first bytes.
constexpr size_t kNameBytes = 60;

}  // namespace

struct AnswerGrammar::Work {
  explicit Work(text::GrammarMatcher started) : matcher(std::move(started)) {}

  // after: tokens of the answer before what comes next. tokenizer: of forced text; null: none is looked for.
  // Returns whether the mask was asked for meanwhile.
  bool Do(std::span<const TokenId> tokens, int64_t after, const text::Tokenizer* tokenizer,
          const GrammarThreads& threads) {
    const absl::Duration begin = threads.CpuTime();
    absl::Status failed;
    for (const TokenId token : tokens) {
      if (failed.ok()) failed = matcher.Push(token);
    }
    absl::StatusOr<bool> ends = failed.ok() ? matcher.Mask(mask) : absl::StatusOr<bool>(failed);
    const absl::Duration took = threads.CpuTime() - begin;
    const auto masks = std::max<int64_t>(1, std::ssize(tokens));
    beyond = std::max(absl::ZeroDuration(), beyond + took - kTokenBudget * masks);
    if (beyond > kBudgetBeyond && ends.ok()) {
      ends = absl::InvalidArgumentError(fmt::format(
          "it takes more work than is allowed: {:.1f} s of a core beyond {} ms for each token; write it with "
          "fewer alternatives that begin alike and fewer nested repetitions",
          absl::ToDoubleSeconds(beyond), absl::ToInt64Milliseconds(kTokenBudget)));
    }
    // No part of the budget: an answer must not fail for its drafts.
    Forced found{.after = after, .tokens = {}};
    absl::Duration looking;
    if (tokenizer != nullptr && looked < kBudgetBeyond && ends.ok() && !*ends) {
      found.tokens = FindForced(*tokenizer);
      looking = threads.CpuTime() - begin - took;
      looked += looking;
    }
    absl::MutexLock lock(&mutex);
    result = std::move(ends);
    forced = std::move(found);
    spent += took + looking;
    cost = std::max(took, cost * kCostKept);
    done = true;
    return std::exchange(asked_for, false);
  }

  std::vector<TokenId> FindForced(const text::Tokenizer& tokenizer) const {
    // Where much is allowed nothing is forced, and the question costs more than a mask.
    int64_t allowed = 0;
    for (const uint32_t word : mask) allowed += std::popcount(word);
    if (allowed == 0 || allowed > kMaxAllowed) return {};
    auto tokens = tokenizer.Encode(matcher.Forced(), false);
    if (!tokens.ok()) return {};  // it ends inside a character
    // Text that follows may belong to the last token.
    if (tokens->size() > 1) tokens->pop_back();
    return *std::move(tokens);
  }

  std::atomic<bool> ended = false;
  text::GrammarMatcher matcher;
  text::TokenMask mask;
  absl::Duration beyond;  // what masks took beyond the budget of their tokens
  absl::Duration looked;  // for forced text, so far; it is looked for until this has taken kBudgetBeyond
  absl::Mutex mutex;
  bool done ABSL_GUARDED_BY(mutex) = true;
  bool asked_for ABSL_GUARDED_BY(mutex) = false;
  absl::Duration cost ABSL_GUARDED_BY(mutex);   // what a mask is expected to take of a thread
  absl::Duration spent ABSL_GUARDED_BY(mutex);  // by all of it so far
  Forced forced ABSL_GUARDED_BY(mutex);
  absl::StatusOr<bool> result ABSL_GUARDED_BY(mutex) = absl::InternalError("no mask yet");
};

absl::Status AnswerGrammar::Check(const Options& options, bool thinks) {
  if (options.ends.empty()) {
    return absl::InvalidArgumentError(
        "stop.ignore_eos: nothing could end an answer that is drawn under a grammar (constraint, "
        "tool_choice, "
        "strict tools); leave it out, or name an end token in stop.stop_token_ids");
  }
  if (!thinks || options.markers == nullptr) return absl::OkStatus();
  const output::OutputFormat& format = options.markers->format();
  if (!format.think_close.empty() && !options.markers->IdOf(format.think_close)) {
    return absl::InvalidArgumentError(
        "thinking.enabled: the end of this model's thinking is no token of its own, so no grammar can begin "
        "there (constraint, tool_choice, strict tools); switch thinking off");
  }
  return absl::OkStatus();
}

void AnswerGrammar::Begin(std::shared_ptr<const text::GrammarVocabulary> vocabulary,
                          text::GrammarMatcher matcher, GrammarThreads& masks) {
  vocabulary_ = std::move(vocabulary);
  const size_t mask_words = vocabulary_->mask_words();
  work_ = std::make_shared<Work>(std::move(matcher));
  work_->mask.resize(mask_words);
  mask_.resize(mask_words);
  masks_ = &masks;
  Start();
  Wake();
}

void AnswerGrammar::Push(TokenId token, bool thinking, bool asleep) {
  if (options_.markers != nullptr && options_.markers->format().channels) thinking = asleep = false;
  ++pushed_;
  const bool between = thought_ && !started_ && spaces_ < kMaxSpaces && IsSpace(token);
  if (thinking) {
    thought_ = true;
  } else if (between) {
    ++spaces_;
  } else {
    started_ = true;
    waiting_.push_back(token);
  }
  asleep_ = asleep;
  if (work_ != nullptr && !waiting_.empty()) {
    absl::MutexLock lock(&work_->mutex);
    if (!work_->done) return;  // tokens that no draw decided: taken when the mask is asked for
  }
  if (work_ != nullptr && !waiting_.empty()) Start();
}

void AnswerGrammar::Start() {
  std::vector<TokenId> tokens = std::exchange(waiting_, {});
  bool swift = tokens.size() <= kSwiftTokens;
  {
    absl::MutexLock lock(&work_->mutex);
    work_->done = false;
    swift = swift && work_->cost <= kSwiftCost;
  }
  // Nobody waits for the mask of an answer that has ended.
  GrammarThreads::Work job = [weak = std::weak_ptr(work_), tokens = std::move(tokens), after = pushed_,
                              tokenizer = looks_for_forced_ ? options_.tokenizer : nullptr, masks = masks_] {
    const std::shared_ptr<Work> work = weak.lock();
    if (work != nullptr && !work->ended && work->Do(tokens, after, tokenizer.get(), *masks))
      masks->TellReady();
  };
  // A pool that has stopped computes nothing: the process is leaving.
  if (!masks_->Post(swift ? GrammarThreads::Lane::kSwift : GrammarThreads::Lane::kSlow, options_.salt, job))
    job();
}

void AnswerGrammar::End() {
  if (work_ == nullptr) return;
  work_->ended = true;
  GrammarThreads::Work job = [work = std::exchange(work_, nullptr)]() mutable {
    bool large = false;
    {
      absl::MutexLock lock(&work->mutex);
      large = work->spent >= kLargeCost;
    }
    work = nullptr;
    if (large) malloc_trim(0);
  };
  if (masks_->Post(GrammarThreads::Lane::kSlow, options_.salt, job)) masks_->Wake();
}

bool AnswerGrammar::Ready(absl::Duration& patience) {
  BATON_CHECK(work_ != nullptr) << " no mask before Begin";
  if (asleep_) return true;
  while (true) {
    {
      absl::MutexLock lock(&work_->mutex);
      if (!work_->done) Wake();
      if (!work_->done && work_->cost <= patience && masks_->has_threads()) {
        const absl::Time begin = absl::Now();
        work_->mutex.AwaitWithTimeout(absl::Condition(&work_->done), patience);
        patience =
            std::max(absl::ZeroDuration(), patience - std::max(absl::ZeroDuration(), absl::Now() - begin));
      }
      if (!work_->done) {
        work_->asked_for = true;
        return false;
      }
      if (!work_->result.ok() || waiting_.empty()) return true;
    }
    Start();
  }
}

absl::StatusOr<std::span<const uint32_t>> AnswerGrammar::Mask() {
  BATON_CHECK(work_ != nullptr) << " no mask before Begin";
  if (asleep_) {
    std::fill(mask_.begin(), mask_.end(), std::numeric_limits<uint32_t>::max());
    for (const TokenId end : options_.ends) Allow(end, false);
    if (options_.markers != nullptr) {
      for (const auto& [id, marker] : options_.markers->by_id()) {
        if (marker != options_.markers->format().think_close) Allow(id, false);
      }
    }
    return mask_;
  }
  bool ends = false;
  for (bool again = true; again;) {
    {
      absl::MutexLock lock(&work_->mutex);
      if (!work_->done) Wake();
      work_->mutex.Await(absl::Condition(&work_->done));
      again = work_->result.ok() && !waiting_.empty();
      if (!again) {
        if (!work_->result.ok()) return Named(work_->result.status());
        ends = *work_->result;
        mask_ = work_->mask;
      }
    }
    if (again) Start();
  }
  if (ends) {
    for (const TokenId end : options_.ends) Allow(end, true);
  }
  if (!started_ && options_.may_think && !thought_ && options_.markers != nullptr) {
    const auto opener = options_.markers->IdOf(options_.markers->format().think_open);
    if (opener.has_value()) Allow(*opener, true);
  }
  if (!started_ && thought_ && spaces_ < kMaxSpaces) {
    const std::span<const uint32_t> spaces = vocabulary_->white_space();
    for (size_t i = 0; i < mask_.size(); ++i) mask_[i] |= spaces[i];
  }
  return mask_;
}

absl::Status AnswerGrammar::Named(const absl::Status& status) const {
  return absl::Status(status.code(),
                      fmt::format("the answer's grammar (of constraint, tool_choice or strict "
                                  "tools), which begins {}: {}",
                                  Quoted(options_.lark, kNameBytes), std::string(status.message())));
}

AnswerGrammar::Forced AnswerGrammar::ForcedTokens() const {
  if (work_ == nullptr || asleep_) return {};
  absl::MutexLock lock(&work_->mutex);
  return work_->forced;
}

void AnswerGrammar::Allow(TokenId token, bool allowed) {
  const auto id = static_cast<size_t>(token.value());
  if (id / 32 >= mask_.size()) return;
  const uint32_t bit = uint32_t{1} << (id % 32);
  mask_[id / 32] = allowed ? mask_[id / 32] | bit : mask_[id / 32] & ~bit;
}

bool AnswerGrammar::IsSpace(TokenId token) const {
  const std::string_view bytes = options_.tokenizer->TokenBytes(token);
  return !bytes.empty() && std::ranges::all_of(bytes, [](char c) {
    return absl::ascii_isspace(static_cast<unsigned char>(c));
  });
}

}  // namespace baton::decode_service
