// PruneExperts: a model folder with fewer experts in each layer (REAP, expert_scores.h): a calibration text
// goes through the model, the experts that matter least for it are left out, and what remains is an ordinary
// folder of the same family, with experts renumbered, their rows of the router and of its bias, and the
// number in config.json. prune.json says which are left and why. Any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/ids.h"
#include "engine/kernels/kernels.h"
#include "engine/model/decoder.h"

namespace baton::model {

struct PruneOptions {
  std::string source;  // a model folder, not quantized
  std::string target;  // is made; must not exist, or be empty
  double keep = 0.75;  // of the experts of each layer (and group), rounded to the nearest number
  // Tokens for scoring the experts, and for measuring the losses before and after.
  std::span<const TokenId> calibration, held_out;
  // Digest of the text that both come from, for prune.json.
  std::string calibration_digest;
  // Tokens that are computed together, from position 0 on; at most the model's context.
  int64_t window = 512;
  int threads = 1;
  // The precision that scores and losses are computed with; the target has matrices as they are stored.
  WeightPrecision precision = WeightPrecision::kStored;
  // Called as windows are done, of all that there are.
  std::function<void(int64_t done, int64_t all)> progress = {};
};

struct Pruned {
  int experts_before = 0, experts_after = 0;
  // Mean loss per token of `held_out`, in nats.
  double loss_before = 0, loss_after = 0;
  int64_t parameters_before = 0, parameters_after = 0;
};

// Errors name the folder. ALREADY_EXISTS if there is something at `target`; INVALID_ARGUMENT if the model has
// no experts, or fewer would be left than a token chooses. On an error `target` may hold some files, but no
// config.json unless the folder is whole.
absl::StatusOr<Pruned> PruneExperts(const PruneOptions& options);

// Mean loss, in nats, of each token given those before it in its window. Runs every row to its logits, so
// that an observer sees all of them.
double MeanLoss(Decoder& decoder, kernels::Kernels& kernels, std::span<const TokenId> tokens, int64_t window,
                absl::FunctionRef<void()> window_done);

// Writes the folder with the experts `kept[layer]` (ascending ids; empty for a layer without experts), as
// PruneExperts does; without prune.json.
absl::Status WriteExperts(const std::string& source, const std::string& target,
                          std::span<const std::vector<int>> kept);

}  // namespace baton::model
