// Recorder: the results of requests, one by one and summed up. Latencies are the client's own, from
// when a request was *meant* to be sent: a client that falls behind its schedule, or a server that delays it,
// can't hide the wait (coordinated omission). One thread at a time; knows nothing of gRPC.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "baton/v1/generation.pb.h"
#include "lab/bench/histogram.h"

namespace baton::lab::bench {

// Observations of one request, on the client's monotonic clock.
struct Outcome {
  absl::Status status;
  absl::Time sent;
  // Times of the first and last event with a token.
  absl::Time first_token = absl::InfiniteFuture();
  absl::Time last_token = absl::InfiniteFuture();
  absl::Time end;
  int64_t tokens = 0;
  // Between events that carried tokens, seconds.
  std::vector<float> gaps;
  // If they were asked for.
  std::vector<int32_t> token_ids;
  // Time after which to retry a refused request, as the server said.
  std::optional<absl::Duration> retry_delay;
  // Absent if the stream ended without one.
  std::optional<v1::Finished> finished;
};

struct RequestRecord {
  // When it was meant to be sent.
  absl::Time intended;
  int64_t prompt_tokens = 0;
  int64_t output_tokens = 0;
  Outcome outcome;
};

struct Slo {
  std::optional<absl::Duration> ttft;
  std::optional<absl::Duration> tpot;
};

struct RecorderOptions {
  Slo slo;
  // Answers must have exactly the length that was asked for (ignore_eos).
  bool exact_length = true;
  // Called with each request that succeeded; may be empty.
  std::function<void(const RequestRecord&)> succeeded = nullptr;
};

// Seconds, over the requests that succeeded.
struct Summary {
  // From the first intended sending to the last end.
  double seconds = 0;
  int64_t succeeded = 0;
  int64_t failed = 0;
  // Refusals among the failed (RESOURCE_EXHAUSTED before a token): how soon, and how many told when to retry.
  Samples refused;
  int64_t refused_with_delay = 0;
  // Cancelled by the client, because the run was over.
  int64_t cut_off = 0;
  // Never sent: longer than the model's context.
  int64_t too_long = 0;
  // Never sent: too many were in flight.
  int64_t overflowed = 0;
  int64_t input_tokens = 0;
  int64_t output_tokens = 0;
  // Succeeded requests within the SLO; absent without one.
  std::optional<int64_t> good;
  Samples ttft;
  Samples tpot;
  Histogram itl;
  Samples e2e;
  // As the server reports it: admission, and waiting for a place on decode and prefill.
  Samples queue;
  // Server's phases of TTFT, in Timing's order.
  std::array<Samples, 6> phases;
  // Sent after it was meant to be.
  Samples lateness;
  int64_t decode_cached_tokens = 0;
  int64_t prefill_cached_tokens = 0;
  std::map<std::string, int64_t> links;
  int64_t shipped_bytes = 0;
  int64_t failovers = 0;
  int64_t preemptions = 0;
  // Gaps in itl of less than a tenth of their request's TPOT. Many of them: tokens waited somewhere, and
  // travelled on together.
  int64_t bunched = 0;
  struct Error {
    int64_t count = 0;
    std::string first_message;
  };
  // By canonical code.
  std::map<std::string, Error> errors;
};

class Recorder {
 public:
  explicit Recorder(const RecorderOptions& options) : options_(options) {}

  void Add(const RequestRecord& record);
  void AddTooLong() { ++summary_.too_long; }
  void AddOverflowed() { ++summary_.overflowed; }
  // The run is over and the client cancels what is left: such cancellations are not the server's failures.
  void BeginCutOff() { cutting_off_ = true; }

  const Summary& summary() const { return summary_; }

 private:
  // OK if the answer is what was asked for.
  absl::Status Judge(const RequestRecord& record) const;

  const RecorderOptions options_;
  bool cutting_off_ = false;
  absl::Time begin_ = absl::InfiniteFuture();
  absl::Time end_ = absl::InfinitePast();
  Summary summary_;
};

}  // namespace baton::lab::bench
