#include "tests/e2e/fleet.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <span>
#include <utility>

#include "common/base/check.h"
#include "common/rpc/channel.h"
#include "common/rpc/status.h"
#include "nlohmann/json.hpp"
#include "protocol/client/answer_event.h"
#include "protocol/client/answer_fold.h"
#include "tests/e2e/http_get.h"
#include "tests/patience.h"

namespace baton::e2e {
namespace {

constexpr auto kLongest = std::chrono::seconds(120);  // before it is scaled
constexpr int kReadyMilliseconds = Scaled(120'000);

std::vector<std::string> Merge(std::vector<std::string> flags, const std::vector<std::string>& more) {
  flags.insert(flags.end(), more.begin(), more.end());
  return flags;
}

void AddGate(const Gate& gate, std::vector<std::string>& arguments) {
  arguments.insert(arguments.end(), {"--gate", gate.path()});
}

template <typename Processes>
std::string Addresses(const Processes& processes) {
  std::string joined;
  for (const auto& process : processes) joined += (joined.empty() ? "" : ",") + process->grpc();
  return joined;
}

// The calling thread in another network namespace; children started meanwhile stay there. (The thread must be
// this one: children end with the thread that started them.)
class Elsewhere {
 public:
  explicit Elsewhere(int space) {
    if (space < 0) return;
    home_ = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
    BATON_CHECK(home_ >= 0 && setns(space, CLONE_NEWNET) == 0);
  }
  ~Elsewhere() {
    if (home_ < 0) return;
    BATON_CHECK(setns(home_, CLONE_NEWNET) == 0);
    close(home_);
  }

 private:
  int home_ = -1;
};

// Waits until 127.0.0.1:PORT can be listened on. Ports of connections are of the same range: one that another
// process has opened meanwhile may have got it, for as long as it lives.
void AwaitFree(const std::string& address) {
  sockaddr_in place{};
  place.sin_family = AF_INET;
  place.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  place.sin_port = htons(static_cast<uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))));
  const auto is_free = [&place] {
    const int probe = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const int yes = 1;
    setsockopt(probe, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    const bool free = bind(probe, reinterpret_cast<const sockaddr*>(&place), sizeof(place)) == 0;
    close(probe);
    return free;
  };
  BATON_CHECK(Await(is_free, "a free port", kLongest)) << address << " stays taken";
}

// Reads the stream to its end.
template <typename Response>
Answer Read(grpc::ClientReader<Response>& reader) {
  protocol::AnswerFold fold;
  for (Response response; reader.Read(&response);) fold.Add(protocol::AnswerEvent(response));
  Answer answer{.status = rpc::FromGrpc(reader.Finish()), .started = fold.started()};
  for (const v1::AnswerChoice& choice : fold.choices()) {
    answer.tokens.insert(answer.tokens.end(), choice.token_ids().begin(), choice.token_ids().end());
    answer.digests.insert(answer.digests.end(), choice.logits_digests().begin(),
                          choice.logits_digests().end());
    answer.text += choice.text();
    if (choice.has_finished()) answer.finished.push_back(choice.finished());
  }
  return answer;
}

}  // namespace

Process::Process(const std::string& program, const std::vector<std::string>& arguments)
    : child_([&] {
        auto child = cli::Child::Spawn(BATON_BINARY_DIR "/bin/" + program, arguments);
        BATON_CHECK(child.ok()) << child.status().ToString();
        return *std::move(child);
      }()) {
  std::string output;
  while (output.find('\n') == std::string::npos) {
    pollfd fds[2] = {{child_.output_fd(), POLLIN, 0}, {child_.error_fd(), POLLIN, 0}};
    BATON_CHECK(poll(fds, 2, kReadyMilliseconds) > 0) << program << " is not ready: " << errors_;
    char buffer[4096];
    for (auto [fd, text] : {std::pair(child_.output_fd(), &output), std::pair(child_.error_fd(), &errors_)}) {
      for (ssize_t n; (n = read(fd, buffer, sizeof(buffer))) > 0;) text->append(buffer, n);
    }
    BATON_CHECK((fds[0].revents & POLLHUP) == 0 || output.find('\n') != std::string::npos)
        << program << " ended: " << errors_;
  }
  const auto value = [&](const std::string& key) {
    const size_t begin = output.find(key) + key.size();
    return output.substr(begin, output.find_first_of(" \n", begin) - begin);
  };
  grpc_ =
      value(output.find("grpc=") == std::string::npos ? "http=" : "grpc=");  // the gateway has one for both
  metrics_ = value("metrics=");
}

cli::ExitStatus Process::Wait() {
  pollfd fds[3] = {
      {child_.ended_fd(), POLLIN, 0}, {child_.output_fd(), POLLIN, 0}, {child_.error_fd(), POLLIN, 0}};
  while (true) {
    BATON_CHECK(poll(fds, 3, kReadyMilliseconds) > 0) << "the process does not end";
    char buffer[4096];
    for (pollfd& fd : std::span(fds).subspan(1)) {
      for (ssize_t n; fd.fd >= 0 && (n = read(fd.fd, buffer, sizeof(buffer))) > 0;) {
        if (fd.fd == child_.error_fd()) errors_.append(buffer, n);
      }
      if ((fd.revents & POLLHUP) != 0) fd.fd = -1;
    }
    if (auto status = child_.Reap(); status.has_value()) return *status;
  }
}

void Process::AwaitStopped() const {
  const auto is_stopped = [path = "/proc/" + std::to_string(pid()) + "/stat"] {
    std::ifstream file(path);
    std::string stat;
    std::getline(file, stat);
    return stat.substr(stat.rfind(')') + 2, 1) == "T";
  };
  Await(is_stopped, "a process that is stopped");
}

std::string Process::TakeErrors() {
  std::string errors = std::exchange(errors_, {});
  while (errors.empty()) {
    pollfd written = {child_.error_fd(), POLLIN, 0};
    BATON_CHECK(poll(&written, 1, kReadyMilliseconds) > 0) << "the process says nothing";
    BATON_CHECK((written.revents & POLLHUP) == 0) << "the process ended";
    char buffer[4096];
    for (ssize_t n; (n = read(written.fd, buffer, sizeof(buffer))) > 0;) errors.append(buffer, n);
  }
  return errors;
}

Fleet::Fleet(const FleetOptions& options)
    : fleet_file_(options.fleet_file),
      worker_folder_(options.gated && options.worker_folder.empty() ? kGatedWorkers : options.worker_folder),
      prefill_gates_(options.gated ? options.prefill : 0),
      decode_gates_(options.gated ? options.decode : 0) {
  std::vector<std::string> keepalive;
  if (!options.keepalive.empty()) keepalive = {"--fleet-keepalive", options.keepalive};
  const std::vector<std::string> worker =
      Merge({"--model", options.model, "--threads", "1", "--kv-memory", options.kv_memory, "--log-level",
             "warn", "--drain-grace", options.drain_grace, "--exit-with-parent"},
            keepalive);
  for (int i = 0; i < options.prefill; ++i) {
    prefill_arguments_.push_back(
        Merge(Merge(worker, {"--worker-id", "prefill-" + std::to_string(i)}), options.prefill_flags));
    if (options.gated) AddGate(prefill_gates_[i], prefill_arguments_.back());
    const Elsewhere there(options.prefill_namespace);
    prefill_.push_back(
        std::make_unique<Process>(worker_folder_ + "baton-prefill", prefill_arguments_.back()));
  }
  for (int i = 0; i < options.decode; ++i) {
    decode_arguments_.push_back(
        Merge(Merge(worker, {"--worker-id", "decode-" + std::to_string(i)}), options.decode_flags));
    if (options.gated) AddGate(decode_gates_[i], decode_arguments_.back());
    decode_.push_back(std::make_unique<Process>(worker_folder_ + "baton-decode", decode_arguments_.back()));
  }
  // No request is refused because the machine is slow.
  std::vector<std::string> router = {
      "--model", options.model, "--log-level", "error", "--exit-with-parent", "--default-ttft-deadline", "0"};
  router = Merge(router, keepalive);
  if (!fleet_file_.empty()) {
    ListDecode({0});
    router = Merge(router, {"--fleet-file", fleet_file_});
  } else {
    router = Merge(router, {"--decode", Addresses(decode_)});
    if (!prefill_.empty()) router = Merge(router, {"--prefill", Addresses(prefill_)});
  }
  router_ = std::make_unique<Process>("baton-router", Merge(router, options.router_flags));
  channel_ = rpc::MakeChannel(router_->grpc(),
                              {.interval = Scaled(absl::Seconds(20)), .timeout = Scaled(absl::Seconds(20))});
  stub_ = v1::Inference::NewStub(channel_);
  if (!options.impatient)
    AwaitWorkers(static_cast<uint32_t>(options.prefill),
                 fleet_file_.empty() ? static_cast<uint32_t>(options.decode) : 1);
}

void Fleet::ListDecode(const std::vector<int>& listed) {
  nlohmann::json lists = {{"decode", nlohmann::json::array()}, {"prefill", nlohmann::json::array()}};
  for (int i : listed) lists["decode"].push_back(decode_.at(i)->grpc());
  for (const auto& worker : prefill_) lists["prefill"].push_back(worker->grpc());
  // As careful operators do it: no reader sees half of it.
  const std::string next = fleet_file_ + ".next";
  std::ofstream(next) << lists.dump();
  BATON_CHECK(std::rename(next.c_str(), fleet_file_.c_str()) == 0) << fleet_file_;
}

cli::ExitStatus Fleet::Restart(const std::string& program, std::unique_ptr<Process>& process,
                               std::vector<std::string> arguments, int signal) {
  const std::string address = process->grpc();
  process->Signal(signal);
  const cli::ExitStatus left = process->Wait();
  AwaitFree(address);
  process = std::make_unique<Process>(program, Merge(std::move(arguments), {"--listen", address}));
  return left;
}

Answer Fleet::Generate(const v1::GenerateRequest& request) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + Scaled(kLongest));
  return Read(*stub_->Generate(&context, request));
}

Answer Fleet::Chat(const v1::ChatRequest& request) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + Scaled(kLongest));
  return Read(*stub_->Chat(&context, request));
}

double Metric(const Process& worker, const std::string& name) {
  const std::string page = HttpGet(worker.metrics(), "/metrics");
  double sum = 0;
  for (size_t at = 0; at < page.size();) {
    const size_t end = std::min(page.find('\n', at), page.size());
    const std::string line = page.substr(at, end - at);
    if (line.rfind(name, 0) == 0) sum += std::stod(line.substr(line.rfind(' ') + 1));
    at = end + 1;
  }
  return sum;
}

bool AwaitLoad(const std::string& address, const std::function<bool(const fleet::v1::Load&)>& idle) {
  const auto stub = fleet::v1::Worker::NewStub(rpc::MakeChannel(address));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + Scaled(kLongest));
  const auto reader = stub->Watch(&context, fleet::v1::WatchRequest());
  for (fleet::v1::WatchEvent event; reader->Read(&event);) {
    if (idle(event.has_snapshot() ? event.snapshot().load() : event.delta().load())) {
      context.TryCancel();
      return true;
    }
  }
  ADD_FAILURE() << "the watch of " << address << " ended: " << reader->Finish().error_message();
  return false;
}

fleet::v1::Load LoadOf(const Process& worker) {
  const auto stub = fleet::v1::Worker::NewStub(rpc::MakeChannel(worker.grpc()));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + Scaled(kLongest));
  const auto reader = stub->Watch(&context, fleet::v1::WatchRequest());
  fleet::v1::WatchEvent event;
  EXPECT_TRUE(reader->Read(&event)) << worker.grpc() << " tells no load";
  const fleet::v1::Load load = event.snapshot().load();
  context.TryCancel();
  while (reader->Read(&event)) {
  }
  reader->Finish();
  return load;
}

bool AwaitDraining(const Process& worker) {
  return Await([&] { return Metric(worker, "baton_draining ") == 1; }, "a worker that leaves", kLongest);
}

int Fleet::LoseHeldDecode(int signal) {
  const int lost = decode_gates_.AwaitHeld();
  decode(lost).Signal(signal);
  for (int i = 0; i < static_cast<int>(decode_.size()); ++i) {
    if (i != lost) decode_gates_[i].Open();
  }
  return lost;
}

void Fleet::ExpectNothingHeld() {
  for (const auto* pool : {&prefill_, &decode_}) {
    for (const auto& worker : *pool) {
      EXPECT_TRUE(AwaitLoad(worker->grpc(), [](const fleet::v1::Load& load) {
        return load.held_blocks() == 0 && load.running() == 0 && load.queued() == 0 &&
               load.free_blocks() + load.cached_blocks() == load.total_blocks();
      }));
    }
  }
}

void Fleet::AwaitWorkers(uint32_t prefill, uint32_t decode) {
  grpc::Status status;
  v1::ListModelsResponse models;
  const auto sees_them = [&] {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + Scaled(kLongest));
    status = stub_->ListModels(&context, v1::ListModelsRequest(), &models);
    return !status.ok() || (models.models(0).ready_prefill_workers() == prefill &&
                            models.models(0).ready_decode_workers() == decode);
  };
  const auto told = [&] {
    return std::to_string(prefill) + " prefill and " + std::to_string(decode) +
           " decode workers at the router, which tells of " + models.ShortDebugString();
  };
  Await(sees_them, told, kLongest);
  ASSERT_TRUE(status.ok()) << status.error_message();
}

v1::GenerateRequest TokenRequest(const std::vector<int32_t>& prompt, uint32_t max_tokens) {
  v1::GenerateRequest request;
  request.mutable_token_ids()->mutable_ids()->Add(prompt.begin(), prompt.end());
  request.mutable_sampling()->set_temperature(0);
  request.mutable_stop()->set_max_tokens(max_tokens);
  request.mutable_stop()->set_ignore_eos(true);
  request.mutable_output()->set_token_ids(true);
  request.mutable_output()->set_logits_digest(true);
  return request;
}

}  // namespace baton::e2e
