// Meaning: the shipped model recalls facts that stood up to 1,500 tokens earlier, through the relay. It can
// only do so if the KV that travelled is the KV that was computed.
#include <gtest/gtest.h>

#include <cctype>
#include <fstream>
#include <map>

#include "nlohmann/json.hpp"
#include "tests/e2e/fleet.h"

namespace baton::e2e {
namespace {

std::string Lower(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

// True if `answer` says `value` as words of their own: 70 is not in 170.
bool Says(const std::string& answer, const std::string& value) {
  const std::string text = Lower(answer), word = Lower(value);
  const auto part = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; };
  for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) {
    const size_t after = at + word.size();
    if ((at == 0 || !part(text[at - 1])) && (after == text.size() || !part(text[after]))) return true;
  }
  return false;
}

TEST(RecallTest, NineOfTenHeldOutFactsComeBackAtEveryDistance) {
  // This policy hands every long prompt off.
  Fleet fleet({.prefill_flags = {"--chunk-tokens", "256", "--token-budget", "256"},
               .router_flags = {"--policy", "least_loaded"}});
  std::ifstream file(std::string(kModel) + "/eval/recall.jsonl");
  std::vector<nlohmann::json> prompts;
  for (std::string line; std::getline(file, line);) prompts.push_back(nlohmann::json::parse(line));
  ASSERT_EQ(prompts.size(), 200u);
  std::map<int, std::pair<int, int>> by_distance;
  int right = 0, asked = 0, shipped = 0;
  // Spread over the file when fewer than all are asked.
  for (size_t i = 0; i < prompts.size(); i += prompts.size() / BATON_RECALL_PROMPTS) {
    const nlohmann::json& prompt = prompts[i];
    v1::ChatRequest request;
    for (const auto& message : prompt["messages"]) {
      v1::Message& added = *request.mutable_conversation()->add_messages();
      added.set_role(message["role"]);
      added.set_content(message["content"]);
    }
    request.mutable_sampling()->set_temperature(0);
    request.mutable_sampling()->set_repetition_penalty(1);
    request.mutable_stop()->set_max_tokens(32);
    const Answer answer = fleet.Chat(request);
    ASSERT_TRUE(answer.status.ok()) << answer.status;
    ++asked;
    shipped += answer.end().relay().shipped_blocks() > 0;
    auto& [hits, total] = by_distance[prompt["distance"]];
    ++total;
    if (Says(answer.text, prompt["expected"])) {
      ++hits;
      ++right;
    } else {
      std::printf("%s: expected \"%s\", got \"%s\"\n", prompt["id"].get<std::string>().c_str(),
                  prompt["expected"].get<std::string>().c_str(), answer.text.c_str());
    }
  }
  for (const auto& [distance, counts] : by_distance) {
    std::printf("recall at %d tokens: %d of %d\n", distance, counts.first, counts.second);
  }
  std::printf("recall: %d of %d, %d of them over shipped KV\n", right, asked, shipped);
  EXPECT_GE(right * 10, asked * 9);
  EXPECT_GE(shipped * 2, asked);
  fleet.ExpectNothingHeld();
}

}  // namespace
}  // namespace baton::e2e
