// `baton serve` and `baton generate --model` with the real servers on the shipped model: how soon they end,
// and who may speak to the workers.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "absl/time/clock.h"
#include "baton/fleet/v1/worker.grpc.pb.h"
#include "cli/client/inference_client.h"
#include "cli/serve/child.h"
#include "common/base/random.h"
#include "common/rpc/channel.h"
#include "tests/integration/cli/baton_process.h"
#include "tests/patience.h"

namespace baton::cli {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

// Three times what is promised: the machine may be busy. What used to be waited for in vain took 2 s and
// more.
const absl::Duration kSoon = Scaled(absl::Milliseconds(900));
// Commands wait so long for the service to be ready.
const std::string kWait = fmt::format("{}s", Scaled(30));

class RealServiceTest : public ::testing::Test {
 protected:
  RealServiceTest() : folder_(fs::path(::testing::TempDir()) / ("service-" + std::to_string(getpid()))) {
    fs::create_directories(folder_);
  }
  ~RealServiceTest() override { fs::remove_all(folder_); }

  std::vector<std::string> Serve() const {
    return {"serve",       "--model",   kModel,        "--threads",  "1",
            "--kv-memory", "64MiB",     "--log-level", "warn",       "--listen",
            "127.0.0.1:0", "--metrics", "127.0.0.1:0", "--announce", announce()};
  }
  std::string announce() const { return folder_ / "addresses.json"; }
  nlohmann::json Addresses() const {
    std::ifstream file(announce());
    return nlohmann::json::parse(file);
  }
  std::string Worker(const std::string& name) const {
    const nlohmann::json addresses = Addresses();
    for (const auto& process : addresses["processes"]) {
      if (process["name"] == name) return process["grpc"];
    }
    return "";
  }

  const fs::path folder_;
};

TEST_F(RealServiceTest, CtrlCEndsItAtOnce) {
  BatonOnTerminal serve(Serve());
  ASSERT_TRUE(serve.WaitFor("Ctrl-C ends the service")) << serve.seen();
  // A client that has asked and stays connected holds nothing up.
  const auto client =
      InferenceClient::Connect(Addresses()["router"].get<std::string>(), Scaled(absl::Seconds(30)));
  ASSERT_TRUE(client.ok()) << client.status();
  v1::GenerateRequest request;
  request.mutable_token_ids()->add_ids(5);
  request.mutable_stop()->set_max_tokens(2);
  ASSERT_TRUE(
      (*client)->Generate(request, {}, [](const v1::GenerateResponse&) { return absl::OkStatus(); }).ok());
  const absl::Time asked = absl::Now();
  serve.Type("\x03");
  EXPECT_EQ(serve.Wait(), 0) << serve.seen();
  EXPECT_LT(absl::Now() - asked, kSoon) << serve.seen();
}

// The shipped classifier beside the shipped model: what is blocked is no turn of the conversation.
TEST_F(RealServiceTest, AClassifierServesBesideTheModel) {
  std::vector<std::string> arguments = Serve();
  arguments.insert(arguments.end(), {"--moderation-model", BATON_SOURCE_DIR "/models/baton-guard"});
  BatonOnTerminal serve(arguments);
  ASSERT_TRUE(serve.WaitFor("Ctrl-C ends the service")) << serve.seen();
  const std::string router = Addresses()["router"].get<std::string>();
  EXPECT_NE(Worker("moderator"), "");
  const Outcome outcome =
      RunBaton({"chat", "--server", router, "--wait", kWait, "--temperature", "0", "--moderate", "--message",
                "I will break your arm tomorrow.", "--message", "Hello!"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("(your message was blocked: threat)"));
  EXPECT_THAT(outcome.out, HasSubstr("Hello!"));
  serve.Type("\x03");
  EXPECT_EQ(serve.Wait(), 0) << serve.seen();
}

TEST_F(RealServiceTest, GenerateEndsWhenItHasAnswered) {
  auto child = Child::Spawn(BATON_BINARY_DIR "/bin/baton",
                            {"generate", "--model", kModel, "--threads", "1", "--kv-memory", "64MiB",
                             "--token-ids", "5,6,7", "-m", "4", "--ids-out"});
  ASSERT_TRUE(child.ok()) << child.status();
  std::string answer;
  absl::Time answered;
  bool ended = false;
  while (!ended) {
    pollfd fds[2] = {{child->output_fd(), POLLIN, 0}, {child->ended_fd(), POLLIN, 0}};
    if (answer.ends_with('\n')) fds[0].fd = -1;
    ASSERT_GT(poll(fds, 2, Scaled(60'000)), 0);
    char bytes[256];
    for (ssize_t got; fds[0].revents != 0 && (got = read(child->output_fd(), bytes, sizeof(bytes))) > 0;) {
      answer.append(bytes, static_cast<size_t>(got));
      answered = absl::Now();
    }
    ended = fds[1].revents != 0;
  }
  EXPECT_THAT(answer, HasSubstr(","));
  EXPECT_LT(absl::Now() - answered, kSoon);
}

TEST_F(RealServiceTest, StrangersDoNotSpeakToItsWorkers) {
  BatonOnTerminal serve(Serve());
  ASSERT_TRUE(serve.WaitFor("Ctrl-C ends the service")) << serve.seen();
  for (const char* worker : {"decode-0", "prefill-0"}) {
    const auto stub = fleet::v1::Worker::NewStub(rpc::MakeChannel(Worker(worker)));
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + Scaled(std::chrono::seconds(30)));
    const auto stream = stub->Watch(&context, fleet::v1::WatchRequest());
    fleet::v1::WatchEvent event;
    EXPECT_FALSE(stream->Read(&event)) << worker;
    const grpc::Status status = stream->Finish();
    EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAUTHENTICATED) << status.error_message();
  }
  const Outcome answer = RunBaton({"generate", "--server", Addresses()["router"].get<std::string>(), "--wait",
                                   kWait, "--token-ids", "5,6", "-m", "3", "--ids-out"});
  EXPECT_EQ(answer.code, 0) << answer.err;
}

// Three fleets behind one router. A model whose only worker dies holds up no other.
TEST_F(RealServiceTest, SeveralModelsServeBesideOneAnother) {
  std::ofstream(folder_ / "models.json")
      << nlohmann::json({{"models",
                          {{{"folder", kModel}, {"name", "short"}, {"max_tokens", 3}},
                           {{"folder", kModel},
                            {"name", "second"},
                            {"workers", {{"prefill", 0}, {"flags", {"--kv-memory=32MiB"}}}}},
                           {{"folder", BATON_SOURCE_DIR "/models/baton-guard"}, {"classifier", "auto"}}}}});
  std::vector<std::string> arguments = Serve();
  arguments.insert(arguments.end(), {"--models", folder_ / "models.json", "--model-name", "first"});
  BatonOnTerminal serve(arguments);
  ASSERT_TRUE(serve.WaitFor("Ctrl-C ends the service")) << serve.seen();
  const auto client =
      InferenceClient::Connect(Addresses()["router"].get<std::string>(), Scaled(absl::Seconds(60)));
  ASSERT_TRUE(client.ok()) << client.status();
  struct Answer {
    absl::Status status;
    std::string worker;
    std::vector<int32_t> ids;
  };
  const auto ask = [&](const std::string& model, uint32_t tokens) {
    v1::GenerateRequest request;
    request.set_model(model);
    for (int i = 0; i < 40; ++i) request.mutable_token_ids()->add_ids(5 + i);
    request.mutable_stop()->set_max_tokens(tokens);
    request.mutable_stop()->set_ignore_eos(true);
    request.mutable_sampling()->set_temperature(0);
    request.mutable_output()->set_token_ids(true);
    Answer answer;
    answer.status = (*client)->Generate(request, {}, [&](const v1::GenerateResponse& response) {
      for (const int32_t id : response.delta().token_ids()) answer.ids.push_back(id);
      if (response.has_finished()) answer.worker = response.finished().relay().decode_worker();
      return absl::OkStatus();
    });
    return answer;
  };
  const Answer first = ask("first", 5), second = ask("second", 5), none = ask("", 5);
  ASSERT_TRUE(first.status.ok() && second.status.ok() && none.status.ok())
      << first.status << second.status << none.status;
  EXPECT_EQ(first.worker, "decode-0");
  EXPECT_EQ(second.worker, "decode-second-0");
  EXPECT_EQ(none.worker, "decode-0") << "the first is the default";
  EXPECT_EQ(first.ids.size(), 5u);
  EXPECT_EQ(first.ids, second.ids) << "they are one model";
  const Answer few = ask("short", 3), many = ask("short", 4);
  EXPECT_TRUE(few.status.ok()) << few.status;
  EXPECT_EQ(few.worker, "decode-0") << "another name of the first";
  EXPECT_EQ(many.status.code(), absl::StatusCode::kInvalidArgument) << many.status;
  EXPECT_EQ(ask("third", 3).status.code(), absl::StatusCode::kNotFound);

  const nlohmann::json before = Addresses();
  for (const auto& process : before["processes"]) {
    if (process["name"] == "decode-second-0") kill(process["pid"].get<pid_t>(), SIGKILL);
  }
  EXPECT_TRUE(ask("first", 5).status.ok());
  ASSERT_TRUE(serve.WaitFor("decode-second-0 is back on " + Worker("decode-second-0"))) << serve.seen();
  EXPECT_EQ(ask("second", 5).ids, first.ids);
  serve.Type("\x03");
  EXPECT_EQ(serve.Wait(), 0) << serve.seen();
}

// A node of a cluster: several workers in one process tree, each an address for a router elsewhere.
TEST_F(RealServiceTest, ARouterElsewhereUsesAllWorkersOfANodeAndOneThatDiesIsReplaced) {
  // An address of this run's own, on which the ports are free. Each prompt goes to the prefill worker: what
  // would be computed locally is for another policy to say.
  const std::string host =
      fmt::format("127.{}.{}.{}", 1 + RandomU64() % 250, RandomU64() % 256, 1 + RandomU64() % 250);
  BatonOnTerminal node({"serve",
                        "--model",
                        kModel,
                        "--threads",
                        "1",
                        "--kv-memory",
                        "64MiB",
                        "--log-level",
                        "warn",
                        "--no-router",
                        "--prefill",
                        "1",
                        "--decode",
                        "2",
                        "--worker-listen",
                        host + ":8480",
                        "--worker-metrics",
                        host + ":9480",
                        "--worker-prefix",
                        "node-a",
                        "--link-domain",
                        "node-a",
                        "--health",
                        host + ":8471",
                        "--announce",
                        announce()});
  ASSERT_TRUE(node.WaitFor("Ctrl-C ends the service")) << node.seen();
  const auto health = [&](const std::string& service) {
    return RunBaton({"health", "--server", host + ":8471", "--service", service}).code;
  };
  EXPECT_EQ(health("live"), 0);
  EXPECT_EQ(health(""), 0);

  auto router =
      Child::Spawn(BATON_BINARY_DIR "/bin/baton-router",
                   {"--exit-with-parent", "--model", kModel, "--policy", "least_loaded", "--prefill",
                    host + ":8480", "--decode", fmt::format("{0}:8481,{0}:8482", host), "--listen",
                    host + ":8470", "--metrics", host + ":9470", "--log-level", "warn"});
  ASSERT_TRUE(router.ok()) << router.status();
  const auto client = InferenceClient::Connect(host + ":8470", Scaled(absl::Seconds(60)));
  ASSERT_TRUE(client.ok()) << client.status();
  std::set<std::string> decode_workers, prefill_workers;
  int32_t token = 5;
  const auto ask = [&] {
    v1::GenerateRequest request;
    for (int i = 0; i < 200; ++i) request.mutable_token_ids()->add_ids(token + i % 7);
    ++token;
    request.mutable_stop()->set_max_tokens(2);
    v1::Finished finished;
    const absl::Status status = (*client)->Generate(request, {}, [&](const v1::GenerateResponse& response) {
      if (response.has_finished()) finished = response.finished();
      return absl::OkStatus();
    });
    EXPECT_TRUE(status.ok()) << status;
    decode_workers.insert(finished.relay().decode_worker());
    if (!finished.relay().prefill_worker().empty()) prefill_workers.insert(finished.relay().prefill_worker());
  };
  const auto uses_both = [&] {
    ask();
    return decode_workers.size() >= 2 || HasFailure();
  };
  Await(uses_both, "answers of both decode workers");
  EXPECT_EQ(decode_workers, std::set<std::string>({"node-a-decode-0", "node-a-decode-1"}));
  EXPECT_EQ(prefill_workers, std::set<std::string>({"node-a-prefill-0"}));

  // One worker dies: the node stays ready, the other one answers, and it comes back where it was.
  const nlohmann::json before = Addresses();
  for (const auto& process : before["processes"]) {
    if (process["name"] == "decode-1") kill(process["pid"].get<pid_t>(), SIGKILL);
  }
  ask();
  EXPECT_EQ(health(""), 0);
  ASSERT_TRUE(node.WaitFor("decode-1 is back on " + host + ":8482")) << node.seen();
  decode_workers.clear();
  const auto uses_it = [&] {
    ask();
    return decode_workers.contains("node-a-decode-1") || HasFailure();
  };
  Await(uses_it, "an answer of the worker that came back");
  EXPECT_TRUE(decode_workers.contains("node-a-decode-1"));
}

}  // namespace
}  // namespace baton::cli
