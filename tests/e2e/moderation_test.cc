// Moderation with real processes: the shipped model, and the shipped classifier behind the same router.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <thread>
#include <vector>

#include "common/base/check.h"
#include "common/rpc/status.h"
#include "nlohmann/json.hpp"
#include "tests/e2e/fleet.h"
#include "tests/e2e/folded_answer.h"
#include "tests/patience.h"

namespace baton::e2e {
namespace {

namespace fs = std::filesystem;

constexpr char kGuard[] = BATON_SOURCE_DIR "/models/baton-guard";
// A text that the shipped model is made to write, and the shipped classifier takes for harmful.
constexpr char kThreat[] = "I will break your arm tomorrow.";

class ModerationTest : public ::testing::Test {
 protected:
  ModerationTest()
      : models_(fs::path(::testing::TempDir()) / fmt::format("moderation_e2e.{}.json", getpid())),
        folder_(fs::path(::testing::TempDir()) / fmt::format("moderation_e2e.{}", getpid())) {}
  ~ModerationTest() override {
    fs::remove(models_);
    fs::remove_all(folder_);
  }

  void Start(const std::string& rules = "", FleetOptions options = {}, const std::string& guard = kGuard) {
    judge_ = std::make_unique<Process>(
        "baton-decode",
        std::vector<std::string>{"--exit-with-parent", "--model", guard, "--listen", "127.0.0.1:0",
                                 "--metrics", "127.0.0.1:0", "--kv-memory", "32MiB", "--threads", "1",
                                 "--worker-id", "judge", "--fleet-keepalive", kPatientKeepalive});
    nlohmann::json file = {{"models",
                            {{{"folder", guard},
                              {"name", "baton-guard"},
                              {"classifier", "auto"},
                              {"decode", {judge_->grpc()}}}}}};
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

  // The shipped classifier with random weights: it writes anything.
  std::string RandomGuard(uint64_t seed) const {
    fs::copy(kGuard, folder_, fs::copy_options::recursive | fs::copy_options::overwrite_existing);
    const fs::path path = folder_ / "model.safetensors";
    std::ifstream file(path, std::ios::binary);
    std::string bytes((std::istreambuf_iterator<char>(file)), {});
    uint64_t header = 0;
    std::memcpy(&header, bytes.data(), sizeof header);
    const auto tensors = nlohmann::json::parse(bytes.substr(sizeof header, header));
    std::mt19937_64 random(seed);
    std::normal_distribution<float> normal(0, 0.1f);
    for (const auto& [name, tensor] : tensors.items()) {
      if (name == "__metadata__") continue;
      BATON_CHECK(tensor["dtype"] == "BF16" || tensor["dtype"] == "F32") << tensor["dtype"];
      const size_t size = tensor["dtype"] == "BF16" ? 2 : 4;
      const auto first = tensor["data_offsets"][0].get<size_t>(),
                 end = tensor["data_offsets"][1].get<size_t>();
      for (size_t i = first; i < end; i += size) {
        const float value = normal(random);
        // The higher half of a float32 is the bfloat16.
        std::memcpy(&bytes[sizeof header + header + i], reinterpret_cast<const char*>(&value) + 4 - size,
                    size);
      }
    }
    std::ofstream(path, std::ios::binary) << bytes;
    return folder_;
  }

  const fs::path models_, folder_;
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

// A trace names its token, so it is held back as long as the text.
TEST_F(ModerationTest, TracesAreHeldBackWithTheText) {
  Start();
  v1::ChatRequest request = Request(kThreat, v1::Moderation::POLICY_BLOCK);
  request.mutable_output()->set_explain(true);
  const FoldedAnswer blocked = Fold(*fleet_, request);
  ASSERT_TRUE(blocked.status.ok()) << blocked.status.error_message();
  ASSERT_EQ(blocked.answer.choices_size(), 1);
  EXPECT_EQ(blocked.answer.choices(0).finished().reason(), v1::FINISH_REASON_CONTENT_FILTER);
  EXPECT_EQ(blocked.answer.choices(0).text(), "");
  EXPECT_TRUE(blocked.answer.choices(0).sampling().empty()) << "nothing of it passed";

  request = Request("", v1::Moderation::POLICY_BLOCK);
  request.mutable_output()->set_explain(true);
  const FoldedAnswer passed = Fold(*fleet_, request);
  ASSERT_TRUE(passed.status.ok()) << passed.status.error_message();
  EXPECT_FALSE(passed.answer.choices(0).text().empty());
  EXPECT_EQ(static_cast<uint32_t>(passed.answer.choices(0).sampling_size()),
            passed.answer.choices(0).finished().usage().completion_tokens());
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

// A stopped process answers nothing, and its connection lives.
TEST_F(ModerationTest, AClassifierThatHangsIsGivenUpInTime) {
  Start(fmt::format(R"({{"policy": "block", "timeout_seconds": {}}})", Scaled(2)));
  judge_->Signal(SIGSTOP);
  judge_->AwaitStopped();
  const Answer answer = fleet_->Chat(Request("", v1::Moderation::POLICY_UNSPECIFIED));
  EXPECT_TRUE(absl::IsUnavailable(answer.status)) << answer.status;
  EXPECT_EQ(answer.text, "");
  EXPECT_EQ(rpc::ReasonOf(answer.status), "CLASSIFIER_UNAVAILABLE") << answer.status;
  v1::ModerateRequest request;
  request.add_texts(kThreat);
  grpc::ClientContext context;
  v1::ModerateResponse response;
  EXPECT_EQ(fleet_->stub().Moderate(&context, request, &response).error_code(),
            grpc::StatusCode::UNAVAILABLE);
  judge_->Signal(SIGCONT);
  EXPECT_TRUE(Await([&] { return fleet_->Chat(Request("", v1::Moderation::POLICY_UNSPECIFIED)).status.ok(); },
                    "a verdict of the classifier that goes on"));
  fleet_->ExpectNothingHeld();
}

// One slow process judges two dozen answers at a time: each is as it would be without.
TEST_F(ModerationTest, ASlowClassifierUnderLoadDelaysAndChangesNothing) {
  Start(R"({"policy": "off", "timeout_seconds": 600})");
  constexpr int kAnswers = 24;
  const auto ask = [&](int i, v1::Moderation::Policy policy) {
    v1::ChatRequest request = Request("", policy);
    request.mutable_conversation()->mutable_messages(0)->set_content(fmt::format("Tell me about fox {}.", i));
    request.mutable_stop()->set_max_tokens(120);
    request.mutable_stop()->set_ignore_eos(true);
    request.mutable_output()->set_even_frames(true);
    return fleet_->Chat(request);
  };
  std::vector<Answer> answers(kAnswers);
  std::vector<std::thread> clients;
  for (int i = 0; i < kAnswers; ++i) {
    clients.emplace_back([&, i] { answers[i] = ask(i, v1::Moderation::POLICY_BLOCK); });
  }
  for (std::thread& client : clients) client.join();
  int whole = 0;
  for (int i = 0; i < kAnswers; ++i) {
    ASSERT_TRUE(answers[i].status.ok()) << answers[i].status;
    const Answer alone = ask(i, v1::Moderation::POLICY_OFF);
    if (answers[i].end().reason() == v1::FINISH_REASON_CONTENT_FILTER) {
      EXPECT_EQ(alone.text.substr(0, answers[i].text.size()), answers[i].text);
      continue;
    }
    EXPECT_EQ(answers[i].text, alone.text);
    EXPECT_GE(answers[i].end().moderation().verdicts(), 2u);
    ++whole;
  }
  EXPECT_GT(whole, kAnswers / 2) << "the classifier takes most harmless answers for harmful";
  fleet_->ExpectNothingHeld();
}

TEST_F(ModerationTest, AClassifierThatWritesGarbageGivesNoVerdict) {
  Start(R"({"policy": "block"})", {}, RandomGuard(7));
  const Answer answer = fleet_->Chat(Request("", v1::Moderation::POLICY_UNSPECIFIED));
  EXPECT_TRUE(absl::IsUnavailable(answer.status)) << answer.status;
  EXPECT_EQ(answer.text, "");
  EXPECT_EQ(rpc::ReasonOf(answer.status), "CLASSIFIER_UNAVAILABLE") << answer.status;
  EXPECT_NE(answer.status.message().find("is no verdict of the format baton_guard"), std::string::npos)
      << answer.status;
  fleet_->ExpectNothingHeld();
}

}  // namespace
}  // namespace baton::e2e
