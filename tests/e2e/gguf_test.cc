// A GGUF file behind the processes that serve folders: router and workers read all of the model from it.
#include <gtest/gtest.h>

#include <string>

#include "tests/e2e/solo_answers.h"

namespace baton::e2e {
namespace {

constexpr char kFile[] = BATON_SOURCE_DIR "/tests/golden/gguf/data/mixed.gguf";

TEST(GgufTest, AFileIsServedAsAFolderIs) {
  // A policy that always takes a prefill worker.
  Fleet fleet({.router_flags = {"--policy", "round_robin"}, .model = kFile});
  v1::TokenizeRequest text;
  text.mutable_generate()->set_text("AB! AB! ABA?");
  v1::TokenizeResponse tokens;
  grpc::ClientContext context;
  const grpc::Status status = fleet.stub().Tokenize(&context, text, &tokens);
  ASSERT_TRUE(status.ok()) << status.error_message();
  std::vector<int32_t> prompt;
  while (prompt.size() < 40) {
    prompt.insert(prompt.end(), tokens.token_ids().begin(), tokens.token_ids().end());
  }
  const Answer answer = fleet.Generate(Request(prompt, 20));
  ASSERT_TRUE(answer.status.ok()) << answer.status;
  EXPECT_EQ(answer.started.model(), "mixed.gguf");
  EXPECT_GT(answer.end().relay().shipped_blocks(), 0u);
  EXPECT_EQ(answer.digests, Alone(*OneEngine(kFile), prompt, 20).logits_digests);
  fleet.ExpectNothingHeld();
}

}  // namespace
}  // namespace baton::e2e
