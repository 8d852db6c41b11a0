// Chunk reuse with real processes: documents in any order, warm and cold, with a prefill worker killed, have
// the same answers; exact requests notice nothing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "nlohmann/json.hpp"
#include "tests/e2e/fleet.h"
#include "tests/patience.h"

namespace baton::e2e {
namespace {

using testing::HasSubstr;

// The documents of one question of the shipped test set, in another order.
class Documents {
 public:
  Documents() {
    std::ifstream file(std::string(kModel) + "/eval/documents.jsonl");
    std::string line;
    std::getline(file, line);
    const auto question = nlohmann::json::parse(line);
    for (const auto& message : question["messages"]) {
      if (message.contains("parts")) documents_.push_back(message["parts"][0]["text"]);
    }
  }
  size_t size() const { return documents_.size(); }

  v1::ChatRequest Ask(const std::vector<size_t>& order, bool marked = true) const {
    v1::ChatRequest request;
    v1::Conversation& conversation = *request.mutable_conversation();
    v1::Message& system = *conversation.add_messages();
    system.set_role("system");
    system.set_content("You are a helpful assistant.");
    for (const size_t document : order) {
      v1::Message& user = *conversation.add_messages();
      user.set_role("user");
      v1::ContentPart& part = *user.add_parts();
      part.set_text(documents_[document]);
      part.set_reusable(marked);
      v1::Message& assistant = *conversation.add_messages();
      assistant.set_role("assistant");
      assistant.set_content("I have read it.");
    }
    v1::Message& user = *conversation.add_messages();
    user.set_role("user");
    user.set_content("What is my name?");
    request.mutable_sampling()->set_temperature(0);
    request.mutable_stop()->set_max_tokens(24);
    request.mutable_output()->set_token_ids(true);
    request.mutable_output()->set_logits_digest(true);
    return request;
  }

 private:
  std::vector<std::string> documents_;
};

FleetOptions With(const std::string& how, int prefill = 2) {
  FleetOptions options{.prefill = prefill};
  if (!how.empty()) options.prefill_flags = options.decode_flags = {"--chunk-reuse", how};
  // A prompt and its documents, and little more.
  options.kv_memory = "16MiB";
  return options;
}

const std::vector<size_t> kOrder = {0, 1, 2, 3, 4, 5, 6, 7}, kOther = {5, 2, 7, 0, 3, 6, 1, 4};

void ExpectSame(const Answer& a, const Answer& b) {
  ASSERT_TRUE(a.status.ok()) << a.status;
  ASSERT_TRUE(b.status.ok()) << b.status;
  EXPECT_EQ(a.tokens, b.tokens);
  EXPECT_EQ(a.digests, b.digests);
  EXPECT_EQ(a.end().usage().approximate_reused_tokens(), b.end().usage().approximate_reused_tokens());
}

TEST(ReuseTest, AnswersDoNotDependOnWhatIsCachedOrOnWhoDies) {
  const Documents documents;
  ASSERT_EQ(documents.size(), 8u);
  Answer first, other;
  {
    Fleet cold(With("unchecked"));
    first = cold.Chat(documents.Ask(kOrder));
    cold.ExpectNothingHeld();
  }
  {
    Fleet cold(With("unchecked"));
    other = cold.Chat(documents.Ask(kOther));
  }
  ASSERT_TRUE(first.status.ok()) << first.status;
  const v1::Usage& usage = first.end().usage();
  EXPECT_GT(usage.approximate_reused_tokens() * 10, usage.prompt_tokens() * 7) << "most of it is documents";
  EXPECT_NE(first.digests, other.digests);

  Fleet fleet(With("unchecked"));
  ExpectSame(fleet.Chat(documents.Ask(kOther)), other);
  const Answer warm = fleet.Chat(documents.Ask(kOrder));
  ExpectSame(warm, first);
  // Unless the other prefill worker has it: then it has computed it, too.
  std::printf("warm: %u of %u tokens found by the prefill worker\n",
              warm.end().usage().prefill_cached_tokens(), warm.end().usage().prompt_tokens());
  for (int killed : {0, 1}) {
    fleet.RestartPrefill(killed, SIGKILL);
    ExpectSame(fleet.Chat(documents.Ask(killed == 0 ? kOther : kOrder)), killed == 0 ? other : first);
    fleet.AwaitWorkers(2, 1);
  }
  ExpectSame(fleet.Chat(documents.Ask(kOrder)), first);
  fleet.ExpectNothingHeld();
}

TEST(ReuseTest, ExactRequestsAreUnaffected) {
  const Documents documents;
  Answer exact;
  {
    Fleet plain(With("", 1));
    exact = plain.Chat(documents.Ask(kOrder, /*marked=*/false));
    ASSERT_TRUE(exact.status.ok()) << exact.status;
  }
  Fleet fleet(With("unchecked", 1));
  const Answer approximate = fleet.Chat(documents.Ask(kOrder));
  ASSERT_TRUE(approximate.status.ok()) << approximate.status;
  EXPECT_NE(approximate.digests, exact.digests) << "or this shows nothing";
  for (int round = 0; round < 2; ++round) {
    ExpectSame(fleet.Chat(documents.Ask(kOrder, /*marked=*/false)), exact);
    ExpectSame(fleet.Chat(documents.Ask(kOrder)), approximate);
  }
}

TEST(ReuseTest, FoundDocumentsAreNotComputedAgain) {
  const Documents documents;
  Fleet fleet(With("unchecked", 1));
  const Answer cold = fleet.Chat(documents.Ask(kOrder));
  ASSERT_TRUE(cold.status.ok()) << cold.status;
  const Answer warm = fleet.Chat(documents.Ask(kOther));
  ASSERT_TRUE(warm.status.ok()) << warm.status;
  const v1::Usage& usage = warm.end().usage();
  EXPECT_EQ(usage.prefill_cached_tokens(), usage.approximate_reused_tokens());
  EXPECT_EQ(usage.cached_tokens() + usage.plain_tokens(), usage.prompt_tokens());
  const Answer full = fleet.Chat(documents.Ask(kOther, /*marked=*/false));
  for (const auto& [what, answer] : {std::pair("cold", &cold), {"warm", &warm}, {"full prefill", &full}}) {
    ASSERT_TRUE(answer->status.ok()) << answer->status;
    std::printf("%s: %u of %u tokens found, prefill %.3f s, TTFT %.3f s\n", what,
                answer->end().usage().cached_tokens(), answer->end().usage().prompt_tokens(),
                answer->end().timing().prefill_seconds(), answer->end().timing().ttft_seconds());
  }
}

// A worker that was killed finds the documents on its disk, and the answer is the same.
TEST(ReuseTest, DocumentsComeBackFromTheDisk) {
  const Documents documents;
  const std::string folder = testing::TempDir() + "/reuse-disk-" + std::to_string(getpid());
  std::filesystem::remove_all(folder);
  Answer cold;
  {
    Fleet fleet(With("unchecked", 1));
    cold = fleet.Chat(documents.Ask(kOther));
  }
  FleetOptions options = With("unchecked", 1);
  for (const char* flag :
       {"--kv-disk", folder.c_str(), "--kv-disk-size", "256MiB", "--peer-fetch", "always"}) {
    options.prefill_flags.emplace_back(flag);
  }
  {
    Fleet fleet(options);
    const Answer first = fleet.Chat(documents.Ask(kOrder));
    ASSERT_TRUE(first.status.ok()) << first.status;
    // The prompt's full blocks, and those of its documents: each has the prompt's first token and 16 of its
    // own beside what lands.
    const v1::Usage& usage = first.end().usage();
    const uint32_t blocks = usage.prompt_tokens() / 16 + (usage.approximate_reused_tokens() + 8 * 17) / 16;
    const auto written = [&] { return Metric(fleet.prefill(), "baton_disk_blocks"); };
    ASSERT_TRUE(Await(
        [&] { return written() >= blocks; },
        [&] { return std::to_string(blocks) + " blocks on the disk, not " + std::to_string(written()); }));
    fleet.RestartPrefill(0, SIGKILL);
    fleet.AwaitWorkers(1, 1);
    const Answer warm = fleet.Chat(documents.Ask(kOther));
    ExpectSame(warm, cold);
    EXPECT_EQ(warm.end().usage().prefill_cached_tokens(), warm.end().usage().approximate_reused_tokens());
  }
  std::filesystem::remove_all(folder);
}

TEST(ReuseTest, IsRefusedUnlessAllWorkersTakeIt) {
  const Documents documents;
  Fleet fleet(With("", 1));
  const Answer refused = fleet.Chat(documents.Ask(kOrder));
  EXPECT_EQ(refused.status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(refused.status.message()), HasSubstr("--chunk-reuse"));
  grpc::ClientContext context;
  v1::ListModelsResponse models;
  ASSERT_TRUE(fleet.stub().ListModels(&context, {}, &models).ok());
  EXPECT_FALSE(models.models(0).chunk_reuse());
}

}  // namespace
}  // namespace baton::e2e
