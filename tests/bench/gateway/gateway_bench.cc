// Costs of the gateway: the same streamed answers of the same fake router, asked for by gRPC directly and by
// HTTP through the gateway, one after the other in one run. Three processes on loopback: this one is the
// clients, one more is the fake router, the third is baton-gateway. The answers come at once, so all that is
// measured is the way.
//
// Prints requests per second and the time of a whole answer for each number of streams, what the gateway's
// process takes of the CPU for 1,000 streamed tokens, and what an open stream on which nothing happens takes
// of its memory. With --litellm, LiteLLM's proxy then passes the same answers on: clients ask it, and it asks
// the gateway.
#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "baton/v1/inference.grpc.pb.h"
#include "cli/serve/child.h"
#include "common/base/build_info.h"
#include "common/base/check.h"
#include "common/rpc/channel.h"
#include "common/rpc/lifecycle.h"
#include "lab/bench/machine.h"
#include "tests/bench/router/measured_process.h"
#include "tests/fakes/fake_inference.h"

namespace baton {
namespace {

using bench::AwaitLine;
using bench::MeasuredProcess;

// A conversation that asks for this is never answered.
constexpr char kForever[] = "wait";

struct Result {
  std::vector<double> seconds;  // of each answer, from its request to its end
  double elapsed = 0;

  double Quantile(double q) {
    BATON_CHECK(!seconds.empty());
    std::sort(seconds.begin(), seconds.end());
    return seconds[std::min(seconds.size() - 1,
                            static_cast<size_t>(q * static_cast<double>(seconds.size())))];
  }
  double PerSecond() const { return static_cast<double>(seconds.size()) / elapsed; }
};

// The fake router, in a process of its own: the last message says how many tokens, or that none ever comes.
int HostRouter() {
  fakes::FakeInference router({.chat = [](const v1::ChatRequest& request) {
    const std::string& wish = request.conversation().messages().rbegin()->content();
    if (wish == kForever) return fakes::AnswerWith({1}, 4, absl::InfiniteDuration());
    return fakes::AnswerWith(std::vector<int32_t>(std::stoul(wish), 7), 4);
  }});
  fmt::print("ready grpc={}\n", router.address());
  std::fflush(stdout);
  rpc::WaitForStop(/*exit_with_parent=*/true);
  return 0;
}

// Reads one answer as fast as it comes.
class Call final : public grpc::ClientReadReactor<v1::ChatResponse> {
 public:
  Call(v1::Inference::Stub& stub, const v1::ChatRequest& request, std::function<void(absl::Duration)> done)
      : done_(std::move(done)) {
    stub.async()->Chat(&context_, &request, this);
    StartRead(&event_);
    StartCall();
  }

 private:
  void OnReadDone(bool ok) override {
    if (ok) StartRead(&event_);
  }
  void OnDone(const grpc::Status& status) override {
    BATON_CHECK(status.ok()) << status.error_message();
    const auto done = std::move(done_);
    const absl::Duration took = absl::Now() - sent_;
    delete this;
    done(took);
  }

  grpc::ClientContext context_;
  v1::ChatResponse event_;
  std::function<void(absl::Duration)> done_;
  const absl::Time sent_ = absl::Now();
};

// `streams` calls at a time, until the time is over.
Result OverGrpc(const std::string& address, int streams, int tokens, absl::Duration length) {
  const auto channel = rpc::MakeChannel(address, rpc::kPublicKeepalive, nullptr);
  v1::Inference::Stub stub(channel);
  v1::ChatRequest request;
  v1::Message& message = *request.mutable_conversation()->add_messages();
  message.set_role("user");
  message.set_content(std::to_string(tokens));
  absl::Mutex mutex;
  Result result;
  int running = streams;
  const absl::Time begun = absl::Now(), end = begun + length;
  std::function<void()> start = [&] {
    new Call(stub, request, [&](absl::Duration took) {
      const bool more = absl::Now() < end;
      {
        absl::MutexLock lock(&mutex);
        result.seconds.push_back(absl::ToDoubleSeconds(took));
        if (!more) --running;
      }
      if (more) start();
    });
  };
  for (int i = 0; i < streams; ++i) start();
  absl::MutexLock lock(&mutex);
  const auto over = [&] { return running == 0; };
  mutex.Await(absl::Condition(&over));
  result.elapsed = absl::ToDoubleSeconds(absl::Now() - begun);
  return result;
}

sockaddr_in Loopback(uint16_t port) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  return address;
}

// HTTP clients that keep their connections, all on this thread.
class HttpClients {
 public:
  HttpClients(const std::string& address, int count) : epoll_(epoll_create1(0)) {
    const sockaddr_in to = Loopback(static_cast<uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))));
    clients_.resize(static_cast<size_t>(count));
    for (size_t i = 0; i < clients_.size(); ++i) {
      clients_[i].fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
      BATON_CHECK(clients_[i].fd >= 0) << "no descriptor: raise the limit (ulimit -n)";
      BATON_CHECK(connect(clients_[i].fd, reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0);
      const int on = 1;
      setsockopt(clients_[i].fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
      epoll_event event = {.events = EPOLLIN, .data = {.u64 = i}};
      BATON_CHECK(epoll_ctl(epoll_, EPOLL_CTL_ADD, clients_[i].fd, &event) == 0);
    }
  }
  ~HttpClients() {
    for (const Client& client : clients_) close(client.fd);
    close(epoll_);
  }

  Result Run(const std::string& wish, absl::Duration length) {
    Result result;
    const absl::Time begun = absl::Now(), end = begun + length;
    for (Client& client : clients_) Send(client, wish);
    for (size_t running = clients_.size(); running > 0;) {
      for (Client* const client : Ready()) {
        if (!Read(*client)) continue;
        result.seconds.push_back(absl::ToDoubleSeconds(absl::Now() - client->sent));
        absl::Now() < end ? Send(*client, wish) : static_cast<void>(--running);
      }
    }
    result.elapsed = absl::ToDoubleSeconds(absl::Now() - begun);
    return result;
  }

  // All of them ask, and have the heads of their answers.
  void Open(const std::string& wish) {
    for (Client& client : clients_) Send(client, wish);
    for (size_t heads = 0; heads < clients_.size();) {
      for (Client* const client : Ready()) {
        const bool had = !client->tail.empty();
        Read(*client);
        heads += !had;
      }
    }
  }

 private:
  struct Client {
    int fd = -1;
    absl::Time sent;
    std::string tail;  // the last bytes that came
  };

  static void Send(Client& client, const std::string& wish) {
    const std::string body =
        R"({"model": "small", "stream": true, "messages": [{"role": "user", "content": ")" + wish + R"("}]})";
    const std::string request = fmt::format(
        "POST /v1/chat/completions HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\n"
        "Content-Length: {}\r\n\r\n{}",
        body.size(), body);
    client.tail.clear();
    client.sent = absl::Now();
    BATON_CHECK(send(client.fd, request.data(), request.size(), MSG_NOSIGNAL) ==
                static_cast<ssize_t>(request.size()));
  }

  std::vector<Client*> Ready() {
    epoll_event events[256];
    const int count = epoll_wait(epoll_, events, 256, 60'000);
    BATON_CHECK(count > 0) << "nothing has come for a minute";
    std::vector<Client*> ready;
    for (int i = 0; i < count; ++i) ready.push_back(&clients_[events[i].data.u64]);
    return ready;
  }

  // True: the answer is whole.
  static bool Read(Client& client) {
    constexpr std::string_view kEnd = "data: [DONE]\n\n\r\n0\r\n\r\n";
    char bytes[65536];
    const ssize_t got = recv(client.fd, bytes, sizeof bytes, 0);
    BATON_CHECK(got > 0) << "the server has closed the connection after " << client.tail;
    client.tail.append(bytes, static_cast<size_t>(got));
    if (client.tail.size() > kEnd.size()) client.tail.erase(0, client.tail.size() - kEnd.size());
    return client.tail == kEnd;
  }

  const int epoll_;
  std::vector<Client> clients_;
};

std::string HttpAddress(const cli::Child& child) {
  const std::string ready = AwaitLine(child, "ready");
  const size_t at = ready.find("http=") + 5;
  return ready.substr(at, ready.find_first_of(" \n", at) - at);
}

cli::Child Spawn(const std::string& program, const std::vector<std::string>& arguments) {
  auto child = cli::Child::Spawn(program, arguments);
  BATON_CHECK(child.ok()) << child.status().ToString();
  return *std::move(child);
}

// LiteLLM's proxy before `api`, in a process of its own, and when it takes connections its address.
class LiteLlm {
 public:
  LiteLlm(const std::string& program, const std::string& api) {
    std::string folder = (std::filesystem::temp_directory_path() / "baton-bench-XXXXXX").string();
    BATON_CHECK(mkdtemp(folder.data()) != nullptr) << folder;
    folder_ = folder;
    const std::string config = folder + "/config.yaml";
    std::ofstream(config) << R"({"model_list": [{"model_name": "small", "litellm_params": )"
                          << R"({"model": "openai/small", "api_key": "any", "api_base": "http://)" << api
                          << R"(/v1"}}], "litellm_settings": {"telemetry": false}})";
    const uint16_t port = FreePort();
    address_ = fmt::format("127.0.0.1:{}", port);
    // Its log would fill a pipe that nobody reads. Without the first variable it asks the network
    // for prices; the second lets it serve without a key, as the gateway does here.
    child_ = std::make_unique<cli::Child>(Spawn(
        "/bin/sh",
        {"-c",
         R"(LITELLM_LOCAL_MODEL_COST_MAP=True LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY=true exec "$0" "$@" >/dev/null 2>&1)",
         program, "--config", config, "--host", "127.0.0.1", "--port", std::to_string(port)}));
    const absl::Time deadline = absl::Now() + absl::Minutes(3);
    while (!Takes(port)) {
      BATON_CHECK(absl::Now() < deadline && !child_->Reap().has_value())
          << program << " does not serve; to install it: deploy/tools/install --clients";
      absl::SleepFor(absl::Milliseconds(200));
    }
  }
  ~LiteLlm() {
    child_.reset();
    std::filesystem::remove_all(folder_);
  }
  const std::string& address() const { return address_; }
  pid_t pid() const { return child_->pid(); }

 private:
  static uint16_t FreePort() {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address = Loopback(0);
    socklen_t length = sizeof address;
    BATON_CHECK(bind(fd, reinterpret_cast<const sockaddr*>(&address), length) == 0 &&
                getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) == 0);
    close(fd);
    return ntohs(address.sin_port);
  }
  static bool Takes(uint16_t port) {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const sockaddr_in address = Loopback(port);
    const bool takes = connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
    close(fd);
    return takes;
  }

  std::filesystem::path folder_;
  std::string address_;
  std::unique_ptr<cli::Child> child_;
};

}  // namespace
}  // namespace baton

int main(int argc, char** argv) {
  using namespace baton;  // NOLINT: a benchmark's main
  double seconds = 5;
  int tokens = 100, idle = 10'000;
  bool host = false;
  std::string litellm;
  std::string binary = BATON_BINARY_DIR "/bin/baton-gateway";
  CLI::App app("Measures what the gateway adds to a router's answers.");
  app.add_option("--seconds", seconds, "Of each measurement")->capture_default_str();
  app.add_option("--tokens", tokens, "Of an answer")->capture_default_str();
  app.add_option("--idle", idle, "Open streams on which nothing happens")->capture_default_str();
  app.add_option("--gateway", binary, "The gateway to measure, to compare two builds of it")
      ->capture_default_str();
  app.add_option("--litellm", litellm, "LiteLLM's program, to measure its proxy before the gateway")
      ->check(CLI::ExistingFile);
  app.add_flag("--host-router", host)->group("");
  CLI11_PARSE(app, argc, argv);
  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
  rpc::CatchStopSignals();
  setvbuf(stdout, nullptr, _IOLBF, 0);
  if (host) return HostRouter();

  const lab::bench::Machine machine = lab::bench::ThisMachine();
  fmt::print("commit {}, {}, {} cores, {:.0f} GiB, {}\n", GetBuildInfo().commit, machine.cpu, machine.cores,
             static_cast<double>(machine.memory_bytes) / (1 << 30), machine.kernel);
  const cli::Child router = Spawn("/proc/self/exe", {"--host-router"});
  const std::string grpc = bench::AwaitGrpcAddress(router);
  const cli::Child gateway = Spawn(binary, {"--router", grpc, "--log-level", "warn", "--max-connections",
                                            "50000", "--max-connections-per-address", "50000"});
  const std::string http = HttpAddress(gateway);
  const MeasuredProcess process{gateway.pid()};
  const absl::Duration length = absl::Seconds(seconds);

  fmt::print("{} tokens in an answer, one in an event\n\n", tokens);
  fmt::print("{:>8} {:>8} {:>12} {:>12} {:>12} {:>16} {:>24}\n", "streams", "by", "answers/s", "p50, ms",
             "p99, ms", "1 token, ms", "gateway CPU, ms/1k tokens");
  for (const int streams : {1, 64, 1000}) {
    OverGrpc(grpc, streams, 1, absl::Seconds(1));  // warm
    Result short_grpc = OverGrpc(grpc, streams, 1, length);
    Result direct = OverGrpc(grpc, streams, tokens, length);
    fmt::print("{:>8} {:>8} {:>12.0f} {:>12.3f} {:>12.3f} {:>16.3f} {:>24}\n", streams, "gRPC",
               direct.PerSecond(), direct.Quantile(0.5) * 1e3, direct.Quantile(0.99) * 1e3,
               short_grpc.Quantile(0.5) * 1e3, "");
    HttpClients clients(http, streams);
    clients.Run("1", absl::Seconds(1));
    Result short_http = clients.Run("1", length);
    const double before = process.CpuSeconds();
    Result through = clients.Run(std::to_string(tokens), length);
    const double streamed = static_cast<double>(through.seconds.size()) * tokens;
    const double cpu = (process.CpuSeconds() - before) * 1e6 / streamed;
    fmt::print("{:>8} {:>8} {:>12.0f} {:>12.3f} {:>12.3f} {:>16.3f} {:>24.2f}\n", streams, "HTTP",
               through.PerSecond(), through.Quantile(0.5) * 1e3, through.Quantile(0.99) * 1e3,
               short_http.Quantile(0.5) * 1e3, cpu);
    fmt::print("{:>8} {:>8} {:>12} {:>12.3f} {:>12.3f} {:>16.3f}\n", "", "added", "",
               (through.Quantile(0.5) - direct.Quantile(0.5)) * 1e3,
               (through.Quantile(0.99) - direct.Quantile(0.99)) * 1e3,
               (short_http.Quantile(0.5) - short_grpc.Quantile(0.5)) * 1e3);
  }
  if (!litellm.empty()) {
    const LiteLlm proxy(litellm, http);
    const MeasuredProcess proxies{proxy.pid()};
    for (const int streams : {1, 64}) {
      HttpClients clients(proxy.address(), streams);
      clients.Run("1", absl::Seconds(2));
      Result short_answers = clients.Run("1", length);
      const double before = proxies.CpuSeconds(), gateway_before = process.CpuSeconds();
      Result through = clients.Run(std::to_string(tokens), length);
      const double streamed = static_cast<double>(through.seconds.size()) * tokens;
      const double cpu = (proxies.CpuSeconds() - before) * 1e6 / streamed;
      const double gateways = (process.CpuSeconds() - gateway_before) * 1e6 / streamed;
      fmt::print("{:>8} {:>8} {:>12.0f} {:>12.3f} {:>12.3f} {:>16.3f} {:>24}\n", streams, "LiteLLM",
                 through.PerSecond(), through.Quantile(0.5) * 1e3, through.Quantile(0.99) * 1e3,
                 short_answers.Quantile(0.5) * 1e3, fmt::format("{:.2f}, its own {:.2f}", gateways, cpu));
    }
    fmt::print("LiteLLM at rest: {:.0f} MiB; the gateway: {:.0f} MiB\n", proxies.RssMiB(), process.RssMiB());
  }
  const double resting = process.RssMiB();
  HttpClients waiting(http, idle);
  waiting.Open(kForever);
  const double holding = process.RssMiB();
  fmt::print("\n{} open streams: {:.0f} MiB, {:.1f} KiB each beyond {:.0f} MiB\n", idle, holding,
             (holding - resting) * 1024 / idle, resting);
  return 0;
}
