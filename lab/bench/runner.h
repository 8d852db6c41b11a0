// Runner: asks for a workload's requests when they are due and hands what comes back to a recorder. Open
// loop: conversations begin at their arrival, whatever is still running. Closed loop: a number of
// conversations run at any time, each sending its next turn when the answer to the last one has come and been
// thought about. Run() is the only thread that touches the state; answers reach it through a mailbox.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "baton/v1/inference.pb.h"
#include "common/base/clock.h"
#include "lab/bench/load_client.h"
#include "lab/bench/recorder.h"
#include "lab/bench/workload.h"

namespace baton::lab::bench {

struct RunSettings {
  std::string model;
  uint64_t seed = 0;
  // From ListModels.
  int64_t context_tokens = 0;
  int32_t vocabulary_tokens = 0;
  // Conversations at once; 0: open loop.
  int concurrency = 0;
  // Open loop: an arrival beyond this is counted and not sent.
  int64_t max_in_flight = 100'000;
  // Limits of the sending, whichever is reached first; 0 and infinite: none.
  int64_t requests = 0;
  absl::Duration duration = absl::InfiniteDuration();
  // Time for running requests to end afterwards.
  absl::Duration drain = absl::Seconds(60);
  absl::Duration timeout = absl::InfiniteDuration();
  bool ignore_eos = true;
  // Repeats answers in later turns: needs their token ids.
  bool keep_answers = false;
  // Ask the router for what it expected of each request.
  bool debug = false;
  v1::SamplingParams sampling;
  // Readable: stop sending and cut off what runs. -1: none.
  int interrupt_fd = -1;
};

struct RunState {
  int64_t sent = 0;
  int64_t done = 0;
  int64_t in_flight = 0;
};

struct RunResult {
  bool interrupted = false;
  // CRC32C over what was asked for (index, token ids, output length), in the order of sending the first
  // turns: equal for two runs that asked for the same.
  uint32_t asked = 0;
};

// `tick` is called a few times a second.
RunResult RunLoad(const RunSettings& settings, Workload& workload, LoadClient& client, const Clock& clock,
                  Recorder& recorder, const std::function<void(const RunState&)>& tick);

}  // namespace baton::lab::bench
