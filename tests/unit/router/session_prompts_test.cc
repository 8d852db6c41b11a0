#include "router/api/session_prompts.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace baton::router {
namespace {

const kv::TenantSalt kSalt("tenant");

SessionPrompt PromptOn(Incarnation worker, std::vector<uint64_t> blocks, PromptSections sections = {}) {
  return {.sections = sections, .blocks = std::move(blocks), .worker = worker};
}

// "evicted 32", or "" if nothing is missed.
std::string Miss(const SessionPrompt* last, const SessionPrompt& prompt, int64_t cached,
                 const LastWorker& last_worker = {.here = true, .blocks = 0}) {
  // Its last block is not full, so that all full ones could be found.
  const auto tokens = static_cast<int64_t>(prompt.blocks.size()) * kBlockTokens + 3;
  const auto miss = MissOf(last, prompt, tokens, cached, last_worker);
  return miss.has_value() ? MissReasonName(miss->reason()) + " " + std::to_string(miss->tokens()) : "";
}

constexpr Incarnation kA(1), kB(2);

TEST(MissOfTest, WhatIsFoundIsNoMiss) {
  const SessionPrompt last = PromptOn(kA, {1, 2, 3}), next = PromptOn(kA, {1, 2, 3, 4, 5});
  EXPECT_EQ(Miss(&last, next, 48), "");
  EXPECT_EQ(Miss(&last, next, 80), "") << "the answer too";
  EXPECT_EQ(Miss(&last, PromptOn(kA, {1, 2}), 32), "") << "a shorter one";
  EXPECT_EQ(Miss(nullptr, next, 80), "");
  EXPECT_EQ(Miss(nullptr, PromptOn(kA, {}), 0), "") << "less than a block";
  // The last block of a prompt that ends with it is computed in any case.
  EXPECT_FALSE(MissOf(&last, PromptOn(kA, {1, 2, 3}), 48, 32, {.here = true}).has_value());
}

TEST(MissOfTest, TheFirstOfASession) { EXPECT_EQ(Miss(nullptr, PromptOn(kA, {1, 2, 3}), 16), "first 32"); }

TEST(MissOfTest, WhatBecameOfTheBlocks) {
  const SessionPrompt last = PromptOn(kA, {1, 2, 3});
  const SessionPrompt here = PromptOn(kA, {1, 2, 3, 4}), there = PromptOn(kB, {1, 2, 3, 4});
  EXPECT_EQ(Miss(&last, here, 16, {.here = true, .blocks = 3}), "evicted 32");
  EXPECT_EQ(Miss(&last, there, 0, {.here = false}), "worker_lost 48");
  EXPECT_EQ(Miss(&last, there, 0, {.here = true, .blocks = 3}), "placement 48");
  EXPECT_EQ(Miss(&last, there, 16, {.here = true, .blocks = 1}), "evicted 32");
}

TEST(MissOfTest, TheSectionThatChanged) {
  const PromptSections plain = {.model = 1, .tools = 2, .system = 3};
  const SessionPrompt last = PromptOn(kA, {1, 2, 3, 4}, plain);
  const auto changed = [&](PromptSections sections, std::vector<uint64_t> blocks, int64_t cached) {
    return Miss(&last, PromptOn(kA, std::move(blocks), sections), cached);
  };
  EXPECT_EQ(changed({.model = 9, .tools = 9, .system = 3}, {7, 8, 9, 10}, 0), "model 64");
  EXPECT_EQ(changed({.model = 1, .tools = 9, .system = 9}, {1, 8, 9, 10, 11}, 16), "tools 48");
  EXPECT_EQ(changed({.model = 1, .tools = 2, .system = 9}, {7, 8, 9, 10}, 0), "system 64");
  EXPECT_EQ(changed(plain, {1, 2, 9, 10}, 32), "messages 32");
  EXPECT_EQ(changed(plain, {1, 2, 3, 10}, 16), "evicted 32") << "more was lost than changed";
  EXPECT_EQ(changed(plain, {1, 9}, 16), "messages 16") << "no more than it could have found";
}

v1::Conversation Talk(const std::string& system, const std::string& tool, const std::string& said) {
  v1::Conversation conversation;
  if (!tool.empty()) conversation.add_tools()->set_name(tool);
  v1::Message& first = *conversation.add_messages();
  first.set_role("system");
  first.set_content(system);
  v1::Message& user = *conversation.add_messages();
  user.set_role("user");
  user.set_content(said);
  return conversation;
}

TEST(SectionsOfTest, EachSectionHasItsOwn) {
  const v1::Conversation plain = Talk("be brief", "find", "hello");
  const PromptSections sections = SectionsOf("m", &plain, kSalt);
  const auto differs = [&](const v1::Conversation& other, const char* model = "m") {
    const PromptSections now = SectionsOf(model, &other, kSalt);
    return std::string(now.model != sections.model ? "model " : "") +
           (now.tools != sections.tools ? "tools " : "") + (now.system != sections.system ? "system " : "");
  };
  EXPECT_EQ(differs(plain), "");
  EXPECT_EQ(differs(Talk("be brief", "find", "bye")), "");
  EXPECT_EQ(differs(Talk("be long", "find", "hello")), "system ");
  EXPECT_EQ(differs(Talk("be brief", "seek", "hello")), "tools ");
  EXPECT_EQ(differs(plain, "n"), "model ");
  v1::Conversation arguments = plain;
  (*arguments.mutable_template_arguments()->mutable_fields())["date"].set_string_value("today");
  EXPECT_EQ(differs(arguments), "tools ");
  v1::Conversation marked = plain;
  v1::Message& system = *marked.mutable_messages(0);
  system.clear_content();
  system.add_parts()->set_text("be ");
  system.add_parts()->set_text("brief");
  system.mutable_parts(1)->mutable_cache();
  marked.mutable_tools_cache();
  EXPECT_EQ(differs(marked), "") << "marks are no text";
  const PromptSections other = SectionsOf("m", &plain, kv::TenantSalt("other"));
  EXPECT_NE(other.system, sections.system);
  EXPECT_NE(other.tools, sections.tools);
  EXPECT_NE(SessionKey("s", kSalt), SessionKey("s", kv::TenantSalt("other")));
}

TEST(SessionPromptsTest, ForgetsTheLeastUsedFirst) {
  SessionPrompts sessions({.sessions = 3, .bytes = 1 << 20});
  const auto key = [](int i) { return SessionKey(std::to_string(i), kSalt); };
  for (int i = 0; i < 3; ++i) sessions.Remember(key(i), PromptOn(kA, {static_cast<uint64_t>(i)}));
  ASSERT_NE(sessions.Find(key(0)), nullptr);
  sessions.Remember(key(3), PromptOn(kB, {3}));
  EXPECT_EQ(sessions.size(), 3u);
  EXPECT_EQ(sessions.Find(key(1)), nullptr);
  ASSERT_NE(sessions.Find(key(0)), nullptr);
  EXPECT_EQ(sessions.Find(key(0))->blocks, std::vector<uint64_t>{0});
  const auto held = sessions.Find(key(3));
  sessions.Remember(key(3), PromptOn(kA, {5}));
  EXPECT_EQ(sessions.size(), 3u);
  EXPECT_EQ(held->worker, kB) << "who has it keeps it";
  EXPECT_EQ(sessions.Find(key(3))->worker, kA);
}

TEST(SessionPromptsTest, BytesAreBounded) {
  SessionPrompts sessions({.sessions = 1000, .bytes = 10'000});
  for (int i = 0; i < 100; ++i) {
    sessions.Remember(SessionKey(std::to_string(i), kSalt), PromptOn(kA, std::vector<uint64_t>(100)));
    EXPECT_LE(sessions.bytes(), 10'000u);
  }
  EXPECT_GT(sessions.size(), 3u);
  sessions.Remember(SessionKey("huge", kSalt), PromptOn(kA, std::vector<uint64_t>(10'000)));
  EXPECT_EQ(sessions.size(), 0u);
  EXPECT_EQ(sessions.bytes(), 0u);
}

}  // namespace
}  // namespace baton::router
