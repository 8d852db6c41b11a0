// `baton serve` with servers that are shell scripts: the real command, real processes, real signals.
#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>
#include <vector>

#include "cli/serve/cores.h"
#include "engine/device/thread_pool.h"
#include "tests/integration/cli/baton_process.h"
#include "tests/patience.h"

namespace baton::cli {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using Json = nlohmann::json;

// Announces the address that it was told to listen on, but for port 0, where it takes its process id as the
// port; logs how it was called; then waits for the end of its input.
constexpr char kScriptedServer[] = R"(#!/bin/sh
echo "called: $*" >&2
while [ $# -gt 0 ]; do
  case "$1" in
    --listen) listen=$2; shift;;
    --metrics) metrics=$2; shift;;
  esac
  shift
done
case "$listen" in *:0) listen="${listen%:0}:$$";; esac
case "$metrics" in *:0) metrics="${metrics%:0}:$$";; esac
echo "ready grpc=$listen metrics=$metrics"
exec cat
)";

class ServeTest : public ::testing::Test {
 protected:
  ServeTest() : folder_(fs::path(::testing::TempDir()) / fmt::format("serve-{}", getpid())) {
    fs::create_directories(folder_ / "bin");
    fs::create_directories(folder_ / "model");
    std::ofstream(folder_ / "model" / "config.json") << "{}";
    // Servers are looked for beside the binary.
    fs::copy_file(fs::path(BATON_BINARY_DIR) / "bin" / "baton", folder_ / "bin" / "baton");
    for (const char* server : {"baton-router", "baton-prefill", "baton-decode"})
      Install(server, kScriptedServer);
  }
  ~ServeTest() override {
    if (pid_ > 0) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
    if (err_ >= 0) close(err_);
    fs::remove_all(folder_);
  }

  void Install(const std::string& server, const std::string& script) {
    std::ofstream(folder_ / "bin" / server) << script;
    fs::permissions(folder_ / "bin" / server, fs::perms::owner_all);
  }

  // `baton serve` on the fake model, on ports that the system chooses unless `arguments` name others.
  void Start(std::vector<std::string> arguments) {
    for (const char* flag : {"--listen", "--metrics"}) {
      if (std::find(arguments.begin(), arguments.end(), flag) == arguments.end()) {
        arguments.insert(arguments.end(), {flag, "127.0.0.1:0"});
      }
    }
    int err[2];
    ASSERT_EQ(pipe2(err, O_CLOEXEC), 0);
    const std::string binary = folder_ / "bin" / "baton";
    std::vector<std::string> all = {binary, "serve", "--model", folder_ / "model"};
    all.insert(all.end(), arguments.begin(), arguments.end());
    const Program child(binary, std::move(all));
    pid_ = fork();
    ASSERT_GE(pid_, 0);
    if (pid_ == 0) {
      dup2(err[1], STDOUT_FILENO);
      dup2(err[1], STDERR_FILENO);
      child.Exec();
    }
    close(err[1]);
    err_ = err[0];
  }

  // Reads what it prints until `text` comes up, after what was found before.
  bool WaitFor(const std::string& text) {
    while (true) {
      if (const size_t at = seen_.find(text, searched_); at != std::string::npos) {
        searched_ = at + text.size();
        return true;
      }
      pollfd fd = {err_, POLLIN, 0};
      if (poll(&fd, 1, kPatienceMs) <= 0) return false;
      char bytes[4096];
      const ssize_t got = read(err_, bytes, sizeof(bytes));
      if (got <= 0) return false;
      seen_.append(bytes, got);
    }
  }

  // Anywhere in what was said, or said yet: the supervisor's words and its children's come by different
  // pipes, in either order.
  bool Says(const std::string& text) {
    const size_t searched = std::exchange(searched_, 0);
    const bool said = WaitFor(text);
    searched_ = std::max(searched, searched_);
    return said;
  }

  // How a process was called, by its log file of --log-dir. It may have said that it is ready before: that
  // comes by another pipe.
  std::string Called(const std::string& name) {
    std::string line;
    Await(
        [&] {
          std::ifstream log(folder_ / "logs" / (name + ".log"));
          return std::getline(log, line) && !log.eof();
        },
        "the first line of the log of " + name);
    return line;
  }

  // Its exit code; -1 if a signal ended it.
  int Wait() {
    WaitFor("\x01 never printed");
    int status = 0;
    waitpid(pid_, &status, 0);
    pid_ = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

  std::string announce() const { return folder_ / "addresses.json"; }
  Json Addresses() const {
    std::ifstream file(announce());
    return Json::parse(file, nullptr, false);
  }
  Json Find(const std::string& name) const {
    const Json addresses = Addresses();
    for (const Json& process : addresses.at("processes")) {
      if (process["name"] == name) return process;
    }
    return {};
  }

  const fs::path folder_;
  pid_t pid_ = 0;
  int err_ = -1;
  std::string seen_;
  size_t searched_ = 0;
};

TEST_F(ServeTest, StartsEverythingTellsWhereAndEndsInOrder) {
  Start({"--prefill", "2", "--decode", "2", "--kv-memory", "64MiB", "--listen", "127.0.0.1:7001", "--metrics",
         "127.0.0.1:7002", "--announce", announce()});
  ASSERT_TRUE(WaitFor("Ctrl-C ends the service")) << seen_;
  const Json router = Find("router");
  EXPECT_EQ(router["grpc"], "127.0.0.1:7001");
  EXPECT_EQ(Addresses()["router"], "127.0.0.1:7001");
  EXPECT_EQ(Addresses()["metrics"], "127.0.0.1:7002");
  EXPECT_EQ(Addresses()["processes"].size(), 5u);
  // The router was told where the workers are.
  EXPECT_TRUE(Says(fmt::format("--decode {},{}", Find("decode-0")["grpc"].get<std::string>(),
                               Find("decode-1")["grpc"].get<std::string>())))
      << seen_;
  EXPECT_TRUE(Says(fmt::format("--prefill {},{}", Find("prefill-0")["grpc"].get<std::string>(),
                               Find("prefill-1")["grpc"].get<std::string>())))
      << seen_;
  EXPECT_TRUE(Says("--kv-memory 67108864")) << seen_;
  EXPECT_TRUE(Says("baton chat --server 127.0.0.1:7001")) << seen_;
  kill(pid_, SIGTERM);
  EXPECT_EQ(Wait(), 0) << seen_;
  EXPECT_FALSE(fs::exists(announce())) << "addresses of a service that is gone mislead";
}

TEST_F(ServeTest, PrefillAndDecodeWorkersShareTheCores) {
  Start({"--announce", announce()});
  ASSERT_TRUE(WaitFor("Ctrl-C ends the service")) << seen_;
  const ThreadShares shares = SplitCores(device::UsableCores(), 1, 1);
  EXPECT_TRUE(Says(fmt::format("--threads {}", shares.prefill))) << seen_;
  EXPECT_TRUE(Says(fmt::format("--threads {}", shares.decode))) << seen_;
}

TEST_F(ServeTest, WhoeverSaysHowManyThreadsHasThem) {
  Start({"--threads", "3", "--announce", announce()});
  ASSERT_TRUE(WaitFor("Ctrl-C ends the service")) << seen_;
  EXPECT_TRUE(Says("--threads 3")) << seen_;
}

TEST_F(ServeTest, AKilledWorkerIsReportedAndComesBackWhereItWas) {
  Start({"--announce", announce()});
  ASSERT_TRUE(WaitFor("Ctrl-C ends the service")) << seen_;
  const Json before = Find("decode-0");
  kill(before["pid"], SIGKILL);
  ASSERT_TRUE(WaitFor(fmt::format("decode-0 (pid {}) died: killed by SIGKILL; starting it again in",
                                  before["pid"].get<int>())))
      << seen_;
  // A server that is told no port takes another one each time.
  ASSERT_TRUE(WaitFor(fmt::format("decode-0 is back on {} (pid ", before["grpc"].get<std::string>())))
      << seen_;
  EXPECT_TRUE(Says(fmt::format("--listen {} --metrics {}", before["grpc"].get<std::string>(),
                               before["metrics"].get<std::string>())))
      << seen_;
}

TEST_F(ServeTest, AWorkerThatRefusesEndsTheServiceWithItsWords) {
  Install("baton-decode", "#!/bin/sh\necho 'the model has no tensor q_proj' >&2\nexit 1\n");
  Start({});
  EXPECT_EQ(Wait(), 1);
  EXPECT_THAT(seen_, HasSubstr("decode-0 ended before it was ready (exit code 1)"));
  EXPECT_THAT(seen_, HasSubstr("the model has no tensor q_proj"));
}

TEST_F(ServeTest, AMissingServerIsNamed) {
  fs::remove(folder_ / "bin" / "baton-router");
  Start({});
  EXPECT_EQ(Wait(), 1);
  EXPECT_THAT(seen_, HasSubstr("baton-router is not in"));
}

TEST_F(ServeTest, LogsGoToFilesOnRequest) {
  Start({"--log-dir", folder_ / "logs", "--json"});
  ASSERT_TRUE(WaitFor("\"router\"")) << seen_;
  kill(pid_, SIGINT);
  EXPECT_EQ(Wait(), 0);
  EXPECT_EQ(seen_.find("called:"), std::string::npos);
  EXPECT_THAT(Called("prefill-0"), HasSubstr("called: --exit-with-parent --model"));
}

TEST_F(ServeTest, TheRouterAloneGetsTheTargets) {
  Start({"--tail-share", "0.25", "--slo-ttft", "3", "--slo-tpot", "0.5", "--log-dir", folder_ / "logs",
         "--json"});
  ASSERT_TRUE(WaitFor("\"router\"")) << seen_;
  kill(pid_, SIGINT);
  EXPECT_EQ(Wait(), 0);
  EXPECT_THAT(Called("router"), HasSubstr("--tail-share 0.25 --slo-ttft 3 --slo-tpot 0.5"));
  for (const char* worker : {"prefill-0", "decode-0"}) {
    for (const char* flag : {"--tail-share", "--slo-"}) {
      EXPECT_THAT(Called(worker), testing::Not(HasSubstr(flag))) << worker;
    }
  }
}

TEST_F(ServeTest, TargetsWithoutARouterAreRefused) {
  Start({"--no-router", "--slo-ttft", "3"});
  EXPECT_EQ(Wait(), 2);
  EXPECT_THAT(seen_, HasSubstr("are the router's, which tells its workers: give them to it"));
}

TEST_F(ServeTest, ATakenPortIsSaidOnceBeforeAnythingStarts) {
  const int taken = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
  socklen_t size = sizeof(address);
  ASSERT_EQ(bind(taken, reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(listen(taken, 1), 0);
  ASSERT_EQ(getsockname(taken, reinterpret_cast<sockaddr*>(&address), &size), 0);
  const std::string where = fmt::format("127.0.0.1:{}", ntohs(address.sin_port));
  for (const char* flag : {"--listen", "--metrics"}) {
    seen_.clear();
    searched_ = 0;
    const std::string other = flag == std::string("--listen") ? "--metrics" : "--listen";
    Start({flag, where, other, "127.0.0.1:0"});
    EXPECT_EQ(Wait(), 1);
    EXPECT_EQ(seen_,
              fmt::format("baton: {} {}: the port is taken, perhaps by another `baton serve`: give another "
                          "port, or 0 for a free one\n",
                          flag, where));
    close(err_);
  }
  err_ = -1;
  close(taken);
}

TEST_F(ServeTest, WhatCanNotBeWrittenIsSaidBeforeAnythingStarts) {
  std::ofstream(folder_ / "file") << "no folder";
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"--announce", folder_ / "nowhere" / "addresses.json"}, "there is no folder"},
      {{"--announce", folder_}, "is a folder"},
      {{"--announce", "/proc/addresses.json"}, "can't write in /proc"},
      {{"--observability", folder_ / "file"}, "can't make the folder"},
      {{"--observability", "/proc/watch"}, "can't make the folder"},
  };
  for (const auto& [flags, why] : cases) {
    seen_.clear();
    searched_ = 0;
    Start(flags);
    EXPECT_EQ(Wait(), 1);
    EXPECT_THAT(seen_, HasSubstr(flags[0] + " " + flags[1] + ": ")) << seen_;
    EXPECT_THAT(seen_, HasSubstr(why));
    EXPECT_EQ(seen_.find("called:"), std::string::npos) << seen_;
    close(err_);
  }
  err_ = -1;
}

TEST_F(ServeTest, HandsOnWhatWorkersTake) {
  Start({"--backend", "cuda", "--tp", "2", "--link", "nccl", "--link-timeout", "3", "--link-pairs", "7",
         "--key-dtype", "bf16", "--value-dtype", "i8", "--tolerant", "--peer-fetch", "never",
         "--drain-seconds", "4"});
  ASSERT_TRUE(WaitFor("Ctrl-C ends the service")) << seen_;
  for (const char* worker : {"prefill-0", "decode-0"}) {
    ASSERT_TRUE(Says(fmt::format("--worker-id {} ", worker))) << seen_;
    const size_t begin = seen_.find(fmt::format("--worker-id {} ", worker));
    const std::string line = seen_.substr(begin, seen_.find('\n', begin) - begin);
    for (const char* flag :
         {"--backend=cuda", "--tp=2", "--link=nccl", "--link-timeout=3", "--link-pairs=7", "--key-dtype=bf16",
          "--value-dtype=i8", "--tolerant", "--peer-fetch=never", "--drain-seconds 4"}) {
      EXPECT_THAT(line, HasSubstr(flag));
    }
  }
}

TEST_F(ServeTest, AFlagThatWorkersWouldRefuseIsRefusedBeforeTheyStart) {
  Start({"--key-dtype", "f12"});
  EXPECT_EQ(Wait(), 2);
  EXPECT_THAT(seen_, HasSubstr("--key-dtype: \"f12\" is not one of f32, bf16, f16, f8, i8, i4"));
}

TEST_F(ServeTest, ProcessesShareAKeyOfTheirOwnThatGoesWithThem) {
  Start({});
  ASSERT_TRUE(WaitFor("Ctrl-C ends the service")) << seen_;
  for (const char* name : {"prefill-0 | called", "decode-0  | called", "router    | called"}) {
    ASSERT_TRUE(Says(name)) << seen_;
  }
  const std::string flag = "--fleet-key-file ";
  std::set<std::string> files;
  size_t given = 0;
  for (size_t at = 0; (at = seen_.find(flag, at)) != std::string::npos; ++given) {
    at += flag.size();
    files.insert(seen_.substr(at, seen_.find_first_of(" \n", at) - at));
  }
  EXPECT_EQ(given, 3u) << seen_;
  ASSERT_EQ(files.size(), 1u) << seen_;
  const fs::path file = *files.begin();
  EXPECT_EQ(fs::status(file).permissions(), fs::perms::owner_read | fs::perms::owner_write);
  EXPECT_EQ(fs::status(file.parent_path()).permissions(), fs::perms::owner_all);
  EXPECT_GE(fs::file_size(file), 32u);
  kill(pid_, SIGTERM);
  EXPECT_EQ(Wait(), 0);
  EXPECT_FALSE(fs::exists(file.parent_path()));
}

TEST_F(ServeTest, AKeyThatIsGivenIsTheKey) {
  std::ofstream(folder_ / "key") << "0123456789abcdef";
  Start({"--fleet-key-file", folder_ / "key"});
  ASSERT_TRUE(WaitFor("Ctrl-C ends the service")) << seen_;
  EXPECT_TRUE(Says("--fleet-key-file " + (folder_ / "key").string())) << seen_;
  EXPECT_EQ(seen_.find("baton-serve-"), std::string::npos) << seen_;
  kill(pid_, SIGTERM);
  EXPECT_EQ(Wait(), 0);
  EXPECT_TRUE(fs::exists(folder_ / "key"));
}

// decode-1 dies at each start once the service is up; decode-0 goes on. When that dies too, nobody is left.
TEST_F(ServeTest, OneRedundantWorkerThatKeepsDyingEndsNothing) {
  const std::string mark = folder_ / "broken";
  Install("baton-decode", fmt::format("#!/bin/sh\nif test -e {0}-all; then exit 9; fi\n"
                                      "case \"$*\" in *decode-1*) test -e {0} && exit 7;; esac\n{1}",
                                      mark, kScriptedServer + sizeof("#!/bin/sh")));
  Start({"--decode", "2", "--announce", announce()});
  ASSERT_TRUE(WaitFor("Ctrl-C ends the service")) << seen_;
  std::ofstream{mark} << "broken";
  kill(Find("decode-1")["pid"], SIGKILL);
  ASSERT_TRUE(WaitFor(
      "died: exit code 7; 5 quick deaths in a row, the service continues without it; starting it again in"))
      << seen_;
  EXPECT_TRUE(fs::exists(announce())) << "the service goes on";
  std::ofstream(mark + "-all") << "broken";
  kill(Find("decode-0")["pid"], SIGKILL);
  EXPECT_EQ(Wait(), 1) << seen_;
  EXPECT_THAT(seen_, HasSubstr("decode-0 died 5 times within"));
}

TEST_F(ServeTest, EverythingDiesWithAKilledSupervisor) {
  Start({"--announce", announce()});
  ASSERT_TRUE(WaitFor("Ctrl-C ends the service")) << seen_;
  const int pidfd = static_cast<int>(syscall(SYS_pidfd_open, Find("decode-0")["pid"].get<int>(), 0));
  ASSERT_GE(pidfd, 0);
  kill(pid_, SIGKILL);
  pollfd fd = {pidfd, POLLIN, 0};
  EXPECT_EQ(poll(&fd, 1, kPatienceMs), 1);
  close(pidfd);
}

// Three models, of which one has two names: the router is told of all in a file, and that goes with the
// service.
TEST_F(ServeTest, EachModelHasWorkersOfItsOwn) {
  for (const char* const name : {"other", "guard"}) {
    fs::create_directories(folder_ / name);
    std::ofstream(folder_ / name / "config.json") << "{}";
  }
  std::ofstream(folder_ / "models.json")
      << Json({{"models",
                {{{"folder", folder_ / "model"}, {"name", "alias"}, {"max_tokens", 7}},
                 {{"folder", folder_ / "guard"}, {"classifier", "auto"}},
                 {{"folder", folder_ / "other"},
                  {"name", "org/other"},
                  {"workers",
                   {{"prefill", 0},
                    {"decode", 2},
                    {"flags", {"--kv-memory=32MiB"}},
                    {"decode_flags", {"--max-running=5"}}}}}}}})
             .dump();
  Start({"--models", folder_ / "models.json", "--kv-memory", "64MiB", "--max-running", "9", "--log-dir",
         folder_ / "logs", "--announce", announce()});
  ASSERT_TRUE(WaitFor("Ctrl-C ends the service")) << seen_;
  for (const char* const line :
       {"model is served by 1 prefill and 1 decode worker(s)", "alias is another name of model",
        "guard judges texts, by 1 decode worker(s)",
        "org/other is served by 0 prefill and 2 decode worker(s)"}) {
    EXPECT_THAT(seen_, HasSubstr(line));
  }
  const Json addresses = Addresses();
  EXPECT_EQ(addresses["models"], Json({"model", "alias", "guard", "org/other"}));
  EXPECT_EQ(Find("decode-org-other-1")["model"], "org/other");
  EXPECT_THAT(Called("decode-0"),
              testing::AllOf(HasSubstr("--kv-memory 67108864"), HasSubstr("--max-running 9")));
  EXPECT_THAT(Called("decode-org-other-0"),
              testing::AllOf(HasSubstr("--model-name org/other"), HasSubstr("--kv-memory=32MiB"),
                             HasSubstr("--max-running=5"), testing::Not(HasSubstr("67108864"))));
  EXPECT_THAT(Called("decode-guard-0"),
              testing::AllOf(HasSubstr("--threads=1"), HasSubstr("--kv-memory=64MiB"),
                             testing::Not(HasSubstr("--max-running"))));
  const std::string router = Called("router");
  EXPECT_THAT(router,
              HasSubstr(fmt::format("--decode {} --prefill {}", Find("decode-0")["grpc"].get<std::string>(),
                                    Find("prefill-0")["grpc"].get<std::string>())));
  const std::string flag = "--models ";
  ASSERT_THAT(router, HasSubstr(flag));
  const size_t at = router.find(flag) + flag.size();
  const fs::path written = router.substr(at, router.find(' ', at) - at);
  std::ifstream file(written);
  const Json models = Json::parse(file)["models"];
  ASSERT_EQ(models.size(), 3u);
  EXPECT_EQ(models[0], Json({{"folder", folder_ / "model"}, {"name", "alias"}, {"max_tokens", 7}}))
      << "the workers of the router's flags serve it";
  EXPECT_EQ(models[1]["decode"], Json::array({Find("decode-guard-0")["grpc"]}));
  EXPECT_EQ(models[2]["decode"],
            Json::array({Find("decode-org-other-0")["grpc"], Find("decode-org-other-1")["grpc"]}));
  EXPECT_FALSE(models[2].contains("workers"));
  kill(pid_, SIGTERM);
  EXPECT_EQ(Wait(), 0) << seen_;
  EXPECT_FALSE(fs::exists(written));
}

TEST_F(ServeTest, AFlagThatEachWorkersPlaceSetsIsRefused) {
  Start({"--decode", "2", "--decode-flag=--worker-id=same"});
  EXPECT_EQ(Wait(), 2);
  EXPECT_THAT(seen_, HasSubstr("--worker-id is the same for all workers, or set for each by `baton serve`"));
}

TEST_F(ServeTest, WhatAModelsFileCanNotMeanIsSaidBeforeAnythingStarts) {
  const auto entry = [&](const std::string& more) {
    return fmt::format(R"({{"models": [{{"folder": "{}", "name": "second"{}}}]}})",
                       (folder_ / "model").string(), more);
  };
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"({"models": [})", "models.json"},
      {R"({"models": {}})", "field \"models\" is missing, or not a list"},
      {entry(R"(, "decode": ["a:1"])"), "models[0]: it says where workers are"},
      {entry(R"(, "max_tokens": -1)"), "models[0]: field \"max_tokens\""},
      {entry(R"(, "Tenants": [])"), "models[0]: unknown field \"Tenants\""},
      {entry(R"(, "workers": {"decode": 0})"), "models[0]: workers: field \"decode\""},
      {entry(R"(, "workers": {"threads": 1})"), "models[0]: workers: unknown field \"threads\""},
      {entry(R"(, "workers": {"flags": ["-x"]})"), "field \"flags\" is not a list of flags"},
      {entry(R"(, "workers": {"flags": ["--model=x"]})"),
       "--model is the same for all workers, or set for each"},
      {R"({"models": [{"folder": "/nowhere/at/all"}]})", "/nowhere/at/all"},
      {fmt::format(R"({{"models": [{{"folder": "{}"}}]}})", (folder_ / "model").string()),
       "two models are named model"},
  };
  for (const auto& [text, why] : cases) {
    seen_.clear();
    searched_ = 0;
    std::ofstream(folder_ / "models.json") << text;
    Start({"--models", folder_ / "models.json"});
    EXPECT_EQ(Wait(), 1) << text;
    EXPECT_THAT(seen_, HasSubstr(why)) << text;
    EXPECT_EQ(seen_.find("called:"), std::string::npos) << seen_;
    close(err_);
  }
  err_ = -1;
}

// One node with 8 GPUs: each worker has its own, and an address that routers elsewhere can be told of
// beforehand.
TEST_F(ServeTest, WorkersHaveTheGpusAndPortsThatTheirPlacesSay) {
  Start({"--backend",
         "cuda",
         "--no-router",
         "--prefill-devices",
         "0-1",
         "--decode-devices",
         "2-3,6-7",
         "--tp",
         "2",
         "--worker-listen",
         "127.0.0.1:7100",
         "--worker-metrics",
         "127.0.0.1:7200",
         "--worker-prefix",
         "pod-3",
         "--prefill-flag=--chunk-tokens=2048",
         "--decode-flag=--max-running=64",
         "--decode-flag=--link-floor-gbps=5",
         "--announce",
         announce()});
  ASSERT_TRUE(WaitFor("Ctrl-C ends the service")) << seen_;
  const std::vector<std::pair<std::string, std::vector<std::string>>> wanted = {
      {"prefill-0",
       {"--listen 127.0.0.1:7100 --metrics 127.0.0.1:7200", "--devices 0,1 ", "--chunk-tokens=2048"}},
      {"decode-0",
       {"--listen 127.0.0.1:7101 --metrics 127.0.0.1:7201", "--devices 2,3 ", "--max-running=64",
        "--link-floor-gbps=5"}},
      {"decode-1", {"--listen 127.0.0.1:7102 --metrics 127.0.0.1:7202", "--devices 6,7 ", "--tp=2"}},
  };
  for (const auto& [name, flags] : wanted) {
    const std::string begins = fmt::format("--worker-id pod-3-{} ", name);
    ASSERT_TRUE(Says(begins)) << seen_;
    const size_t begin = seen_.find(begins);
    const std::string line = seen_.substr(begin, seen_.find('\n', begin) - begin);
    for (const std::string& flag : flags) EXPECT_THAT(line, HasSubstr(flag));
    EXPECT_EQ(line.find(name.rfind("decode", 0) == 0 ? "2048" : "--max-running"), std::string::npos) << line;
  }
  EXPECT_EQ(Addresses()["processes"].size(), 3u);
  EXPECT_FALSE(Addresses().contains("router"));
  EXPECT_EQ(seen_.find("--fleet-key-file"), std::string::npos) << "routers elsewhere could not know it";
  EXPECT_EQ(seen_.find("baton chat"), std::string::npos) << "nobody answers here";
  // One that dies comes back with the same GPUs, where routers look for it.
  kill(Find("decode-1")["pid"], SIGKILL);
  ASSERT_TRUE(WaitFor("decode-1 is back on 127.0.0.1:7102 (pid ")) << seen_;
  const size_t again = seen_.rfind("--worker-id pod-3-decode-1 ");
  EXPECT_THAT(seen_.substr(again), HasSubstr("--devices 6,7 "));
  kill(pid_, SIGTERM);
  EXPECT_EQ(Wait(), 0) << seen_;
}

TEST_F(ServeTest, WorkersOnGpusTakeOneAfterTheOther) {
  Start({"--backend", "cuda", "--decode", "2"});
  ASSERT_TRUE(WaitFor("Ctrl-C ends the service")) << seen_;
  for (const char* text : {"--devices 0 ", "--devices 1 ", "--devices 2 "}) EXPECT_TRUE(Says(text)) << seen_;
}

TEST_F(ServeTest, GpusThatDoNotFitAreRefusedBeforeAnythingStarts) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"--decode-devices", "0"}, "no worker computes on one: use --backend cuda"},
      {{"--backend", "cuda", "--prefill-devices", "0-2", "--decode-devices", "4-5", "--tp", "2"},
       "--prefill-devices names 3 GPU(s), and 1 prefill worker(s) with --tp 2 take 2"},
      {{"--backend", "cuda", "--prefill-devices", "0-1", "--prefill", "1", "--decode-devices", "2"},
       "--prefill-devices names 2 GPU(s), and 1 prefill worker(s)"},
      {{"--backend", "cuda", "--prefill-devices", "0"}, "too few GPUs for a decode worker"},
      {{"--backend", "cuda", "--prefill-devices", "0", "--decode-devices", "0"}, "give --kv-memory"},
      {{"--backend", "cuda", "--prefill-devices", "0", "--decode-devices", "0", "--kv-memory", "1GiB",
        "--link", "nccl"},
       "NCCL takes no two ranks on one GPU"},
      {{"--backend", "cuda", "--decode-devices", "x"}, "\"x\" is no list of numbers"},
      {{"--no-router", "--worker-listen", "127.0.0.1:65535"}, "worker 1 would need port 65536"},
  };
  for (const auto& [flags, why] : cases) {
    seen_.clear();
    searched_ = 0;
    Start(flags);
    EXPECT_NE(Wait(), 0) << why;
    EXPECT_THAT(seen_, HasSubstr(why));
    EXPECT_EQ(seen_.find("called:"), std::string::npos) << seen_;
    close(err_);
  }
  err_ = -1;
}

}  // namespace
}  // namespace baton::cli
