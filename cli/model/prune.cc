#include "cli/model/prune.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "absl/strings/escaping.h"
#include "cli/show/quantity.h"
#include "common/base/digest.h"
#include "common/base/status.h"
#include "text/config/json_fields.h"
#include "text/tokenizer.h"

namespace baton::cli {
namespace {

constexpr int64_t kMostTextBytes = 256 << 20;
constexpr int64_t kHeldOutOf = 10;

// Relative to the loss before.
double Growth(const model::Pruned& pruned) {
  return pruned.loss_before > 0 ? pruned.loss_after / pruned.loss_before - 1 : 0;
}

}  // namespace

absl::StatusOr<PruneTexts> SplitWindows(std::span<const TokenId> tokens, int64_t window) {
  const int64_t windows = std::ssize(tokens) / window;
  if (windows < 2) {
    return absl::InvalidArgumentError(fmt::format("has {} tokens: it takes at least two windows of {}",
                                                  ShowCount(std::ssize(tokens)), window));
  }
  PruneTexts texts;
  for (int64_t w = 0; w < windows; ++w) {
    const bool held_out = windows < kHeldOutOf ? w + 1 == windows : (w + 1) % kHeldOutOf == 0;
    const std::span<const TokenId> some =
        tokens.subspan(static_cast<size_t>(w * window), static_cast<size_t>(window));
    std::vector<TokenId>& to = held_out ? texts.held_out : texts.calibration;
    to.insert(to.end(), some.begin(), some.end());
  }
  return texts;
}

absl::StatusOr<PruneTexts> ReadPruneTexts(const std::string& folder, const std::string& calibration_file,
                                          const std::string& held_out_file, int64_t window) {
  BATON_ASSIGN_OR_RETURN(const std::shared_ptr<const text::Tokenizer> tokenizer,
                         text::Tokenizer::Load(folder));
  const auto named = [](const std::string& file, const absl::Status& status) {
    return absl::Status(status.code(), fmt::format("{}: {}", file, std::string(status.message())));
  };
  BATON_ASSIGN_OR_RETURN(const std::string text, model::ReadTextFile(calibration_file, kMostTextBytes));
  const absl::StatusOr<std::vector<TokenId>> tokens = tokenizer->Encode(text, /*add_special_tokens=*/true);
  if (!tokens.ok()) return named(calibration_file, tokens.status());
  PruneTexts texts;
  if (held_out_file.empty()) {
    absl::StatusOr<PruneTexts> split = SplitWindows(*tokens, window);
    if (!split.ok()) return named(calibration_file, split.status());
    texts = *std::move(split);
  } else {
    texts.calibration = *tokens;
    BATON_ASSIGN_OR_RETURN(const std::string other, model::ReadTextFile(held_out_file, kMostTextBytes));
    absl::StatusOr<std::vector<TokenId>> held_out = tokenizer->Encode(other, /*add_special_tokens=*/true);
    if (!held_out.ok()) return named(held_out_file, held_out.status());
    texts.held_out = *std::move(held_out);
  }
  Sha256 sha;
  sha.Update(text);
  const Sha256Digest digest = sha.Finish();
  texts.digest = absl::BytesToHexString(std::string(digest.begin(), digest.end()));
  return texts;
}

std::string RenderPruned(const model::Pruned& pruned) {
  return fmt::format(
      "{} of {} experts are left in each layer: {} parameters of {}\n"
      "loss on held-out text: {:.4f} before, {:.4f} after ({:+.2f}%)\n",
      pruned.experts_after, pruned.experts_before,
      ShowMagnitude(static_cast<double>(pruned.parameters_after)),
      ShowMagnitude(static_cast<double>(pruned.parameters_before)), pruned.loss_before, pruned.loss_after,
      100 * Growth(pruned));
}

absl::Status CheckLoss(const model::Pruned& pruned, double most) {
  if (Growth(pruned) <= most) return absl::OkStatus();
  return absl::FailedPreconditionError(
      fmt::format("the loss on held-out text has grown by {:.2f}%, more than --max-loss {:g} allows",
                  100 * Growth(pruned), most));
}

}  // namespace baton::cli
