#include "cli/explain/explanation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace baton::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr Terminal kPlain = {};
constexpr Terminal kFull = {.colour = true, .utf8 = true, .width = 60};

TEST(ExplanationTest, APieceShowsWhatATerminalWouldNot) {
  constexpr Terminal utf8 = {.utf8 = true};
  EXPECT_EQ(ShowPiece(" a\n\t\"", utf8), R"(" a\n\t\"")");
  EXPECT_EQ(ShowPiece("'s", utf8), R"("'s")");
  EXPECT_EQ(ShowPiece("\x1b[2J", utf8), R"("\033[2J")") << "a command to the terminal";
  EXPECT_EQ(ShowPiece("\xC2\x9Bzap", utf8), R"("\xc2\x9bzap")") << "and so is this";
  for (const char* const mark : {"\u200e", "\u202e", "\u2028", "\u2066", "\u2069"}) {
    EXPECT_THAT(ShowPiece(mark, utf8), HasSubstr("\\xe2")) << "it would turn the line round";
  }
  EXPECT_EQ(ShowPiece("\u2014\u20ac", utf8), "\"\u2014\u20ac\"");
  EXPECT_EQ(ShowPiece("gr\xC3\xBC\xC3\x9F", utf8), "\"gr\xC3\xBC\xC3\x9F\"");
  EXPECT_EQ(ShowPiece("\xC3", utf8), R"("\xc3")") << "a part of a character";
  EXPECT_EQ(ShowPiece("\xC3\xBC", kPlain), R"("\xc3\xbc")");
}

TEST(ExplanationTest, ThePromptsTokensStandWithTheirIds) {
  const std::vector<PromptToken> tokens = {{1, "<s>"}, {20, "The"}, {300, " cat"}};
  EXPECT_EQ(RenderPrompt(tokens, 2, kPlain),
            "The prompt has 3 tokens. The KV of 2 was cached, that of 1 was computed.\n"
            "  cached    \"<s>\" 1  \"The\" 20\n"
            "  computed  \" cat\" 300\n");
  EXPECT_THAT(RenderPrompt(tokens, 0, kPlain), Not(HasSubstr("  cached ")));
  EXPECT_THAT(RenderPrompt(tokens, 99, kPlain), Not(HasSubstr("  computed ")));
  EXPECT_THAT(RenderPrompt(tokens, 0, kFull), HasSubstr("\x1b[")) << "in colour";
}

TEST(ExplanationTest, ManyTokensTakeManyLines) {
  const std::vector<PromptToken> tokens(40, {1234, "word"});
  const std::string text = RenderPrompt(tokens, 0, {.width = 60});
  size_t lines = 0;
  for (size_t at = 0, end; (end = text.find('\n', at)) != std::string::npos; at = end + 1, ++lines) {
    if (lines > 0) {
      EXPECT_LE(end - at, 60u) << text;
    }
  }
  EXPECT_GT(lines, 8u);
}

TEST(ExplanationTest, KvIsWhatTheLinksBlocksSay) {
  v1::Finished finished;
  finished.mutable_usage()->set_prompt_tokens(40);
  finished.mutable_usage()->set_cached_tokens(16);
  EXPECT_EQ(RenderKv(finished, kPlain), "") << "nothing came over a link";
  finished.mutable_relay()->set_shipped_blocks(2);
  finished.mutable_relay()->set_shipped_bytes(2 * 16 * 512);
  EXPECT_THAT(RenderKv(finished, kPlain), HasSubstr("24 tokens x 512 bytes = 12 KiB of KV written"));
}

v1::SamplingTrace DrawnTrace() {
  v1::SamplingTrace trace;
  trace.set_how(v1::SamplingTrace::HOW_DRAWN);
  trace.set_token_id(7);
  trace.set_vocabulary(128'000);
  trace.set_after_constraint(128'000);
  trace.set_after_temperature(128'000);
  trace.set_after_top_k(3);
  trace.set_after_top_p(2);
  trace.set_after_min_p(1);
  trace.set_uniform(0.25);
  const float drawn[] = {1, 0, 0, 0};
  for (int i = 0; i < 4; ++i) {
    v1::TokenTrace& token = *trace.add_likeliest();
    token.set_token_id(7 + i);
    token.set_bytes(" w" + std::to_string(i));
    token.set_logit(static_cast<float>(9 - i));
    token.set_adjusted_logit(static_cast<float>(8 - i));
    token.set_probability(0.5f);
    token.set_tempered_probability(0.25f);
    token.set_drawn_probability(drawn[i]);
  }
  return trace;
}

TEST(ExplanationTest, ATraceSaysWhichFilterDroppedWhat) {
  const std::string text = RenderTrace(3, DrawnTrace(), kPlain);
  EXPECT_THAT(text, HasSubstr("Token 3: \" w0\" 7, drawn with the random number 0.250000\n"));
  EXPECT_THAT(text, HasSubstr("  vocabulary    128,000 left\n  temperature   128,000 left\n"));
  EXPECT_THAT(text, HasSubstr("  top-k               3 left  127,997 dropped\n"));
  EXPECT_THAT(text, HasSubstr("  top-p               2 left  1 dropped\n"));
  EXPECT_THAT(text,
              HasSubstr("  > \" w0\"                  7    9.000     8.000   50.00%    25.00%  100.00%  #"));
  EXPECT_THAT(text, testing::ContainsRegex("\" w1\" .* -  min-p\n"));
  EXPECT_THAT(text, testing::ContainsRegex("\" w2\" .* -  top-p\n"));
  EXPECT_THAT(text, testing::ContainsRegex("\" w3\" .* -  top-k\n"));
  EXPECT_THAT(text, Not(HasSubstr("constraint"))) << "there is none";
}

TEST(ExplanationTest, GreedyAndForcedTokensHaveNoNumber) {
  v1::SamplingTrace trace = DrawnTrace();
  trace.clear_uniform();
  trace.set_how(v1::SamplingTrace::HOW_GREEDY);
  trace.set_after_temperature(1);
  trace.set_after_top_k(1);
  trace.set_after_top_p(1);
  EXPECT_THAT(RenderTrace(1, trace, kPlain), HasSubstr("Token 1: \" w0\" 7, the likeliest\n"));
  EXPECT_THAT(RenderTrace(1, trace, kPlain), testing::ContainsRegex("\" w1\" .* -  temperature\n"));
  trace.set_how(v1::SamplingTrace::HOW_FORCED);
  trace.set_after_constraint(100);
  EXPECT_THAT(RenderTrace(1, trace, kPlain), HasSubstr("written for the model\n"));
  EXPECT_THAT(RenderTrace(1, trace, kPlain), HasSubstr("  constraint        100 left  127,900 dropped\n"));
}

}  // namespace
}  // namespace baton::cli
