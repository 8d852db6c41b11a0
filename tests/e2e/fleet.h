// Fleet: a router, prefill workers and decode workers as real processes on the shipped model, on ports that
// the system chooses. Everything dies with it. One thread.
#pragma once

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>

#include <csignal>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "baton/fleet/v1/prefill.grpc.pb.h"
#include "baton/fleet/v1/worker.grpc.pb.h"
#include "baton/v1/inference.grpc.pb.h"
#include "cli/serve/child.h"
#include "tests/e2e/gate.h"
#include "tests/patience.h"

namespace baton::e2e {

inline constexpr char kModel[] = BATON_SOURCE_DIR "/models/baton-tiny";

// A busy machine may leave a process without a processor for longer than the product's own keepalive allows.
inline const std::string kPatientKeepalive = std::to_string(Scaled(60));
// For tests in which a process hangs: it is noticed in six seconds.
inline const std::string kQuickKeepalive = std::to_string(Scaled(3));

// For FleetOptions::worker_folder: workers that may stand at gates, with a NCCL over sockets.
inline constexpr char kGatedWorkers[] = "../tests/gated/";
// Longer than any test waits: a worker that is told to leave stays until a test lets its work end.
inline constexpr char kEndlessGrace[] = "3600";

// One process that said that it is ready.
class Process {
 public:
  // CHECK-fails if it is not ready in time.
  Process(const std::string& program, const std::vector<std::string>& arguments);

  const std::string& grpc() const { return grpc_; }
  const std::string& metrics() const { return metrics_; }
  // A signal is on its way for a while.
  void Signal(int signal) { child_.Signal(signal); }
  // After SIGSTOP: waits until it has come.
  void AwaitStopped() const;
  pid_t pid() const { return child_.pid(); }
  // Waits for the end. What it says until then is kept for TakeErrors.
  cli::ExitStatus Wait();
  // Its standard error since the last call, or its start; waits until there is something.
  std::string TakeErrors();

 private:
  cli::Child child_;
  std::string grpc_;
  std::string metrics_;
  std::string errors_;  // until it was ready
};

struct FleetOptions {
  int prefill = 1;
  int decode = 1;
  std::vector<std::string> prefill_flags;
  std::vector<std::string> decode_flags;
  std::vector<std::string> router_flags;
  // The router learns of the workers from this file, and of the first decode worker alone to begin with.
  std::string fleet_file;
  std::string model = kModel;
  // Where the workers' programs lie, seen from build/<preset>/bin.
  std::string worker_folder;
  // Each worker stands at a gate of its own (gate.h): without a folder, those of kGatedWorkers.
  bool gated = false;
  // --kv-memory of each worker.
  std::string kv_memory = "64MiB";
  // Seconds that workers give to what runs when they are told to leave.
  std::string drain_grace = std::to_string(Scaled(20));
  // --fleet-keepalive of all processes; empty: the product's own.
  std::string keepalive = kPatientKeepalive;
  // A network namespace (setns) in which prefill workers are started; negative: the caller's.
  int prefill_namespace = -1;
  // Return before the router has seen the workers.
  bool impatient = false;
};

// The result of one call.
struct Answer {
  absl::Status status;
  v1::Started started;
  std::vector<int32_t> tokens;
  std::vector<uint32_t> digests;
  std::string text;
  std::vector<v1::Finished> finished;
  const v1::Finished& end() const { return finished.at(0); }
};

class Fleet {
 public:
  explicit Fleet(const FleetOptions& options = {});

  Process& router() { return *router_; }
  Process& prefill(int i = 0) { return *prefill_.at(i); }
  Process& decode(int i = 0) { return *decode_.at(i); }
  v1::Inference::Stub& stub() { return *stub_; }
  // If it is gated.
  Gates& prefill_gates() { return prefill_gates_; }
  Gates& decode_gates() { return decode_gates_; }

  // Sends the signal to the decode worker that is held in the middle of its work, and lets the others go on.
  // Returns which one it was.
  int LoseHeldDecode(int signal);

  // The signal; a new process on the same address once the old one has left. Returns how it left.
  cli::ExitStatus RestartPrefill(int i, int signal = SIGTERM) {
    return Restart(worker_folder_ + "baton-prefill", prefill_.at(i), prefill_arguments_.at(i), signal);
  }
  cli::ExitStatus RestartDecode(int i, int signal = SIGTERM) {
    return Restart(worker_folder_ + "baton-decode", decode_.at(i), decode_arguments_.at(i), signal);
  }

  // Writes the fleet file: all prefill workers and these decode workers.
  void ListDecode(const std::vector<int>& listed);

  // Reads the stream to its end.
  Answer Generate(const v1::GenerateRequest& request);
  Answer Chat(const v1::ChatRequest& request);

  // Waits until no worker holds a block or runs a request, as its own watch stream tells.
  void ExpectNothingHeld();
  // Waits until the router sees this many workers of each role.
  void AwaitWorkers(uint32_t prefill, uint32_t decode);

 private:
  static cli::ExitStatus Restart(const std::string& program, std::unique_ptr<Process>& process,
                                 std::vector<std::string> arguments, int signal);

  const std::string fleet_file_;
  const std::string worker_folder_;
  Gates prefill_gates_, decode_gates_;
  std::vector<std::vector<std::string>> prefill_arguments_, decode_arguments_;
  std::vector<std::unique_ptr<Process>> prefill_;
  std::vector<std::unique_ptr<Process>> decode_;
  std::unique_ptr<Process> router_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::Inference::Stub> stub_;
};

// Greedy, answers of exactly `max_tokens` tokens, with ids and digests.
v1::GenerateRequest TokenRequest(const std::vector<int32_t>& prompt, uint32_t max_tokens);

// A sample of the worker's metrics page: the lines that begin so, summed over labels; 0 if there is none.
double Metric(const Process& worker, const std::string& name);

// The load that the worker tells a new watcher now. The test has failed if it tells none.
fleet::v1::Load LoadOf(const Process& worker);

// Waits until the worker knows that it is to leave.
bool AwaitDraining(const Process& worker);

// Waits on `address`'s watch stream until `idle` likes the load. False after a generous time.
bool AwaitLoad(const std::string& address, const std::function<bool(const fleet::v1::Load&)>& idle);

}  // namespace baton::e2e
