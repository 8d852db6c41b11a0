// Gate: holds a worker in the middle of its work, where it stays until the test lets it go on. The worker is
// one of kGatedWorkers (fleet.h).
// A gate is open at first. Allow lets the worker make so many busy steps and holds it then: a prefill worker
// computes a chunk in a step, a decode worker a token of each answer, and up to kStepTokens with drafts.
//
//     fleet.decode_gates().Allow(20);          // of an answer of 1,200 tokens
//     ... the call, of which the first tokens are read ...
//     const int victim = fleet.decode_gates().AwaitHeld();
//
// A worker that is held takes calls, cancels and KV, tells its load, and leaves when it is told to. The first
// token of a prompt that was handed off comes without a step. One thread.
#pragma once

#include <cstdint>
#include <deque>
#include <string>

#include "decode_service/drafting/drafter.h"
#include "tests/e2e/gate_file.h"

namespace baton::e2e {

// Tokens of an answer in a step, at most: those that are drafted, and one.
inline constexpr int64_t kStepTokens = decode_service::drafting::kMaxDraft + 1;

// One worker's. A worker that is started anew keeps it.
class Gate {
 public:
  Gate();
  ~Gate();
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;

  // For the worker's --gate.
  const std::string& path() const { return path_; }

  // So many busy steps from now on, whatever was allowed before. The one that runs counts if the gate was not
  // open when it began.
  void Allow(int64_t steps) { file_.steps().store(steps); }
  void Close() { Allow(0); }
  void Open() { Allow(GateFile::kOpen); }

  // The worker has made all the steps that it might, and is held.
  bool used() const { return file_.steps().load() == 0; }
  // Waits for that. False: the test has failed.
  bool AwaitUsed() const;

 private:
  const std::string path_;
  const GateFile file_;
};

// The gates of all workers of a role, by number.
class Gates {
 public:
  explicit Gates(int count) : gates_(static_cast<size_t>(count)) {}

  Gate& operator[](int i) { return gates_.at(static_cast<size_t>(i)); }
  void Allow(int64_t steps) {
    for (Gate& gate : gates_) gate.Allow(steps);
  }
  void Close() { Allow(0); }
  void Open() { Allow(GateFile::kOpen); }

  // After Allow: the worker that is held, which has made its steps; of several, any. Waits for it. The test
  // has failed if there is none.
  int AwaitHeld() const;

 private:
  std::deque<Gate> gates_;
};

}  // namespace baton::e2e
