// The parts of `baton model prune` around model::PruneExperts: they turn text into tokens, hold some of them
// out, and check whether the loss has grown too much.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/ids.h"
#include "engine/model/pruned_folder.h"

namespace baton::cli {

struct PruneTexts {
  std::vector<TokenId> calibration, held_out;
  std::string digest;  // SHA-256 of the calibration file, in hexadecimal
};

// Whole windows: every tenth is held out, and the last one of fewer. INVALID_ARGUMENT for less than two.
absl::StatusOr<PruneTexts> SplitWindows(std::span<const TokenId> tokens, int64_t window);

// By the tokenizer of `folder`. `held_out_file`: what is held out in the place of windows, or empty. Errors
// name the file.
absl::StatusOr<PruneTexts> ReadPruneTexts(const std::string& folder, const std::string& calibration_file,
                                          const std::string& held_out_file, int64_t window);

// For people: experts, parameters, losses.
std::string RenderPruned(const model::Pruned& pruned);
// FAILED_PRECONDITION with the numbers if the loss on held-out text has grown by more than `most` of itself.
absl::Status CheckLoss(const model::Pruned& pruned, double most);

}  // namespace baton::cli
