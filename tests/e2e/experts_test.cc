// Experts outside memory on real processes: a mixture of which 40% of the experts have room answers with the
// bits that it has with all of them, to several clients at once; and a file that is damaged costs answers,
// but changes none.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "common/base/check.h"
#include "engine/solo.h"
#include "tests/e2e/fleet.h"
#include "tests/e2e/random_mixture.h"
#include "tests/patience.h"

namespace baton::e2e {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kSeed = 20261125;

struct Ended {
  int code = 0;
  std::string said;
};

// One of the binaries, until it ends.
Ended RunBinary(const std::string& command) {
  FILE* const pipe = popen((BATON_BINARY_DIR "/bin/" + command + " 2>&1").c_str(), "r");
  BATON_CHECK(pipe != nullptr);
  Ended ended;
  char text[4096];
  for (size_t got = 0; (got = fread(text, 1, sizeof text, pipe)) > 0;) ended.said.append(text, got);
  ended.code = WEXITSTATUS(pclose(pipe));
  return ended;
}

class ExpertsE2eTest : public testing::Test {
 protected:
  ExpertsE2eTest() : folder_(testing::TempDir() + "/experts-e2e-" + std::to_string(getpid())) {
    fs::remove_all(folder_);
    WriteRandomMixture(model(), shape_, kSeed);
    packed_ = RunBinary("baton model pack --model " + model() + " --out " + file());
  }
  ~ExpertsE2eTest() override { fs::remove_all(folder_); }

  std::string model() const { return folder_ + "/mixture"; }
  std::string file() const { return folder_ + "/mixture.experts"; }
  // Two in five of the experts.
  int64_t budget() const { return shape_.all() * 2 / 5 * shape_.expert_bytes(); }
  std::vector<std::string> Outside() const {
    return {"--expert-file", file(), "--expert-memory", std::to_string(budget())};
  }
  static std::vector<int32_t> Prompt(std::mt19937& random) {
    std::vector<int32_t> prompt(20 + random() % 60);
    for (int32_t& token : prompt) token = static_cast<int32_t>(20 + random() % 2000);
    return prompt;
  }
  // With all experts in memory.
  engine::SoloRun Alone(const std::vector<int32_t>& prompt, int64_t count) {
    if (engine_ == nullptr) {
      engine_ = engine::Engine::Load({.model_folder = model(), .threads = 1, .kv_bytes = 16 << 20}).value();
    }
    std::vector<TokenId> ids;
    for (const int32_t id : prompt) ids.emplace_back(id);
    return engine::GenerateSolo(*engine_, ids, {.temperature = 0}, count, {}, 0).value();
  }
  static v1::GenerateRequest Ask(const std::vector<int32_t>& prompt, uint32_t count) {
    v1::GenerateRequest request = TokenRequest(prompt, count);
    request.mutable_sampling()->set_repetition_penalty(1);
    request.mutable_sampling()->set_min_p(0);
    request.mutable_sampling()->set_top_k(0);
    request.mutable_sampling()->set_top_p(1);
    return request;
  }
  static void ExpectEqual(const Answer& answer, const engine::SoloRun& alone) {
    std::vector<int32_t> expected;
    for (const TokenId token : alone.tokens) expected.push_back(token.value());
    EXPECT_EQ(answer.tokens, expected);
    EXPECT_EQ(answer.digests, alone.logits_digests) << "the logits differ in at least one bit";
  }
  // Turns a bit of each page behind the header, on the disk itself.
  void DamageFile() const {
    const int fd = open(file().c_str(), O_RDWR | O_CLOEXEC);
    ASSERT_GE(fd, 0);
    const auto size = static_cast<off_t>(fs::file_size(file()));
    for (off_t at = 4096 + 77; at < size; at += 4096) {
      char byte = 0;
      ASSERT_EQ(pread(fd, &byte, 1, at), 1);
      byte = static_cast<char>(byte ^ 4);
      ASSERT_EQ(pwrite(fd, &byte, 1, at), 1);
    }
    ASSERT_EQ(fsync(fd), 0);
    close(fd);
  }

  const MixtureShape shape_;
  const std::string folder_;
  Ended packed_;
  std::unique_ptr<engine::Engine> engine_;
};

TEST_F(ExpertsE2eTest, TwoInFiveResidentAnswerAsAllDo) {
  SCOPED_TRACE(testing::Message() << "seed " << kSeed);
  ASSERT_EQ(packed_.code, 0) << packed_.said;
  EXPECT_NE(packed_.said.find("48 experts are in"), std::string::npos) << packed_.said;
  const Ended again = RunBinary("baton model pack --model " + model() + " --out " + file());
  EXPECT_EQ(again.code, 0);
  EXPECT_NE(again.said.find("48 experts were already"), std::string::npos) << again.said;

  Fleet fleet({.prefill_flags = Outside(),
               .decode_flags = Outside(),
               .router_flags = {"--policy", "least_loaded"},
               .model = model()});
  constexpr int kClients = 4;
  const int rounds = kSanitized ? 2 : 6;
  struct Case {
    std::vector<int32_t> prompt;
    engine::SoloRun alone;
    Answer answer;
  };
  std::mt19937 random(kSeed);
  std::vector<std::vector<Case>> cases(kClients);
  for (std::vector<Case>& of_client : cases) {
    for (int i = 0; i < rounds; ++i) {
      const std::vector<int32_t> prompt = Prompt(random);
      of_client.push_back({.prompt = prompt, .alone = Alone(prompt, 12), .answer = {}});
    }
  }
  std::vector<std::thread> clients;
  for (std::vector<Case>& of_client : cases) {
    clients.emplace_back([&fleet, &of_client] {
      for (Case& one : of_client) one.answer = fleet.Generate(Ask(one.prompt, 12));
    });
  }
  for (std::thread& client : clients) client.join();
  int shipped = 0;
  for (const std::vector<Case>& of_client : cases) {
    for (const Case& one : of_client) {
      ASSERT_TRUE(one.answer.status.ok()) << one.answer.status;
      ExpectEqual(one.answer, one.alone);
      shipped += one.answer.end().relay().shipped_blocks() > 0;
    }
  }
  EXPECT_GT(shipped, 0) << "no prompt was computed by the prefill worker";
  for (const Process* worker : {&fleet.prefill(), &fleet.decode()}) {
    EXPECT_EQ(Metric(*worker, "baton_expert_stored"), shape_.all());
    EXPECT_EQ(Metric(*worker, "baton_expert_resident "), shape_.all() * 2 / 5);
    EXPECT_EQ(Metric(*worker, "baton_expert_resident_bytes"), static_cast<double>(budget()));
    EXPECT_GT(Metric(*worker, "baton_expert_uses_total{result=\"hit\"}"), 0);
    const double misses = Metric(*worker, "baton_expert_uses_total{result=\"miss\"}");
    EXPECT_GT(misses, 0);
    // And what was read at the start.
    EXPECT_EQ(Metric(*worker, "baton_expert_read_bytes_total"),
              (misses + shape_.all()) * static_cast<double>(shape_.expert_bytes()));
    EXPECT_GT(Metric(*worker, "baton_expert_stall_seconds_total"), 0);
  }
  fleet.ExpectNothingHeld();
}

// Bits that turn while a worker runs: an answer is whole and right, or an error; the worker ends and says
// why, and one that starts on such a file says so, too.
TEST_F(ExpertsE2eTest, ADamagedFileIsAnErrorAndNoToken) {
  SCOPED_TRACE(testing::Message() << "seed " << kSeed);
  ASSERT_EQ(packed_.code, 0) << packed_.said;
  Fleet fleet({.prefill = 0, .decode = 1, .decode_flags = Outside(), .model = model()});
  std::mt19937 random(kSeed + 1);
  const std::vector<int32_t> prompt = Prompt(random);
  const Answer before = fleet.Generate(Ask(prompt, 8));
  ASSERT_TRUE(before.status.ok()) << before.status;
  ExpectEqual(before, Alone(prompt, 8));
  DamageFile();
  const std::vector<int32_t> next = Prompt(random);
  const Answer after = fleet.Generate(Ask(next, 8));
  EXPECT_FALSE(after.status.ok());
  EXPECT_TRUE(after.tokens.empty());
  EXPECT_TRUE(fleet.decode().Wait().signalled);
  const std::string said = fleet.decode().TakeErrors();
  EXPECT_NE(said.find("can't be read from " + file()), std::string::npos) << said;
  EXPECT_NE(said.find("its checksum is not that of its bytes"), std::string::npos) << said;

  const Ended start = RunBinary("baton-decode --exit-with-parent --model " + model() + " --expert-file " +
                                file() + " --expert-memory 1GiB </dev/null");
  EXPECT_NE(start.code, 0);
  EXPECT_NE(start.said.find("pack the experts again"), std::string::npos) << start.said;
  // Which repairs it.
  EXPECT_EQ(RunBinary("baton model pack --model " + model() + " --out " + file()).code, 0);
  Fleet repaired({.prefill = 0, .decode = 1, .decode_flags = Outside(), .model = model()});
  const Answer right = repaired.Generate(Ask(next, 8));
  ASSERT_TRUE(right.status.ok()) << right.status;
  ExpectEqual(right, Alone(next, 8));
}

TEST_F(ExpertsE2eTest, WhatDoesNotFitIsRefusedAtTheStart) {
  ASSERT_EQ(packed_.code, 0) << packed_.said;
  const auto start = [&](const std::string& model, const std::string& flags) {
    const Ended ended = RunBinary("baton-decode --model " + model + " " + flags + " </dev/null");
    EXPECT_NE(ended.code, 0) << ended.said;
    return ended.said;
  };
  const std::string with_file = "--expert-file " + file();
  EXPECT_NE(start(model(), with_file).find("--expert-memory"), std::string::npos);
  EXPECT_NE(start(model(), "--expert-memory 1GiB").find("--expert-file"), std::string::npos);
  EXPECT_NE(start(model(), with_file + " --expert-memory 4KiB").find("raise --expert-memory"),
            std::string::npos);
  EXPECT_NE(start(model(), with_file + " --expert-memory 1GiB --weights int8").find("other --weights"),
            std::string::npos);
  EXPECT_NE(start(kModel, with_file + " --expert-memory 1GiB").find("is no mixture of experts"),
            std::string::npos);
  // The same shape, and other weights.
  const std::string other = folder_ + "/other";
  WriteRandomMixture(other, shape_, kSeed + 7);
  EXPECT_NE(start(other, with_file + " --expert-memory 1GiB").find("was packed of other weights"),
            std::string::npos);
  fs::resize_file(file(), fs::file_size(file()) / 2);
  EXPECT_NE(start(model(), with_file + " --expert-memory 1GiB").find("has not the size"), std::string::npos);
}

}  // namespace
}  // namespace baton::e2e
