#include "router/api/reusable_parts.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "common/base/check.h"
#include "router/api/request_preparer.h"
#include "tests/unit/router/shipped_model.h"

namespace baton::router {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

std::string Document(int number, int sentences = 8) {
  std::string text = fmt::format("Page {}. ", number);
  for (int i = 0; i < sentences; ++i)
    text += fmt::format("The fox number {} has {} friends. ", number, i * number);
  return text + "\n";
}

// With the shipped model's template and tokenizer.
class ReusablePartsTest : public testing::Test {
 protected:
  // A system prompt, and a question behind documents in this order.
  static v1::ChatRequest Ask(const std::vector<int>& order,
                             const std::string& question = "How many friends?") {
    v1::ChatRequest request;
    v1::Message& system = *request.mutable_conversation()->add_messages();
    system.set_role("system");
    system.set_content("You are a kind assistant.");
    v1::Message& user = *request.mutable_conversation()->add_messages();
    user.set_role("user");
    user.add_parts()->set_text("Read these pages.\n");
    for (const int number : order) {
      user.add_parts()->set_text(Document(number));
      user.mutable_parts()->rbegin()->set_reusable(true);
    }
    user.add_parts()->set_text(question);
    return request;
  }
  Prepared Prepare(const v1::ChatRequest& request) const {
    const absl::Status checked = preparer_.Check(request);
    BATON_CHECK(checked.ok()) << checked;
    auto prepared = preparer_.Prepare(request, tenant_);
    BATON_CHECK(prepared.ok()) << prepared.status();
    return *std::move(prepared);
  }
  // The text of each span.
  std::vector<std::string> Texts(const baton::fleet::v1::DecodeRequest& request) const {
    std::vector<std::string> texts;
    for (const kv::ReusableSpan& span : ReusableSpansOf(request)) {
      std::vector<TokenId> tokens;
      for (int64_t i = span.begin; i < span.end; ++i)
        tokens.emplace_back(request.token_ids(static_cast<int>(i)));
      texts.push_back(registry_.models().front()->tokenizer->Decode(tokens, true).value());
    }
    return texts;
  }

  const ModelRegistry registry_ = ShippedModel();
  const RequestPreparer preparer_{registry_, [] { return uint64_t{1}; }};
  const Tenant tenant_{.salt = kv::TenantSalt("tenant")};
};

// The same tokens in any order: or nothing would be found again.
TEST_F(ReusablePartsTest, ADocumentIsTheSameSpanWhereverItStands) {
  const auto one = Texts(Prepare(Ask({1, 2, 3})).request),
             other = Texts(Prepare(Ask({3, 1}, "Who?")).request);
  ASSERT_EQ(one.size(), 3u);
  ASSERT_EQ(other.size(), 2u);
  EXPECT_EQ(one[2], other[0]);
  EXPECT_EQ(one[0], other[1]);
  for (size_t i = 0; i < one.size(); ++i) {
    // But for what a token at its border shares with the neighbour.
    const std::string document = Document(static_cast<int>(i) + 1);
    EXPECT_THAT(document, HasSubstr(one[i].substr(2, one[i].size() - 4)));
    EXPECT_GT(one[i].size() + 4, document.size());
  }
}

TEST_F(ReusablePartsTest, TheMarksChangeNothingElse) {
  v1::ChatRequest plain = Ask({1, 2, 3});
  for (v1::ContentPart& part : *plain.mutable_conversation()->mutable_messages(1)->mutable_parts()) {
    part.clear_reusable();
  }
  baton::fleet::v1::DecodeRequest marked = Prepare(Ask({1, 2, 3})).request;
  EXPECT_EQ(marked.reusable_size(), 3);
  marked.clear_reusable();
  EXPECT_EQ(marked.SerializeAsString(), Prepare(plain).request.SerializeAsString());
}

TEST_F(ReusablePartsTest, WhatIsTooShortIsNotMarked) {
  v1::ChatRequest request = Ask({1, 2});
  request.mutable_conversation()->mutable_messages(1)->mutable_parts(1)->set_text("Page 1.\n");
  request.mutable_conversation()->mutable_messages(1)->mutable_parts(3)->set_reusable(true);
  EXPECT_EQ(Prepare(request).request.reusable_size(), 1);
}

TEST_F(ReusablePartsTest, AWholeMessageMayBeOne) {
  v1::ChatRequest request = Ask({1});
  request.mutable_conversation()->mutable_messages(1)->mutable_parts()->RemoveLast();
  request.mutable_conversation()->mutable_messages(1)->mutable_parts()->DeleteSubrange(0, 1);
  const auto spans = ReusableSpansOf(Prepare(request).request);
  ASSERT_EQ(spans.size(), 1u);
  EXPECT_GT(spans[0].begin, 0);
}

TEST_F(ReusablePartsTest, RefusesTooMany) {
  v1::ChatRequest request;
  v1::Message& user = *request.mutable_conversation()->add_messages();
  user.set_role("user");
  for (int i = 0; i <= kMaxReusableParts; ++i) {
    user.add_parts()->set_text("a ");
    user.mutable_parts()->rbegin()->set_reusable(true);
  }
  const absl::Status refused = preparer_.Check(request);
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("at most 64"));
}

TEST_F(ReusablePartsTest, SpansOfAGeneratedPromptAreCheckedAndKept) {
  v1::GenerateRequest request;
  for (int i = 0; i < 100; ++i) request.mutable_token_ids()->add_ids(10 + i);
  const auto with = [&](std::vector<std::pair<uint32_t, uint32_t>> spans) {
    request.clear_reusable();
    for (const auto& [begin, end] : spans) {
      v1::ReusableSpan& span = *request.add_reusable();
      span.set_begin(begin);
      span.set_end(end);
    }
    return preparer_.Prepare(request, tenant_);
  };
  EXPECT_EQ(ReusableSpansOf(with({{3, 40}, {40, 99}})->request),
            (std::vector<kv::ReusableSpan>{{3, 40}, {40, 99}}));
  for (const auto& bad : std::vector<std::vector<std::pair<uint32_t, uint32_t>>>{{{0, 31}},
                                                                                 {{0, 100}},
                                                                                 {{40, 80}, {0, 40}},
                                                                                 {{0, 50}, {49, 90}},
                                                                                 {{4000000000, 50}},
                                                                                 {{0, 4294967295}}}) {
    const auto refused = with(bad);
    EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(refused.status().message()), HasSubstr("reusable"));
  }
  EXPECT_EQ(with(std::vector<std::pair<uint32_t, uint32_t>>(300, {0, 32})).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace baton::router
