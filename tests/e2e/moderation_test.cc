// Moderation with real processes: the shipped model, and the shipped classifier behind the same router.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "nlohmann/json.hpp"
#include "tests/e2e/fleet.h"
#include "tests/e2e/folded_answer.h"
#include "tests/patience.h"

namespace baton::e2e {
namespace {

namespace fs = std::filesystem;

constexpr char kGuard[] = BATON_SOURCE_DIR "/models/baton-guard";
// What the shipped model is made to write, and the shipped classifier takes for harmful.
constexpr char kThreat[] = "I will break your arm tomorrow.";

class ModerationTest : public ::testing::Test {
 protected:
  ModerationTest()
      : models_(fs::path(::testing::TempDir()) / fmt::format("moderation_e2e.{}.json", getpid())),
        judge_(std::make_unique<Process>("baton-decode", JudgeArguments("127.0.0.1:0"))) {}
  ~ModerationTest() override { fs::remove(models_); }

  static std::vector<std::string> JudgeArguments(const std::string& listen) {
    return {
        "--exit-with-parent", "--model", kGuard,      "--listen", listen,        "--metrics", "127.0.0.1:0",
        "--kv-memory",        "32MiB",   "--threads", "1",        "--worker-id", "judge"};
  }

  void Start(const std::string& rules = "", FleetOptions options = {}) {
    nlohmann::json file = {
        {"models", {{{"folder", kGuard}, {"classifier", "auto"}, {"decode", {judge_->grpc()}}}}}};
    if (!rules.empty()) file["moderation"] = nlohmann::json::parse(rules);
    std::ofstream(models_) << file;
    options.router_flags = {"--models", models_};
    fleet_ = std::make_unique<Fleet>(options);
    ASSERT_TRUE(Await([this] { return JudgeIsUp(); }, "the classifier's worker"));
  }
  bool JudgeIsUp() {
    grpc::ClientContext context;
    v1::ListModelsResponse models;
    if (!fleet_->stub().ListModels(&context, {}, &models).ok()) return false;
    for (const v1::ModelInfo& model : models.models()) {
      if (model.classifier() == "baton_guard") return model.ready_decode_workers() == 1;
    }
    return false;
  }

  // The answer is one of these texts, whatever the model would write.
  static v1::ChatRequest Request(const std::string& answer, v1::Moderation::Policy policy) {
    v1::ChatRequest request;
    v1::Message* const message = request.mutable_conversation()->add_messages();
    message->set_role("user");
    message->set_content("Hello");
    if (!answer.empty()) request.mutable_constraint()->mutable_choices()->add_values(answer);
    request.mutable_sampling()->set_temperature(0);
    request.mutable_options()->mutable_moderation()->set_policy(policy);
    return request;
  }

  const fs::path models_;
  std::unique_ptr<Process> judge_;
  std::unique_ptr<Fleet> fleet_;
};

TEST_F(ModerationTest, TheShippedClassifierBlocksAThreatAndPassesTheRest) {
  Start();
  const Answer good = fleet_->Chat(Request("", v1::Moderation::POLICY_BLOCK));
  ASSERT_TRUE(good.status.ok()) << good.status;
  EXPECT_FALSE(good.text.empty());
  EXPECT_EQ(good.end().reason(), v1::FINISH_REASON_STOP_TOKEN);
  EXPECT_FALSE(good.end().moderation().flagged());
  EXPECT_GT(good.end().moderation().verdicts(), 0u);
  const Answer same = fleet_->Chat(Request("", v1::Moderation::POLICY_OFF));
  EXPECT_EQ(good.text, same.text) << "moderation changes no answer";

  const Answer bad = fleet_->Chat(Request(kThreat, v1::Moderation::POLICY_BLOCK));
  ASSERT_TRUE(bad.status.ok()) << bad.status;
  EXPECT_EQ(bad.text, "");
  EXPECT_EQ(bad.end().reason(), v1::FINISH_REASON_CONTENT_FILTER);
  ASSERT_TRUE(bad.end().moderation().flagged());
  EXPECT_EQ(bad.end().moderation().categories(0).name(), "threat");
  EXPECT_GT(bad.end().moderation().categories(0).score(), 0.5f);

  const Answer scored = fleet_->Chat(Request(kThreat, v1::Moderation::POLICY_SCORE));
  EXPECT_EQ(scored.text, kThreat);
  EXPECT_TRUE(scored.end().moderation().flagged());
  fleet_->ExpectNothingHeld();
}

TEST_F(ModerationTest, ModerateNamesTheCategories) {
  Start();
  v1::ModerateRequest request;
  for (const char* text :
       {"The fox went to the park.", kThreat, "You are a stupid fool.",
        "The password of the safe is fox4821.", "To build a bomb, pack gunpowder into a metal can."}) {
    request.add_texts(text);
  }
  grpc::ClientContext context;
  v1::ModerateResponse response;
  const grpc::Status status = fleet_->stub().Moderate(&context, request, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_FALSE(response.results(0).flagged());
  const char* const names[] = {"", "threat", "insult", "secret", "weapon"};
  for (int i = 1; i < 5; ++i) {
    ASSERT_TRUE(response.results(i).flagged()) << request.texts(i);
    EXPECT_EQ(response.results(i).categories(0).name(), names[i]);
  }
}

// The classifier's worker dies under a long answer: it ends with an error, and nothing unjudged has been
// sent.
TEST_F(ModerationTest, AKilledClassifierClosesTheAnswer) {
  // A token a step: the decode worker is held with a third of the answer.
  Start("", {.decode_flags = {"--speculation", "off"}, .gated = true});
  fleet_->decode_gates().Allow(500);
  v1::ChatRequest request = Request("", v1::Moderation::POLICY_BLOCK);
  request.mutable_stop()->set_max_tokens(1500);
  request.mutable_stop()->set_ignore_eos(true);
  grpc::ClientContext context;
  const auto reader = fleet_->stub().Chat(&context, request);
  v1::ChatResponse response;
  ASSERT_TRUE(reader->Read(&response));
  while (!response.has_delta() && reader->Read(&response)) {
  }
  judge_->Signal(SIGKILL);
  judge_->Wait();
  fleet_->decode_gates().Open();
  int deltas = 1;
  while (reader->Read(&response)) deltas += response.has_delta() ? 1 : 0;
  const grpc::Status status = reader->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE) << status.error_message();
  EXPECT_NE(status.error_message().find("baton-guard"), std::string::npos) << status.error_message();
  EXPECT_LE(deltas, 501) << "nobody judged what came later";
  // Whoever asks for no moderation is not touched.
  EXPECT_TRUE(fleet_->Chat(Request("", v1::Moderation::POLICY_OFF)).status.ok());
  fleet_->ExpectNothingHeld();
}

TEST_F(ModerationTest, AKilledClassifierLetsTheAnswerPassIfTheOperatorSaysSo) {
  Start(R"({"policy": "block", "fail_open": true})");
  judge_->Signal(SIGKILL);
  judge_->Wait();
  const Answer answer = fleet_->Chat(Request("", v1::Moderation::POLICY_UNSPECIFIED));
  ASSERT_TRUE(answer.status.ok()) << answer.status;
  EXPECT_FALSE(answer.text.empty());
  EXPECT_TRUE(answer.end().moderation().unavailable());
  const Answer less = fleet_->Chat(Request("", v1::Moderation::POLICY_OFF));
  EXPECT_TRUE(absl::IsPermissionDenied(less.status)) << less.status;
}

}  // namespace
}  // namespace baton::e2e
