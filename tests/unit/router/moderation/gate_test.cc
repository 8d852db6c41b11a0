// The gate: what is held, when a verdict is asked for, and what it releases.
#include "router/moderation/gate.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

#include "router/moderation/text.h"

namespace baton::router::moderation {
namespace {

v1::Delta Token(const std::string& text) {
  v1::Delta delta;
  delta.set_text(text);
  delta.set_tokens(1);
  return delta;
}

void Add(Gate* gate, const std::string& text, int count = 1) {
  for (int i = 0; i < count; ++i) gate->Add(Token(text), text);
}

std::string TextsOf(const std::vector<v1::Delta>& deltas) {
  std::string text;
  for (const v1::Delta& delta : deltas) text += delta.text();
  return text;
}

TEST(GateTest, TheFirstWindowIsShortAndTheNextFillsWhileItIsJudged) {
  Gate gate(true, 4096);
  Add(&gate, "a", 15);
  EXPECT_FALSE(gate.Next().has_value());
  Add(&gate, "a");
  EXPECT_EQ(gate.Next(), std::string(16, 'a'));
  EXPECT_TRUE(gate.Take().empty());
  Add(&gate, "b", 63);
  EXPECT_FALSE(gate.Full());
  Add(&gate, "b");
  EXPECT_TRUE(gate.Full()) << "no more is to be read while the verdict is out";
  EXPECT_FALSE(gate.Next().has_value()) << "one verdict at a time";
  gate.Passed();
  EXPECT_FALSE(gate.Full());
  EXPECT_EQ(TextsOf(gate.Take()), std::string(16, 'a'));
  EXPECT_EQ(gate.Next(), std::string(16, 'a') + std::string(64, 'b')) << "the whole answer, for the cache";
  EXPECT_EQ(gate.held(), 64u);
}

TEST(GateTest, TheEndAsksForTheRest) {
  Gate gate(true, 4096);
  Add(&gate, "a", 3);
  EXPECT_FALSE(gate.Done());
  gate.End();
  EXPECT_EQ(gate.Next(), "aaa");
  gate.Passed();
  EXPECT_FALSE(gate.Done()) << "it is not taken yet";
  EXPECT_EQ(gate.Take().size(), 3u);
  EXPECT_TRUE(gate.Done());
}

TEST(GateTest, AnEmptyAnswerNeedsNoVerdict) {
  Gate gate(true, 4096);
  gate.End();
  EXPECT_FALSE(gate.Next().has_value());
  EXPECT_TRUE(gate.Done());
}

// The text of a token may come with the next delta, so its id stays until that is judged.
TEST(GateTest, AnIdWithoutTextWaitsForTheTextBehindIt) {
  Gate gate(true, 4096);
  Add(&gate, "a", 16);
  v1::Delta id;
  id.set_tokens(1);
  id.add_token_ids(7);
  gate.Add(id, "");
  ASSERT_TRUE(gate.Next().has_value());
  gate.Passed();
  EXPECT_EQ(gate.Take().size(), 16u);
  EXPECT_EQ(gate.held(), 1u);
  Add(&gate, "b");
  gate.End();
  ASSERT_TRUE(gate.Next().has_value());
  EXPECT_TRUE(gate.Take().empty());
  gate.Passed();
  EXPECT_EQ(gate.Take().size(), 2u);
}

// The last of several drafted tokens in one delta may end inside a character.
TEST(GateTest, AnIdWithAPartOfItsTextWaitsForTheRest) {
  Gate gate(true, 4096);
  Add(&gate, "a", 15);
  v1::Delta ids;
  ids.set_tokens(2);
  ids.add_token_ids(7);
  ids.add_token_ids(8);
  gate.Add(ids, "b", /*pending=*/true);
  ASSERT_EQ(gate.Next(), std::string(15, 'a') + "b");
  gate.Passed();
  EXPECT_EQ(gate.Take().size(), 15u);
  Add(&gate, "c");
  gate.End();
  ASSERT_TRUE(gate.Next().has_value());
  gate.Passed();
  EXPECT_EQ(gate.Take().size(), 2u);
  EXPECT_TRUE(gate.Done());
}

// So does how it was chosen, which names the token.
TEST(GateTest, ATraceNeverLeavesBeforeItsText) {
  Gate gate(true, 4096);
  Add(&gate, "a", 16);
  v1::Delta traced;
  traced.set_tokens(1);
  traced.add_sampling()->set_token_id(7);
  gate.Add(traced, "");
  ASSERT_TRUE(gate.Next().has_value());
  gate.Passed();
  EXPECT_EQ(gate.Take().size(), 16u);
  EXPECT_EQ(gate.held(), 1u);
}

TEST(GateTest, AWindowWithoutAnyTextIsNotHeld) {
  Gate gate(true, 4096);
  for (int i = 0; i < 200; ++i) {
    v1::Delta hidden;
    hidden.set_tokens(1);
    gate.Add(hidden, "");
    EXPECT_FALSE(gate.Next().has_value());
    EXPECT_EQ(gate.Take().size(), 1u);
  }
  EXPECT_FALSE(gate.Full());
}

TEST(GateTest, DeltasWithoutTextDoNotPileUpBehindAVerdict) {
  Gate gate(true, 4096);
  Add(&gate, "a", 16);
  ASSERT_TRUE(gate.Next().has_value());
  v1::Delta hidden;
  hidden.set_tokens(1);
  for (int i = 0; i < 64; ++i) {
    EXPECT_FALSE(gate.Full()) << i;
    gate.Add(hidden, "");
  }
  EXPECT_TRUE(gate.Full());
  gate.Passed();
  EXPECT_FALSE(gate.Full());
  EXPECT_EQ(gate.Take().size(), 16u + 64u);
  Add(&gate, "b", 64);
  EXPECT_TRUE(gate.Next().has_value());
}

TEST(GateTest, ALongAnswerIsJudgedInPiecesThatOverlap) {
  Gate gate(true, Gate::kLeastRoom);
  std::string all, released;
  for (int i = 0; i < 400; ++i) {
    const std::string word = "w" + std::to_string(i) + " ";
    all += word;
    Add(&gate, word);
    if (const auto text = gate.Next(); text.has_value()) {
      EXPECT_LE(text->size(), Gate::kLeastRoom);
      const size_t at = all.find(*text);
      ASSERT_NE(at, std::string::npos);
      EXPECT_LE(at, released.size() == 0 ? 0 : released.size() - 8) << "no overlap with what was judged";
      gate.Passed();
      released += TextsOf(gate.Take());
      EXPECT_LE(released.size(), at + text->size()) << "released beyond the verdict";
    }
  }
}

TEST(GateTest, OneHugeDeltaIsJudgedWholeBeforeItGoes) {
  Gate gate(true, Gate::kLeastRoom);
  const std::string huge(5000, 'x');
  Add(&gate, huge);
  size_t judged = 0;
  int verdicts = 0;
  while (gate.held() > 0) {
    ASSERT_LT(++verdicts, 100);
    const auto text = gate.Next();
    ASSERT_TRUE(text.has_value());
    EXPECT_TRUE(gate.Take().empty());
    judged += text->size();
    gate.Passed();
    gate.Take();
  }
  EXPECT_GE(judged, huge.size());
}

TEST(GateTest, WithoutHoldingItAsksSeldom) {
  Gate gate(false, 4096);
  for (int i = 0; i < 2048; ++i) {
    gate.AddText("a");
    EXPECT_FALSE(gate.Next().has_value());
    EXPECT_FALSE(gate.Full());
  }
  gate.AddText("a");
  EXPECT_TRUE(gate.Next().has_value());
  for (int i = 0; i < 10000; ++i) {
    gate.AddText("a");
    EXPECT_FALSE(gate.Full()) << "monitoring never stops the answer";
  }
}

// Whatever comes in whichever order: nothing leaves before its text is judged, all leaves in order,
// characters stay whole, and what is held is bounded.
TEST(GateTest, RandomAnswers) {
  for (uint32_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const auto draw = [&](int below) { return static_cast<int>(random() % static_cast<uint32_t>(below)); };
    const size_t room = Gate::kLeastRoom + static_cast<size_t>(draw(2000));
    Gate gate(true, room);
    std::string all, released;
    size_t judged = 0, sent = 0;
    std::optional<std::string> out;
    const auto settle = [&] {
      if (!out.has_value()) return;
      gate.Passed();
      const size_t at = all.rfind(*out);
      ASSERT_NE(at, std::string::npos);
      judged = std::max(judged, at + out->size());
      out.reset();
    };
    const int deltas = draw(400);
    for (int i = 0; i < deltas; ++i) {
      if (gate.Full()) settle();
      std::string text;
      for (int k = draw(4); k > 0; --k)
        text += draw(3) == 0     ? "\xC3\xA4"
                : draw(200) == 0 ? std::string(700, 'z')
                                 : std::to_string(draw(100000));
      v1::Delta delta = Token(text);
      delta.add_token_ids(i);
      all += text;
      gate.Add(delta, text);
      if (draw(3) == 0) settle();
      if (!out.has_value()) out = gate.Next();
      EXPECT_LE(out.value_or("").size(), room + 3);
      // No character is cut at either end.
      for (const std::string& cut : {out.value_or("a").substr(0, 1), std::string()}) {
        EXPECT_TRUE(cut.empty() || (static_cast<unsigned char>(cut[0]) & 0xC0) != 0x80);
      }
      for (const v1::Delta& one : gate.Take()) {
        EXPECT_EQ(one.token_ids(0), static_cast<int32_t>(sent++)) << "out of order";
        released += one.text();
      }
      EXPECT_LE(released.size(), judged);
      EXPECT_LE(gate.held(), 3u * Gate::kWindow);
    }
    gate.End();
    for (int i = 0; i < 10000 && !gate.Done(); ++i) {
      settle();
      out = gate.Next();
      for (const v1::Delta& one : gate.Take()) released += one.text();
    }
    EXPECT_TRUE(gate.Done());
    EXPECT_EQ(released, all);
  }
}

TEST(GateTest, TextOfADelta) {
  v1::Delta delta = Token("plain");
  EXPECT_EQ(TextOf(delta), "plain");
  delta.set_text("");
  v1::PartEvent* part = delta.add_parts();
  part->mutable_start()->set_kind(v1::PartStart::KIND_TOOL_CALL);
  part->mutable_start()->set_name("send_mail");
  delta.add_parts()->set_arguments_json("{\"to\":1}");
  delta.add_parts()->set_text("thought");
  EXPECT_EQ(TextOf(delta), "send_mail\n{\"to\":1}thought");
  EXPECT_EQ(Tail("a\xC3\xA4", 1), "");
  EXPECT_EQ(Tail("abc", 2), "bc");
  EXPECT_EQ(CharacterStart("a\xC3\xA4", 2), 1u);
}

}  // namespace
}  // namespace baton::router::moderation
