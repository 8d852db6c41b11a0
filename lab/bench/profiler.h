// Profiler: how fast the workers behind a server are, fitted to the times of its requests: a prefill of u
// tokens after c cached ones takes base + token * u + pair * u * (c + u / 2), a decode step base + sequence *
// batch
// + context * (tokens of context of the batch). Workers report each prompt's share of the steps that it
// shared with others. The rest of every request is measured too: the client's TTFT less queue, prefill and
// transfer, which is most of the TTFT on a small model or a busy machine. The result is what `baton plan
// --profile` and `baton simulate --fleet` read. Also how far the router's own predictions of TTFT were off.
// Plain arithmetic, one thread at a time.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "lab/bench/recorder.h"

namespace baton::lab::bench {

class Profiler {
 public:
  // A prefill worker shipped so many bytes to a decode worker; the seconds are those that compute did not
  // hide.
  struct Handoff {
    double bytes = 0;
    double seconds = 0;
  };

  // The server's workers: a batch is the requests in flight over the decode workers.
  Profiler(int prefill_workers, int decode_workers)
      : prefill_workers_(prefill_workers), decode_workers_(decode_workers) {}

  // Failed requests are left out.
  void Add(const RequestRecord& record);
  // FAILED_PRECONDITION says which observations are too few, or tell nothing. A link that they do not tell is
  // left out, and the comment says so.
  absl::StatusOr<nlohmann::ordered_json> Fit() const;

 private:
  // But for the first of each pair of workers.
  std::vector<Handoff> Handoffs() const;

  struct Sample {
    double first_token = 0, last_token = 0;  // seconds
    int64_t prompt_tokens = 0, output_tokens = 0;
    int64_t uncached_tokens = 0, cached_tokens = 0;  // where it was prefilled
    double prefill_seconds = 0, transfer_seconds = 0;
    double shipped_bytes = 0, shipped_tokens = 0;
    std::pair<std::string, std::string> pair;  // the prefill and the decode worker
    double predicted_ttft = 0, ttft = 0;       // from placement; predicted 0: the router predicted nothing
    double overhead = 0;                       // of the client's TTFT: neither queue nor prefill nor transfer
  };

  const int prefill_workers_;
  const int decode_workers_;
  std::vector<Sample> samples_;
};

}  // namespace baton::lab::bench
