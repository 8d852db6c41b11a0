// FakeWorker: a worker of either role over a real socket that does what its script says: for tests and
// benchmarks of the router. It computes nothing. Watchers get a snapshot and whatever the test reports; each
// Decode call runs the script that the test made for it. Any thread; no threads of its own.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "baton/fleet/v1/decode.pb.h"
#include "baton/fleet/v1/worker.pb.h"

namespace baton::fakes {

// The next step of a Decode call: send an event, wait for FakeWorker::Release or for a time to come, or end.
// A script that runs out ends OK.
struct Step {
  enum class Kind { kSend, kHold, kUntil, kEnd };
  Kind kind = Kind::kSend;
  fleet::v1::DecodeEvent event;
  absl::Status status;
  absl::Time until;

  static Step Accept();
  // One token, with its id.
  static Step Token(int32_t id, const std::string& text);
  static Step Finish(v1::FinishReason reason = v1::FINISH_REASON_LENGTH);
  static Step Hold();
  // By the machine's clock.
  static Step Until(absl::Time time);
  static Step End(absl::Status status);
};
using Script = std::vector<Step>;

class FakeWorker {
 public:
  struct Options {
    std::string id = "fake";
    fleet::v1::Role role = fleet::v1::ROLE_DECODE;
    uint64_t incarnation = 1;
    fleet::v1::Fingerprint fingerprint = {};
    uint32_t vocabulary = 0;  // 0: does not say
    std::string tokenizer_digest = {};
    std::string ends_digest = {};
    uint64_t total_blocks = 4096;
    std::string listen = "127.0.0.1:0";
    // Says what its block hashes are made of, so that routers hash prompts for it.
    std::string block_hash_domain = {};
    // Says that it fetches blocks from peers and serves them, and which it holds (hashes as they lie on the
    // wire).
    bool peer_fetch = false;
    std::string stored = {};
    // Keeps what it was asked, for requests().
    bool remember = true;
  };
  struct Counts {
    int watches = 0;                    // Watch calls so far
    fleet::v1::LatencyTargets targets;  // of the last of them
    int calls = 0;                      // Decode calls so far
    int running = 0;                    // and not ended
    int held = 0;                       // at a Hold, waiting for Release
    int cancelled = 0;                  // by the caller
    int64_t events_out = 0;             // taken by the transport
  };

  static absl::StatusOr<std::unique_ptr<FakeWorker>> Start(Options options);
  ~FakeWorker();

  const std::string& address() const;

  // For calls that come from now on. The default: Accept, token 5 "a", token 6 "b", Finish.
  void SetScript(std::function<Script(const fleet::v1::DecodeRequest&)> script);
  // Lets every call that is held continue, once.
  void Release();

  // To every watcher.
  void Report(const fleet::v1::Load& load);
  void ReportDraining(bool draining);
  // Leaves out one sequence number.
  void LoseAnEvent();
  // Ends all watches, as if their connections broke.
  void BreakWatches();
  // Watches that come from now on are told nothing.
  void SetSilent(bool silent);
  // Sets the fingerprint of later snapshots.
  void SetFingerprint(const fleet::v1::Fingerprint& fingerprint);

  Counts counts() const;
  std::vector<fleet::v1::DecodeRequest> requests() const;
  // Waits for counts like these, for half a minute at most, scaled; false if they didn't come.
  bool Await(const std::function<bool(const Counts&)>& condition) const;

  // As if the process died: all calls break, and the port is closed.
  void Kill();

 private:
  struct Parts;
  explicit FakeWorker(std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts_;
};

}  // namespace baton::fakes
