// ChunkGate: what `baton eval chunk-reuse` found out about a model and its KV formats, as a file, and whether
// it allows a worker to reuse chunks (--chunk-reuse). Plain data, any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/engine.h"
#include "protocol/fingerprint.h"

namespace baton::worker {

// In the place of a file: reuse is allowed though nobody has measured what it loses.
inline constexpr std::string_view kUncheckedReuse = "unchecked";

struct ChunkGate {
  // The way of computing: as in the domains of protocol/prompt_chain.cc.
  static constexpr std::string_view kMode = "chunk-reuse/1";

  // How much reuse may lose, and what it lost. Against full prefill: the mean divergence (KL, in nats) of the
  // distributions that tokens are drawn from, as far as both answers agree; the share of answers that are the
  // same to the token; and the share of questions answered rightly.
  struct Limits {
    double kl = 0;
    double exact_match = 0;
    double recall_loss = 0;
  };
  struct Measured {
    int64_t questions = 0;
    double kl = 0;
    double exact_match = 0;
    double recall_full = 0, recall_reused = 0;
  };

  std::string mode{kMode};
  // The fingerprint's, in hex.
  std::string config, weights;
  std::string key_dtype, value_dtype;
  Limits limits;
  Measured measured;

  static ChunkGate For(const protocol::Fingerprint& fingerprint);
  // INVALID_ARGUMENT names the file and what is wrong with it.
  static absl::StatusOr<ChunkGate> Read(const std::string& path);
  std::string ToJson() const;

  // FAILED_PRECONDITION: a figure is beyond its limit.
  absl::Status CheckLimits() const;
  // FAILED_PRECONDITION: it is for another model, KV format or mode, or a figure is beyond its limit.
  absl::Status Check(const protocol::Fingerprint& fingerprint) const;
};

// OK if a worker that was started with --chunk-reuse `how` may begin: a gate file, or kUncheckedReuse.
absl::Status CheckChunkReuse(const std::string& how, const engine::Engine& engine);

}  // namespace baton::worker
