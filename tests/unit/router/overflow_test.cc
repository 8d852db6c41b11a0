#include "router/api/overflow.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/check.h"
#include "router/api/request_preparer.h"
#include "tests/unit/text/tokenizer_folders.h"

namespace baton::router {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const std::string kShortenedModel = std::string(BATON_SOURCE_DIR) + "/models/baton-tiny";
constexpr int64_t kContext = 400;

v1::Message Turn(const std::string& role, const std::string& content) {
  v1::Message message;
  message.set_role(role);
  message.set_content(content);
  return message;
}

void Say(v1::Conversation& conversation, const std::string& role, const std::string& content) {
  *conversation.add_messages() = Turn(role, content);
}

// A word is a token.
absl::StatusOr<int64_t> CountWords(const std::string& text) {
  return text.empty() ? 0 : 1 + std::ranges::count(text, ' ');
}

std::string Words(int count) {
  std::string text = "w";
  for (int i = 1; i < count; ++i) text += " w";
  return text;
}

v1::Overflow With(v1::Overflow::Mode mode) {
  v1::Overflow overflow;
  overflow.set_mode(mode);
  return overflow;
}

std::vector<std::string> ContentsOf(const v1::Conversation& conversation) {
  std::vector<std::string> contents;
  for (const v1::Message& message : conversation.messages()) contents.push_back(message.content());
  return contents;
}

Shortening Shorten(const v1::Conversation& conversation, const v1::Overflow& overflow) {
  auto made = Shortening::Make(conversation, overflow, CountWords);
  BATON_CHECK(made.ok()) << made.status();
  return *std::move(made);
}

TEST(PartsGoneTest, ReplaysHowTheConversationGrew) {
  // Ten messages of 10 tokens in a window of 50: at the sixth, 60, parts go until 30 are left, and at the
  // ninth again.
  const std::vector<int64_t> messages(10, 10);
  std::vector<RemovablePart> parts;
  for (int i = 0; i < 9; ++i) parts.push_back({.tokens = 10, .from = i + 1});
  std::vector<int> gone;
  for (size_t n = 1; n <= messages.size(); ++n) {
    gone.push_back(PartsGone(std::span(messages).first(n), parts, 0, 50, 0.6));
  }
  EXPECT_THAT(gone, ElementsAre(0, 0, 0, 0, 0, 3, 3, 3, 6, 6));
  EXPECT_EQ(PartsGone(messages, parts, 25, 50, 0.6), 8) << "what is always there takes its share";
  EXPECT_EQ(PartsGone(messages, {}, 0, 50, 0.6), 0);
  EXPECT_EQ(PartsGone({}, parts, 100, 50, 0.6), 0);
}

std::string WhyNotOfTokens(const v1::Overflow& overflow) {
  return std::string(CheckOverflow(overflow, /*of_tokens=*/true).message());
}

TEST(CheckOverflowTest, NamesTheField) {
  const auto check = [](const v1::Overflow& one) { return CheckOverflow(one, /*of_tokens=*/false); };
  EXPECT_TRUE(check({}).ok());
  v1::Overflow overflow = With(v1::Overflow::MODE_DROP_OLDEST);
  overflow.set_keep(1);
  EXPECT_TRUE(check(overflow).ok());
  for (const float keep : {0.0F, -1.0F, 1.5F, std::numeric_limits<float>::quiet_NaN()}) {
    overflow.set_keep(keep);
    EXPECT_THAT(std::string(check(overflow).message()), HasSubstr("overflow.keep: ")) << keep;
  }
  overflow = With(v1::Overflow::MODE_CLAMP_OUTPUT);
  overflow.set_keep(0.5);
  EXPECT_THAT(std::string(check(overflow).message()), HasSubstr("overflow.keep: "));
  overflow = With(v1::Overflow::MODE_DROP_OLDEST);
  overflow.set_keep_tool_results(1);
  EXPECT_THAT(std::string(check(overflow).message()), HasSubstr("overflow.keep_tool_results: "));
  EXPECT_THAT(std::string(check(With(static_cast<v1::Overflow::Mode>(77))).message()),
              HasSubstr("overflow.mode: 77"));
  overflow = With(v1::Overflow::MODE_DROP_MIDDLE);
  overflow.set_keep_first_tokens(1);
  EXPECT_THAT(std::string(check(overflow).message()), HasSubstr("overflow.keep_first_tokens: "));
  EXPECT_EQ(WhyNotOfTokens(overflow), "");
  overflow.set_mode(v1::Overflow::MODE_DROP_OLDEST);
  EXPECT_THAT(WhyNotOfTokens(overflow), HasSubstr("overflow.keep_first_tokens: "));
  for (const auto mode : {v1::Overflow::MODE_CLEAR_TOOL_RESULTS, v1::Overflow::MODE_CLEAR_THINKING}) {
    EXPECT_THAT(WhyNotOfTokens(With(mode)), HasSubstr("overflow.mode: MODE_CLEAR_"));
    EXPECT_TRUE(check(With(mode)).ok());
  }
  for (const auto mode :
       {v1::Overflow::MODE_UNSPECIFIED, v1::Overflow::MODE_REFUSE, v1::Overflow::MODE_CLAMP_OUTPUT}) {
    overflow = With(mode);
    overflow.set_clamp_output(true);
    EXPECT_THAT(std::string(check(overflow).message()), HasSubstr("overflow.clamp_output: "));
    overflow = With(mode);
    overflow.set_window_tokens(9);
    EXPECT_THAT(std::string(check(overflow).message()), HasSubstr("overflow.window_tokens: "));
  }
  overflow = With(v1::Overflow::MODE_DROP_OLDEST);
  overflow.set_window_tokens(0);
  EXPECT_THAT(std::string(check(overflow).message()), HasSubstr("overflow.window_tokens: 0 tokens"));
}

TEST(CutTokensTest, GrowsByStepsAndLeavesBothEnds) {
  v1::Overflow overflow = With(v1::Overflow::MODE_DROP_OLDEST);
  overflow.set_keep(0.6F);
  // A window of 50, of which 30 are left at a cut.
  const auto gone = [&](int64_t tokens, int64_t head) {
    const auto cut = CutTokens(overflow, tokens, head, 50);
    EXPECT_TRUE(cut.ok()) << cut.status();
    return std::pair(cut->begin, cut->end - cut->begin);
  };
  EXPECT_EQ(gone(50, 1), std::pair(int64_t{0}, int64_t{0}));
  EXPECT_EQ(gone(51, 1), std::pair(int64_t{1}, int64_t{20}));
  EXPECT_EQ(gone(70, 1), std::pair(int64_t{1}, int64_t{20}))
      << "the cut stays until the window is full again";
  EXPECT_EQ(gone(71, 1), std::pair(int64_t{1}, int64_t{40}));
  EXPECT_EQ(gone(1050, 0), std::pair(int64_t{0}, int64_t{1000}));
  // A head that leaves less than the share.
  EXPECT_EQ(gone(60, 45), std::pair(int64_t{45}, int64_t{10}));
  EXPECT_TRUE(absl::IsOutOfRange(CutTokens(overflow, 60, 50, 50).status()));
  overflow.set_mode(v1::Overflow::MODE_DROP_MIDDLE);
  EXPECT_EQ(gone(51, 1), std::pair(int64_t{6}, int64_t{20})) << "an eighth of the window";
  overflow.set_keep_first_tokens(12);
  EXPECT_EQ(gone(51, 1), std::pair(int64_t{12}, int64_t{20}));
  overflow.set_keep_first_tokens(0);
  EXPECT_EQ(gone(51, 2), std::pair(int64_t{2}, int64_t{20})) << "special tokens stay";
  overflow.set_keep(1);
  EXPECT_EQ(gone(51, 0), std::pair(int64_t{0}, int64_t{1}));
}

// Whatever is asked for: at most the window is left, and both ends stay.
TEST(CutTokensTest, AnyPromptFitsAfterwards) {
  std::mt19937_64 random(7);
  for (int i = 0; i < 2000; ++i) {
    v1::Overflow overflow =
        With(random() % 2 == 0 ? v1::Overflow::MODE_DROP_OLDEST : v1::Overflow::MODE_DROP_MIDDLE);
    if (random() % 2 == 0) overflow.set_keep(static_cast<float>(1 + random() % 100) / 100);
    const auto tokens = static_cast<int64_t>(1 + random() % 500),
               window = static_cast<int64_t>(1 + random() % 200);
    const auto head = static_cast<int64_t>(random() % 3);
    const auto cut = CutTokens(overflow, tokens, head, window);
    if (!cut.ok()) {
      EXPECT_GE(head, window);
      continue;
    }
    EXPECT_LE(tokens - (cut->end - cut->begin), window);
    EXPECT_LE(cut->end, tokens);
    if (tokens > window) {
      EXPECT_GE(cut->begin, head);
    } else {
      EXPECT_EQ(cut->end, 0);
    }
  }
}

TEST(ShorteningTest, TurnsGoWholeAndTheEndsStay) {
  v1::Conversation conversation;
  Say(conversation, "system", "be brief");
  Say(conversation, "user", "a");
  Say(conversation, "assistant", "b");
  Say(conversation, "user", "c");
  v1::Message call = Turn("assistant", "");
  call.add_tool_calls()->set_name("find");
  *conversation.add_messages() = call;
  Say(conversation, "tool", "found");
  Say(conversation, "assistant", "d");
  Say(conversation, "user", "e");

  const Shortening oldest = Shorten(conversation, With(v1::Overflow::MODE_DROP_OLDEST));
  EXPECT_THAT(ContentsOf(oldest.Without(0).conversation),
              ElementsAre("be brief", "a", "b", "c", "", "found", "d", "e"));
  EXPECT_EQ(oldest.Without(0).report.ByteSizeLong(), 0u);
  EXPECT_THAT(ContentsOf(oldest.Without(1).conversation),
              ElementsAre("be brief", "c", "", "found", "d", "e"));
  EXPECT_EQ(oldest.Without(1).report.dropped_messages(), 2u);
  EXPECT_EQ(oldest.Without(1).report.removed_tokens(), 2 * Shortening::kMessageTokens + 2);
  EXPECT_THAT(ContentsOf(oldest.Without(2).conversation), ElementsAre("be brief", "e"));
  EXPECT_EQ(oldest.Without(2).report.dropped_messages(), 6u);
  EXPECT_EQ(oldest.More(0, 1), 1);
  EXPECT_EQ(oldest.More(0, 1000), 2);
  EXPECT_EQ(oldest.More(2, 1), 2) << "nothing is left that may go";

  const Shortening middle = Shorten(conversation, With(v1::Overflow::MODE_DROP_MIDDLE));
  EXPECT_EQ(middle.More(0, 1000), 1);
  EXPECT_THAT(ContentsOf(middle.Without(1).conversation), ElementsAre("be brief", "a", "b", "e"));
  EXPECT_THAT(ContentsOf(oldest.Frame()), ElementsAre("be brief", "?"));
}

TEST(ShorteningTest, OldResultsAreClearedAndTheNewestStay) {
  v1::Conversation conversation;
  Say(conversation, "user", "go");
  for (int i = 0; i < 4; ++i) Say(conversation, "tool", Words(30 + i));
  Say(conversation, "tool", "short");
  v1::Overflow overflow = With(v1::Overflow::MODE_CLEAR_TOOL_RESULTS);
  const Shortening three = Shorten(conversation, overflow);
  EXPECT_EQ(three.More(0, 1000), 2);
  const auto cleared = three.Without(2);
  EXPECT_THAT(ContentsOf(cleared.conversation),
              ElementsAre("go", Shortening::kCleared, Shortening::kCleared, Words(32), Words(33), "short"));
  EXPECT_EQ(cleared.report.cleared_tool_results(), 2u);
  overflow.set_keep_tool_results(0);
  EXPECT_EQ(Shorten(conversation, overflow).More(0, 1000), 4) << "a short one is not worth it";
}

TEST(ShorteningTest, OldThinkingIsClearedAndThatOfTheLastTurnStays) {
  v1::Conversation conversation;
  for (int i = 0; i < 3; ++i) {
    Say(conversation, "user", "go");
    v1::Message answer = Turn("assistant", "done");
    answer.set_reasoning_content(Words(20));
    *conversation.add_messages() = answer;
  }
  const Shortening thinking = Shorten(conversation, With(v1::Overflow::MODE_CLEAR_THINKING));
  EXPECT_EQ(thinking.More(0, 1000), 2);
  const auto cleared = thinking.Without(2);
  EXPECT_EQ(cleared.report.cleared_thinking(), 2u);
  EXPECT_EQ(cleared.report.removed_tokens(), 40u);
  EXPECT_EQ(cleared.conversation.messages(1).reasoning_content(), "");
  EXPECT_EQ(cleared.conversation.messages(3).reasoning_content(), "");
  EXPECT_EQ(cleared.conversation.messages(5).reasoning_content(), Words(20));
}

// With the shipped model's template and tokenizer, in a context of kContext tokens.
class PreparedOverflowTest : public testing::Test {
 protected:
  // `tokenizer` null: the shipped one.
  static ModelRegistry Registry(std::shared_ptr<const text::Tokenizer> tokenizer = nullptr) {
    auto model = ServedModel::Load(kShortenedModel, "tiny");
    BATON_CHECK(model.ok()) << model.status();
    model->context = kContext;
    if (tokenizer != nullptr) {
      model->literal = std::make_shared<text::LiteralText>(tokenizer, model->chat_template.get());
      model->tokenizer = std::move(tokenizer);
    }
    std::vector<ServedModel> models;
    models.push_back(*std::move(model));
    auto registry = ModelRegistry::Create(std::move(models));
    BATON_CHECK(registry.ok()) << registry.status();
    return *std::move(registry);
  }
  absl::StatusOr<Prepared> Prepare(const v1::ChatRequest& request) {
    const absl::Status checked = preparer_.Check(request);
    return checked.ok() ? preparer_.Prepare(request, tenant_) : checked;
  }
  static std::vector<int32_t> TokensOf(const Prepared& prepared) {
    return {prepared.request.token_ids().begin(), prepared.request.token_ids().end()};
  }

  const ModelRegistry registry_ = Registry();
  const RequestPreparer preparer_{registry_, [] { return uint64_t{1}; }};
  const Tenant tenant_{.salt = kv::TenantSalt("tenant")};
};

TEST_F(PreparedOverflowTest, AsAConversationGrowsItIsCutRarelyAndItsPromptsBeginAlike) {
  std::mt19937_64 random(3);
  v1::ChatRequest request;
  *request.mutable_overflow() = With(v1::Overflow::MODE_DROP_OLDEST);
  request.mutable_stop()->set_max_tokens(50);
  Say(*request.mutable_conversation(), "system", "You answer in one sentence.");
  std::vector<int32_t> before;
  uint32_t dropped = 0;
  int cuts = 0;
  for (int turn = 0; turn < 80; ++turn) {
    SCOPED_TRACE(turn);
    Say(*request.mutable_conversation(), "user", fmt::format("Tell me of number {}, please.", turn));
    const auto prepared = Prepare(request);
    ASSERT_TRUE(prepared.ok()) << prepared.status();
    const std::vector<int32_t> tokens = TokensOf(*prepared);
    EXPECT_LE(std::ssize(tokens) + 50, kContext);
    EXPECT_EQ(prepared->request.stop().max_tokens(), 50u);
    if (prepared->context.dropped_messages() != dropped) {
      EXPECT_GT(prepared->context.dropped_messages(), dropped);
      EXPECT_LT(std::ssize(tokens), kContext * 0.75);
      dropped = prepared->context.dropped_messages();
      ++cuts;
    } else if (!before.empty()) {
      // But for the words that open the answer, all that was there before.
      const auto [differs, _] = std::ranges::mismatch(before, tokens);
      EXPECT_GT(differs - before.begin(), std::ssize(before) - 8);
    }
    before = tokens;
    Say(*request.mutable_conversation(), "assistant",
        fmt::format("{} is a number like {}.", turn, random() % 1000));
  }
  EXPECT_GT(dropped, 100u);
  EXPECT_GT(cuts, 3);
  EXPECT_LT(cuts, 30);
}

TEST_F(PreparedOverflowTest, WhatFitsIsLeftAlone) {
  v1::ChatRequest request;
  Say(*request.mutable_conversation(), "user", "Hello");
  request.mutable_stop()->set_max_tokens(20);
  const auto plain = Prepare(request);
  ASSERT_TRUE(plain.ok()) << plain.status();
  for (int mode = 1; mode <= 6; ++mode) {
    *request.mutable_overflow() = With(static_cast<v1::Overflow::Mode>(mode));
    const auto prepared = Prepare(request);
    ASSERT_TRUE(prepared.ok()) << prepared.status();
    EXPECT_EQ(TokensOf(*prepared), TokensOf(*plain));
    EXPECT_EQ(prepared->context.ByteSizeLong(), 0u);
    EXPECT_FALSE(prepared->fills_context);
  }
}

TEST_F(PreparedOverflowTest, TooLongEvenSoIsRefusedWithBothNumbers) {
  v1::ChatRequest request;
  Say(*request.mutable_conversation(), "user", "old");
  Say(*request.mutable_conversation(), "assistant", "answer");
  Say(*request.mutable_conversation(), "user", Words(600));
  *request.mutable_overflow() = With(v1::Overflow::MODE_DROP_OLDEST);
  request.mutable_stop()->set_max_tokens(100);
  const absl::Status refused = Prepare(request).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("300 fit beside the answer in the context of 400"));
  request.mutable_conversation()->mutable_messages(2)->set_content(std::string(2'000'000, 'x'));
  EXPECT_THAT(std::string(Prepare(request).status().message()),
              HasSubstr("overflow shortens what has at most"));
}

TEST_F(PreparedOverflowTest, TheOutputIsClamped) {
  v1::ChatRequest request;
  Say(*request.mutable_conversation(), "user", Words(100));
  request.mutable_stop()->set_max_tokens(5000);
  EXPECT_THAT(std::string(Prepare(request).status().message()), HasSubstr("stop.max_tokens: "));
  *request.mutable_overflow() = With(v1::Overflow::MODE_CLAMP_OUTPUT);
  auto prepared = Prepare(request);
  ASSERT_TRUE(prepared.ok()) << prepared.status();
  const auto room = static_cast<uint32_t>(kContext - prepared->request.token_ids_size());
  EXPECT_EQ(prepared->request.stop().max_tokens(), room);
  EXPECT_EQ(prepared->context.clamped_max_tokens(), room);
  EXPECT_TRUE(prepared->fills_context);
  // A limit that fits to the token is the client's own.
  request.mutable_stop()->set_max_tokens(room);
  prepared = Prepare(request);
  ASSERT_TRUE(prepared.ok()) << prepared.status();
  EXPECT_FALSE(prepared->fills_context);
  EXPECT_EQ(prepared->context.ByteSizeLong(), 0u);
  request.mutable_conversation()->mutable_messages(0)->set_content(Words(900));
  EXPECT_FALSE(Prepare(request).ok()) << "the prompt has to fit";
}

TEST_F(PreparedOverflowTest, APromptIsCutBetweenItsSpecialTokensAndItsEnd) {
  v1::GenerateRequest request;
  request.set_text(Words(900));
  EXPECT_THAT(std::string(preparer_.Prepare(request, tenant_).status().message()), HasSubstr("prompt: "));
  *request.mutable_overflow() = With(v1::Overflow::MODE_DROP_OLDEST);
  ASSERT_TRUE(preparer_.Check(request).ok()) << preparer_.Check(request);
  const text::Tokenizer& tokenizer = *(*registry_.Find(""))->tokenizer;
  const auto whole = tokenizer.Encode(request.text(), true);
  ASSERT_TRUE(whole.ok());
  auto prepared = preparer_.Prepare(request, tenant_);
  ASSERT_TRUE(prepared.ok()) << prepared.status();
  const std::vector<int32_t> tokens = TokensOf(*prepared);
  // A quarter of the context is the answer's; three quarters of the rest stay at least.
  EXPECT_LE(std::ssize(tokens), kContext * 3 / 4);
  EXPECT_GE(std::ssize(tokens), kContext * 9 / 16);
  EXPECT_EQ(prepared->context.removed_tokens(), whole->size() - tokens.size());
  EXPECT_EQ(tokens.front(), whole->front().value());
  EXPECT_TRUE(tokenizer.IsSpecial(whole->front())) << "the prompt begins as a text does";
  EXPECT_EQ(tokens.back(), whole->back().value());
  // The same prompt as tokens, and as it is counted.
  v1::GenerateRequest by_ids = request;
  for (const TokenId token : *whole) by_ids.mutable_token_ids()->add_ids(token.value());
  prepared = preparer_.Prepare(by_ids, tenant_);
  ASSERT_TRUE(prepared.ok()) << prepared.status();
  EXPECT_EQ(TokensOf(*prepared), tokens);
  const auto counted = preparer_.PromptOf(request, tenant_);
  ASSERT_TRUE(counted.ok()) << counted.status();
  ASSERT_EQ(counted->tokens.size(), tokens.size());
  EXPECT_EQ(counted->tokens[1].value(), tokens[1]);
  EXPECT_TRUE(counted->context.has_value());
  // Beside an answer that would leave no room: refused, or cut to what is left.
  request.mutable_stop()->set_max_tokens(kContext);
  EXPECT_THAT(std::string(preparer_.Prepare(request, tenant_).status().message()), HasSubstr("prompt: "));
  request.mutable_overflow()->set_clamp_output(true);
  prepared = preparer_.Prepare(request, tenant_);
  ASSERT_TRUE(prepared.ok()) << prepared.status();
  EXPECT_EQ(TokensOf(*prepared), tokens);
  EXPECT_EQ(prepared->request.stop().max_tokens(), kContext - tokens.size());
  EXPECT_EQ(prepared->context.clamped_max_tokens(), kContext - tokens.size());
  EXPECT_TRUE(prepared->fills_context);
  // A window of the client's own.
  request.mutable_overflow()->set_window_tokens(50);
  prepared = preparer_.Prepare(request, tenant_);
  ASSERT_TRUE(prepared.ok()) << prepared.status();
  EXPECT_LE(prepared->request.token_ids_size(), 50);
  // The output alone is cut where the prompt fits.
  request.set_text(Words(100));
  *request.mutable_overflow() = With(v1::Overflow::MODE_CLAMP_OUTPUT);
  prepared = preparer_.Prepare(request, tenant_);
  ASSERT_TRUE(prepared.ok()) << prepared.status();
  EXPECT_EQ(prepared->request.stop().max_tokens(), kContext - prepared->request.token_ids_size());
  // Places in a prompt that is cut are none.
  *request.mutable_overflow() = With(v1::Overflow::MODE_DROP_OLDEST);
  request.add_reusable()->set_end(16);
  EXPECT_THAT(std::string(preparer_.Check(request).message()), HasSubstr("reusable: "));
}

TEST_F(PreparedOverflowTest, ALongAnswerLeavesRoomForTheConversationIfItMayBeCut) {
  v1::ChatRequest request;
  for (int turn = 0; turn < 20; ++turn) {
    Say(*request.mutable_conversation(), "user", Words(20));
    Say(*request.mutable_conversation(), "assistant", Words(20));
  }
  Say(*request.mutable_conversation(), "user", "And now?");
  request.mutable_stop()->set_max_tokens(100'000);
  *request.mutable_overflow() = With(v1::Overflow::MODE_DROP_OLDEST);
  EXPECT_FALSE(Prepare(request).ok());
  request.mutable_overflow()->set_clamp_output(true);
  const auto prepared = Prepare(request);
  ASSERT_TRUE(prepared.ok()) << prepared.status();
  EXPECT_LE(prepared->request.token_ids_size(), kContext * 3 / 4);
  EXPECT_EQ(prepared->request.stop().max_tokens(), kContext - prepared->request.token_ids_size());
  EXPECT_GT(prepared->context.dropped_messages(), 0u);
  request.mutable_overflow()->set_window_tokens(150);
  EXPECT_LE(Prepare(request)->request.token_ids_size(), 150);
  // A window is no bound of what may not go.
  request.mutable_conversation()->mutable_messages(40)->set_content(Words(200));
  const auto wide = Prepare(request);
  ASSERT_TRUE(wide.ok()) << wide.status();
  EXPECT_GT(wide->request.token_ids_size(), 150);
  EXPECT_EQ(wide->context.dropped_messages(), 40u);
}

// Words that are spelled in bytes, behind a mark for the space that is not there.
TEST_F(PreparedOverflowTest, ATextMayHaveMoreTokensThanBytes) {
  const std::shared_ptr<const text::Tokenizer> tokenizer = text::LoadKind("llama2_like");
  const std::string content = "\xe2\x82\xac";
  ASSERT_GT(tokenizer->Encode(content, false)->size(), content.size());
  const ModelRegistry registry = Registry(tokenizer);
  const RequestPreparer preparer(registry, [] { return uint64_t{1}; });
  v1::ChatRequest request;
  *request.mutable_overflow() = With(v1::Overflow::MODE_DROP_OLDEST);
  for (int turn = 0; turn < 100; ++turn) Say(*request.mutable_conversation(), "user", content);
  const auto prepared = preparer.Prepare(request, tenant_);
  ASSERT_TRUE(prepared.ok()) << prepared.status();
  EXPECT_GT(prepared->context.dropped_messages(), 0u);
}

TEST_F(PreparedOverflowTest, AnyConversationIsShortenedToFitOrRefused) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    v1::ChatRequest request;
    *request.mutable_overflow() = With(static_cast<v1::Overflow::Mode>(3 + random() % 4));
    if (random() % 2 == 0) request.mutable_overflow()->set_keep(0.1F + static_cast<float>(random() % 9) / 10);
    if (random() % 2 == 0) request.mutable_stop()->set_max_tokens(1 + random() % 300);
    const char* const roles[] = {"user", "assistant", "tool", "user", "system"};
    const auto messages = static_cast<int>(1 + random() % 40);
    for (int i = 0; i < messages; ++i) {
      v1::Message message = Turn(roles[random() % std::size(roles)], Words(1 + random() % 60));
      if (message.role() == "assistant" && random() % 2 == 0)
        message.set_reasoning_content(Words(random() % 80));
      *request.mutable_conversation()->add_messages() = message;
    }
    const auto prepared = Prepare(request);
    if (!prepared.ok()) {
      EXPECT_EQ(prepared.status().code(), absl::StatusCode::kInvalidArgument) << prepared.status();
      continue;
    }
    EXPECT_LE(prepared->request.token_ids_size() + int64_t{prepared->request.stop().max_tokens()}, kContext);
    EXPECT_EQ(TokensOf(*prepared), TokensOf(*Prepare(request))) << "the same again";
  }
}

}  // namespace
}  // namespace baton::router
