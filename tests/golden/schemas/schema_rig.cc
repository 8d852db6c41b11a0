#include "tests/golden/schemas/schema_rig.h"

#include <gtest/gtest.h>

#include <vector>

#include "common/base/status.h"
#include "text/output/constraint.h"

namespace baton::output {

absl::StatusOr<text::GrammarMatcher> SchemaRig::Compile(const std::string& schema) const {
  BATON_ASSIGN_OR_RETURN(const std::string grammar, SchemaGrammar(schema));
  return vocabulary_->Compile(grammar);
}

bool SchemaRig::Takes(text::GrammarMatcher matcher, const std::string& text) {
  const auto tokens = tokenizer_->Encode(text, false);
  for (const TokenId token : *tokens) {
    if (!matcher.Push(token).ok()) return false;
  }
  return matcher.Mask(mask_).value_or(false);
}

std::string SchemaRig::Walk(text::GrammarMatcher matcher, std::mt19937_64& random) {
  std::string text;
  for (int steps = 0; steps < 250; ++steps) {
    const bool ends = matcher.Mask(mask_).value();
    std::vector<TokenId> allowed, closing;
    for (int32_t id = 0; id < tokenizer_->vocabulary(); ++id) {
      if (!text::Allows(mask_, TokenId(id))) continue;
      allowed.emplace_back(id);
      const std::string_view bytes = tokenizer_->TokenBytes(TokenId(id));
      if (!bytes.empty() && std::string_view("\"}]").find(bytes[0]) != std::string_view::npos) {
        closing.emplace_back(id);
      }
    }
    if (ends && (allowed.empty() || random() % 3 == 0)) return text;
    const auto& from = !closing.empty() && random() % 2 == 0 ? closing : allowed;
    if (from.empty()) {
      ADD_FAILURE() << "neither a token nor the end behind " << text;
      return "";
    }
    const TokenId token = from[random() % from.size()];
    text += tokenizer_->TokenBytes(token);
    EXPECT_TRUE(matcher.Push(token).ok());
  }
  return "";
}

}  // namespace baton::output
