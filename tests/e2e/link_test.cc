// Links between real workers: the relay over `--link nccl` (a NCCL over sockets stands behind it, see
// tests/fakes/socket_nccl.h) and over `--link ucx` with the real one, failures in the middle of a transfer,
// the test at start with its floor, workers that don't have the same link, and other tensor-parallel sizes on
// the two sides, over both links.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <random>
#include <thread>

#include "baton/fleet/v1/decode.grpc.pb.h"
#include "common/rpc/channel.h"
#include "common/rpc/status.h"
#include "engine/solo.h"
#include "nlohmann/json.hpp"
#include "tests/e2e/fleet.h"
#include "tests/e2e/solo_answers.h"
#include "tests/patience.h"
#include "transfer/ucx/open_ucx.h"

namespace baton::e2e {
namespace {

using testing::HasSubstr;

// Nothing but what the failing test asks for decides where a prompt goes.
FleetOptions OverNccl(int prefill, std::vector<std::string> more = {}) {
  std::vector<std::string> flags = {"--link", "nccl"};
  flags.insert(flags.end(), more.begin(), more.end());
  return {.prefill = prefill,
          .prefill_flags = flags,
          .decode_flags = flags,
          .router_flags = {"--policy", "round_robin"},
          .worker_folder = kGatedWorkers};
}

TEST(NcclRelayTest, TokensAndLogitsAreThoseOfTheEngineAlone) {
  Fleet fleet(OverNccl(2, {"--link-timeout", "60", "--chunk-tokens", "64"}));
  const int shipped = ExpectSoloAnswersOver(fleet, "nccl");
  fleet.ExpectNothingHeld();
  EXPECT_EQ(Metric(fleet.decode(), "baton_link_communicators{link=\"nccl\"}"), 2);
  EXPECT_GT(Metric(fleet.decode(), "baton_link_communicator_bytes{link=\"nccl\"}"), 0);
  EXPECT_EQ(Metric(fleet.decode(), "baton_link_joins_total{link=\"nccl\"}"), 2);
  EXPECT_EQ(Metric(fleet.decode(), "baton_link_aborts_total{link=\"nccl\"}"), 0);
  EXPECT_GE(Metric(fleet.decode(), "baton_handoffs_total{link=\"nccl\",outcome=\"ok\"}"), shipped);
}

// A cancelled hand-off drops messages whose payloads are in flight; the pair continues.
TEST(NcclRelayTest, ClientsThatLeaveDoNotHurtThePair) {
  FleetOptions options =
      OverNccl(1, {"--link-timeout", "60", "--chunk-tokens", "16", "--token-budget", "16"});
  options.gated = true;
  Fleet fleet(options);
  LeaveWhilePromptsAreComputed(fleet);
  ExpectSoloAnswerOver(fleet, "nccl");
  fleet.ExpectNothingHeld();
  EXPECT_EQ(Metric(fleet.decode(), "baton_link_quarantines_total{link=\"nccl\"}"), 0);
  EXPECT_EQ(Metric(fleet.prefill(), "baton_link_quarantines_total{link=\"nccl\"}"), 0);
}

// Stops the transfers of the worker's NCCL, and waits until the signal has come: it is on its way for a
// while.
void StopTransfers(Process& worker) {
  worker.Signal(SIGUSR1);
  const auto has_come = [&worker] {
    std::ifstream file("/proc/" + std::to_string(worker.pid()) + "/status");
    const std::string pending = "ShdPnd:";
    for (std::string line; std::getline(file, line);) {
      if (!line.starts_with(pending)) continue;
      const uint64_t signals = std::stoull(line.substr(pending.size()), nullptr, 16);
      return ((signals >> (SIGUSR1 - 1)) & 1) == 0;
    }
    return false;
  };
  Await(has_come, "a signal that has come", kLinkPatience);
}

// Two prefill workers; the transfers of one stop. While a prompt's KV is stuck there, `fail`, if there is
// one, makes it worse. The prompt is answered all the same, by the other one, whose pair notices nothing.
void FailInTheMiddle(const std::vector<std::string>& flags, const std::function<void(Process&)>& fail) {
  Fleet fleet(OverNccl(2, flags));
  const auto engine = OneEngine();
  // Both pairs are in use. It was the turn of one, then of the other, and so it goes on.
  std::vector<std::string> turns;
  for (int i = 0; i < 2; ++i) {
    const Answer answer = fleet.Generate(Request(Prompt(100, i), 2));
    ASSERT_TRUE(answer.status.ok()) << answer.status;
    ASSERT_EQ(answer.end().relay().failovers(), 0u);
    turns.push_back(answer.end().relay().prefill_worker());
  }
  ASSERT_THAT(turns, testing::UnorderedElementsAre("prefill-0", "prefill-1"));
  ASSERT_EQ(Metric(fleet.decode(), "baton_link_communicators{link=\"nccl\"}"), 2);
  const int failing = turns[0] == "prefill-0" ? 0 : 1;
  StopTransfers(fleet.prefill(failing));
  for (uint32_t i = 0; i < 2; ++i) {
    SCOPED_TRACE(i);
    const auto prompt = Prompt(400, 10 + static_cast<int>(i));
    Answer answer;
    std::thread client([&] { answer = fleet.Generate(Request(prompt, 6)); });
    if (i == 0 && fail != nullptr) {
      const auto is_stuck = [&] {
        return Metric(fleet.decode(), "baton_decode_sequences{state=\"handoff\"}") > 0 &&
               Metric(fleet.prefill(failing), "baton_link_staging_used_bytes{link=\"nccl\"}") > 0;
      };
      EXPECT_TRUE(Await(is_stuck, "a hand-off that is stuck", kLinkPatience));
      fail(fleet.prefill(failing));
    }
    client.join();
    ASSERT_TRUE(answer.status.ok()) << answer.status;
    EXPECT_EQ(answer.digests, Alone(*engine, prompt, 6).logits_digests);
    EXPECT_EQ(answer.end().relay().link(), "nccl");
    EXPECT_EQ(answer.end().relay().prefill_worker(), turns[1]);
    EXPECT_EQ(answer.end().relay().failovers(), 1 - i);
  }
  EXPECT_EQ(Metric(fleet.decode(), "baton_link_quarantines_total{link=\"nccl\"}"), 1);
  EXPECT_EQ(Metric(fleet.decode(), "baton_link_communicators{link=\"nccl\"}"), 1);
  EXPECT_EQ(Metric(fleet.prefill(1 - failing), "baton_link_quarantines_total{link=\"nccl\"}"), 0);
  EXPECT_TRUE(
      AwaitLoad(fleet.decode().grpc(), [](const fleet::v1::Load& load) { return load.held_blocks() == 0; }));
}

TEST(NcclFailureTest, APeerThatDiesInTheMiddleCostsNoRequestAndNoToken) {
  FailInTheMiddle({"--link-timeout", "600"}, [](Process& worker) { worker.Signal(SIGKILL); });
}

TEST(NcclFailureTest, AnAsynchronousErrorCostsNoRequestAndNoToken) {
  FailInTheMiddle({"--link-timeout", "600"}, [](Process& worker) { worker.Signal(SIGUSR2); });
}

TEST(NcclFailureTest, ATransferThatHangsCostsNoRequestAndNoToken) {
  FailInTheMiddle({"--link-timeout", "5"}, nullptr);
}

TEST(NcclFailureTest, APairThatFailedIsMadeAnewAfterItsRest) {
  Fleet fleet(OverNccl(1, {"--link-timeout", "60"}));
  ASSERT_EQ(fleet.Generate(Request(Prompt(100, 1), 2)).end().relay().link(), "nccl");
  fleet.prefill().Signal(SIGUSR2);
  ASSERT_TRUE(
      Await([&] { return Metric(fleet.prefill(), "baton_link_quarantines_total{link=\"nccl\"}") == 1; },
            "the end of the pair", kLinkPatience));
  // While it rests prompts are prefilled by the decode worker itself.
  int salt = 2;
  const auto goes_by_nccl = [&] {
    const Answer answer = fleet.Generate(Request(Prompt(100, salt++), 2));
    EXPECT_TRUE(answer.status.ok()) << answer.status;
    return answer.end().relay().link() == "nccl";
  };
  ASSERT_TRUE(Await(goes_by_nccl, "a hand-off by the new pair", kLinkPatience));
  // The receiver may know before the sender that the bytes are there.
  Await([&] { return Metric(fleet.prefill(), "baton_link_joins_total{link=\"nccl\"}") == 2; },
        "the sender's word of the new pair", kLinkPatience);
  EXPECT_EQ(Metric(fleet.prefill(), "baton_link_communicators{link=\"nccl\"}"), 1);
  fleet.ExpectNothingHeld();
}

TEST(LinkPairingTest, WorkersWithDifferentLinksAreNotPairedAndTheRefusalNamesBoth) {
  Fleet fleet({.decode_flags = {"--link", "nccl"}, .worker_folder = kGatedWorkers, .impatient = true});
  const Answer answer = fleet.Generate(Request(Prompt(200, 1), 4));
  ASSERT_TRUE(answer.status.ok()) << answer.status;
  EXPECT_EQ(answer.end().relay().link(), "local");
  fleet::v1::WatchEvent event;
  {
    grpc::ClientContext context;
    const auto reader =
        fleet::v1::Worker::NewStub(rpc::MakeChannel(fleet.decode().grpc()))->Watch(&context, {});
    ASSERT_TRUE(reader->Read(&event));
    context.TryCancel();
  }
  fleet::v1::PrefillRequest request;
  *request.mutable_fingerprint() = event.snapshot().info().fingerprint();
  EXPECT_EQ(request.fingerprint().link(), "nccl/10000") << "with NCCL's version, which joins no other";
  const auto prefill = fleet::v1::Prefill::NewStub(rpc::MakeChannel(fleet.prefill().grpc()));
  grpc::ClientContext context;
  const auto reader = prefill->Prefill(&context, request);
  fleet::v1::PrefillEvent none;
  EXPECT_FALSE(reader->Read(&none));
  const grpc::Status status = reader->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(status.error_message(), HasSubstr("host here, nccl/10000 there"));
  EXPECT_THAT(status.error_message(), HasSubstr("--link"));
  fleet.ExpectNothingHeld();
}

TEST(LinkPairingTest, WithoutNcclOrAGpuAWorkerSaysSoAtStart) {
  auto worker =
      cli::Child::Spawn(BATON_BINARY_DIR "/bin/baton-prefill", {"--model", kModel, "--link", "nccl"});
  ASSERT_TRUE(worker.ok());
  std::string errors;
  std::optional<cli::ExitStatus> status;
  const auto has_ended = [&] {
    char buffer[4096];
    for (ssize_t n; (n = read(worker->error_fd(), buffer, sizeof buffer)) > 0;) errors.append(buffer, n);
    return status.has_value() || (status = worker->Reap()).has_value();
  };
  ASSERT_TRUE(Await(has_ended, "the worker's end", kLinkPatience));
  EXPECT_EQ(status->value, 1);
  EXPECT_THAT(errors, HasSubstr("use --link host")) << "whether it lacks NCCL or its KV is on no GPU";
}

class LinkCheckTest : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    device::Memory* const host = &device::HostMemory();
    if (GetParam() == std::string("ucx") && !transfer::OpenUcx({&host, 1}).ok())
      GTEST_SKIP() << "no UCX here";
  }
  std::string Named(const std::string& metric, const std::string& peer = "") const {
    return peer.empty() ? fmt::format("{}{{link=\"{}\"}}", metric, GetParam())
                        : fmt::format("{}{{link=\"{}\",peer=\"{}\"}}", metric, GetParam(), peer);
  }
  Process Worker(const std::string& role, std::vector<std::string> more = {}) const {
    std::vector<std::string> flags = {
        "--model", kModel,     "--threads",   "1",   "--kv-memory",       "64MiB",
        "--link",  GetParam(), "--log-level", "off", "--exit-with-parent"};
    flags.insert(flags.end(), more.begin(), more.end());
    return Process(fmt::format("{}baton-{}", kGatedWorkers, role), flags);
  }
  // True if the worker tells routers so.
  static bool TakesNoWork(const Process& worker) {
    grpc::ClientContext context;
    const auto reader = fleet::v1::Worker::NewStub(rpc::MakeChannel(worker.grpc()))->Watch(&context, {});
    fleet::v1::WatchEvent event;
    EXPECT_TRUE(reader->Read(&event));
    context.TryCancel();
    return event.snapshot().draining();
  }
};

TEST_P(LinkCheckTest, AWorkerIsReadyOnceItsLinkHasPassed) {
  Process prefill = Worker("prefill");
  Process decode = Worker("decode", {"--link-peers", prefill.grpc(), "--link-floor-gbps", "0.000001"});
  Await([&] { return !TakesNoWork(decode); }, "a worker that takes work", kLinkPatience);
  const double measured = Metric(decode, Named("baton_link_measured_bytes_per_second", prefill.grpc()));
  std::printf("%s link: %.3f GB/s\n", GetParam(), measured / 1e9);
  EXPECT_GT(measured, 1000);
  EXPECT_EQ(Metric(decode, Named("baton_link_floor_bytes_per_second")), 1000);
  for (Process* worker : {&prefill, &decode}) {
    EXPECT_TRUE(
        AwaitLoad(worker->grpc(), [](const fleet::v1::Load& load) { return load.held_blocks() == 0; }));
  }
}

TEST_P(LinkCheckTest, ALinkBelowItsFloorIsNotReady) {
  Process prefill = Worker("prefill");
  Process decode = Worker("decode", {"--link-peers", prefill.grpc(), "--link-floor-gbps", "1000000"});
  ASSERT_TRUE(
      Await([&] { return Metric(decode, Named("baton_link_measured_bytes_per_second", prefill.grpc())) > 0; },
            "a measurement of the link", kLinkPatience));
  EXPECT_TRUE(TakesNoWork(decode));
  EXPECT_EQ(Metric(decode, "baton_draining "), 0) << "it does not leave: another alert is for this";
  const auto stub = fleet::v1::Decode::NewStub(rpc::MakeChannel(decode.grpc()));
  grpc::ClientContext context;
  const auto reader = stub->Generate(&context, {});
  fleet::v1::DecodeEvent event;
  EXPECT_FALSE(reader->Read(&event));
  const grpc::Status status = reader->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(status.error_message(), HasSubstr("not ready"));
  decode.Signal(SIGTERM);
  EXPECT_EQ(decode.Wait().value, 0) << "it leaves when it is told to";
}

// The NCCL of these tests goes over sockets, and says so as the real one does: in its log.
TEST_P(LinkCheckTest, SilentTcpIsRefusedWhereMoreWasAskedFor) {
  Process prefill = Worker("prefill");
  Process decode = Worker("decode", {"--link-peers", prefill.grpc(), "--link-transport", "rdma"});
  if (std::string_view(GetParam()) == "nccl") {
    const std::string over_tcp = "baton_link_channels_total{link=\"nccl\",transport=\"NET/Socket\"}";
    Await([&] { return Metric(decode, over_tcp) > 0; }, over_tcp, kLinkPatience);
  }
  EXPECT_TRUE(TakesNoWork(decode));
  EXPECT_EQ(Metric(decode, Named("baton_link_measured_bytes_per_second", prefill.grpc())), 0);
}

INSTANTIATE_TEST_SUITE_P(Links, LinkCheckTest, testing::Values("host", "nccl", "ucx"),
                         [](const auto& info) { return std::string(info.param); });

// A model with four KV heads, random weights and the shipped tokenizer.
std::string FourHeadModel() {
  constexpr uint32_t kSeed = 5;
  const std::filesystem::path folder = testing::TempDir() + "/four-heads-" + std::to_string(getpid());
  std::filesystem::create_directories(folder);
  for (const char* name :
       {"tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "generation_config.json"}) {
    std::filesystem::copy_file(std::string(kModel) + "/" + name, folder / name,
                               std::filesystem::copy_options::overwrite_existing);
  }
  auto config = nlohmann::json::parse(std::ifstream(std::string(kModel) + "/config.json"));
  const int hidden = 64, feed_forward = 96, layers = 3, vocabulary = config["vocab_size"];
  config["hidden_size"] = hidden;
  config["intermediate_size"] = feed_forward;
  config["num_hidden_layers"] = layers;
  config["num_attention_heads"] = 4;
  config["num_key_value_heads"] = 4;
  config["head_dim"] = 16;
  config["tie_word_embeddings"] = false;
  config["torch_dtype"] = "float32";
  std::ofstream(folder / "config.json") << config;
  std::mt19937 random(kSeed);
  std::normal_distribution<float> normal;
  nlohmann::json header;
  std::string bytes;
  const auto add = [&](const std::string& name, std::vector<int> shape, float scale) {
    const size_t begin = bytes.size();
    int64_t count = 1;
    for (int side : shape) count *= side;
    for (int64_t i = 0; i < count; ++i) {
      const float value = shape.size() == 1 ? 1 : scale * normal(random);
      bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
    }
    header[name] = {{"dtype", "F32"}, {"shape", shape}, {"data_offsets", {begin, bytes.size()}}};
  };
  add("model.embed_tokens.weight", {vocabulary, hidden}, 1);
  add("lm_head.weight", {vocabulary, hidden}, 0.5f);
  add("model.norm.weight", {hidden}, 1);
  for (int layer = 0; layer < layers; ++layer) {
    const std::string at = fmt::format("model.layers.{}.", layer);
    for (const char* name : {"q_proj", "k_proj", "v_proj", "o_proj"}) {
      add(at + "self_attn." + name + ".weight", {hidden, hidden}, 0.15f);
    }
    add(at + "mlp.gate_proj.weight", {feed_forward, hidden}, 0.15f);
    add(at + "mlp.up_proj.weight", {feed_forward, hidden}, 0.15f);
    add(at + "mlp.down_proj.weight", {hidden, feed_forward}, 0.15f);
    add(at + "input_layernorm.weight", {hidden}, 1);
    add(at + "post_attention_layernorm.weight", {hidden}, 1);
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const uint64_t size = text.size();
  std::ofstream file(folder / "model.safetensors", std::ios::binary);
  file.write(reinterpret_cast<const char*>(&size), sizeof size);
  file << text << bytes;
  return folder;
}

struct Ranks {
  const char* link;
  int prefill, decode;
};
class TensorParallelRelayTest : public testing::TestWithParam<Ranks> {};

// Sums over ranks round elsewhere, so logits differ in their last bits; greedy tokens do not, for prompts
// where no two tokens are that close.
TEST_P(TensorParallelRelayTest, GivesTheTokensOfOneEngineAlone) {
  const std::string model = FourHeadModel();
  const auto flags = [&](int tp) {
    return std::vector<std::string>{"--link",     GetParam().link,  "--tp", std::to_string(tp),
                                    "--tolerant", "--link-timeout", "60"};
  };
  const auto engine = OneEngine(model);
  Fleet fleet({.prefill_flags = flags(GetParam().prefill),
               .decode_flags = flags(GetParam().decode),
               .router_flags = {"--policy", "round_robin"},
               .model = model,
               .worker_folder = kGatedWorkers});
  for (int i = 0; i < 4; ++i) {
    SCOPED_TRACE(i);
    const auto prompt = Prompt(150 + 33 * i, i);
    const Answer answer = fleet.Generate(Request(prompt, 8));
    ASSERT_TRUE(answer.status.ok()) << answer.status;
    EXPECT_EQ(answer.end().relay().link(), GetParam().link);
    EXPECT_EQ(answer.end().relay().failovers(), 0u);
    EXPECT_EQ(answer.end().relay().shipped_blocks(), static_cast<uint32_t>(BlocksFor(150 + 33 * i)));
    std::vector<int32_t> expected;
    for (TokenId token : Alone(*engine, prompt, 8).tokens) expected.push_back(token.value());
    EXPECT_EQ(answer.tokens, expected);
  }
  fleet.ExpectNothingHeld();
  std::filesystem::remove_all(model);
}

INSTANTIATE_TEST_SUITE_P(Sizes, TensorParallelRelayTest,
                         testing::Values(Ranks{"host", 2, 1}, Ranks{"host", 1, 2}, Ranks{"host", 4, 2},
                                         Ranks{"nccl", 2, 1}, Ranks{"nccl", 1, 2}, Ranks{"nccl", 4, 2},
                                         Ranks{"ucx", 2, 1}, Ranks{"ucx", 1, 2}),
                         [](const auto& info) {
                           return fmt::format("{}_{}_to_{}", info.param.link, info.param.prefill,
                                              info.param.decode);
                         });

TEST(TensorParallelRelayRefusalTest, WhereBitsArePromisedOtherSizesDoNotPair) {
  const std::string model = FourHeadModel();
  Fleet fleet({.prefill_flags = {"--tp", "2"}, .model = model, .impatient = true});
  const Answer answer = fleet.Generate(Request(Prompt(200, 1), 4));
  ASSERT_TRUE(answer.status.ok()) << answer.status;
  EXPECT_EQ(answer.end().relay().link(), "local");
  std::filesystem::remove_all(model);
}

}  // namespace
}  // namespace baton::e2e
