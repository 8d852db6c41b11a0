#include "cli/show/summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>

#include "absl/strings/escaping.h"
#include "cli/show/quantity.h"
#include "router/billing/decimal.h"

namespace baton::cli {
namespace {

constexpr int kPhases = 6;
constexpr std::array<std::string_view, kPhases> kPhaseNames = {"admit",   "decode queue", "prefill queue",
                                                               "prefill", "transfer",     "first token"};
constexpr std::array<Style, kPhases> kPhaseStyles = {Style::kDim,  Style::kYellow,  Style::kYellow,
                                                     Style::kBlue, Style::kMagenta, Style::kGreen};
constexpr int kLabelColumns = 12;
constexpr int kSummaryBarCells = 40;

std::array<double, kPhases> Phases(const v1::Timing& timing) {
  return {timing.admit_seconds(),   timing.decode_queue_seconds(), timing.prefill_queue_seconds(),
          timing.prefill_seconds(), timing.transfer_seconds(),     timing.first_token_seconds()};
}

std::string Row(const Terminal& terminal, std::string_view label, std::string_view text) {
  return fmt::format("  {}{}\n", Paint(terminal, Style::kBold, fmt::format("{:<{}}", label, kLabelColumns)),
                     text);
}

std::string DescribeRelay(const v1::Relay& relay, const Terminal& terminal) {
  const std::string_view arrow = terminal.utf8 ? "→" : "->";
  std::string text;
  if (relay.prefill_worker().empty()) {
    text = fmt::format("{} prefilled the prompt itself", relay.decode_worker());
  } else {
    text = fmt::format("{} {} {} over \"{}\": {} blocks, {} shipped", relay.prefill_worker(), arrow,
                       relay.decode_worker(), relay.link(), ShowCount(relay.shipped_blocks()),
                       ShowBytes(static_cast<int64_t>(relay.shipped_bytes())));
  }
  if (relay.failovers() > 0) text += fmt::format("; {} failed hand-off(s) before it", relay.failovers());
  if (relay.preemptions() > 0) text += fmt::format("; preempted {} time(s)", relay.preemptions());
  return text;
}

std::string DescribePrompt(const v1::Usage& usage) {
  const int64_t cached = int64_t{usage.decode_cached_tokens()} + usage.prefill_cached_tokens();
  return fmt::format("{} tokens: {} cached on decode, {} on prefill, {} computed",
                     ShowCount(usage.prompt_tokens()), ShowCount(usage.decode_cached_tokens()),
                     ShowCount(usage.prefill_cached_tokens()),
                     ShowCount(std::max<int64_t>(0, int64_t{usage.prompt_tokens()} - cached)));
}

}  // namespace

std::string DescribeReason(const v1::Finished& finished) {
  switch (finished.reason()) {
    case v1::FINISH_REASON_STOP_TOKEN:
      return finished.has_stop_token_id() ? fmt::format("stop token {}", finished.stop_token_id())
                                          : "end of answer";
    case v1::FINISH_REASON_STOP_STRING:
      return fmt::format("stop string \"{}\"", absl::CEscape(finished.stop_match()));
    case v1::FINISH_REASON_LENGTH:
      return "max_tokens reached";
    case v1::FINISH_REASON_CONTEXT_FULL:
      return "context full";
    case v1::FINISH_REASON_TOOL_CALLS:
      return "tools called";
    default:
      return "no reason given";
  }
}

std::array<int, 6> PhaseCells(const v1::Timing& timing, int cells) {
  const std::array<double, kPhases> phases = Phases(timing);
  double total = 0;
  for (const double phase : phases) total += std::max(phase, 0.0);
  std::array<int, kPhases> result{};
  if (total <= 0) return result;
  std::array<double, kPhases> remainder{};
  int used = 0;
  for (int i = 0; i < kPhases; ++i) {
    const double share = std::max(phases[i], 0.0) / total * cells;
    result[i] = static_cast<int>(std::floor(share));
    remainder[i] = share - result[i];
    used += result[i];
  }
  for (; used < cells; ++used) {
    const auto largest = std::max_element(remainder.begin(), remainder.end()) - remainder.begin();
    ++result[largest];
    remainder[largest] = -1;
  }
  // Each phase that took time gets a cell, at the expense of the longest.
  for (int i = 0; i < kPhases; ++i) {
    const auto longest = std::max_element(result.begin(), result.end());
    if (phases[i] > 0 && result[i] == 0 && *longest > 1) {
      --*longest;
      ++result[i];
    }
  }
  return result;
}

std::string RenderSummary(const v1::Finished& finished, const Terminal& terminal) {
  const v1::Timing& timing = finished.timing();
  std::string out;
  out += Row(terminal, "prompt", DescribePrompt(finished.usage()));
  out += Row(
      terminal, "answer",
      fmt::format("{} tokens{}: {}", ShowCount(finished.usage().completion_tokens()),
                  finished.usage().thinking_tokens() == 0
                      ? ""
                      : fmt::format(", {} of them thinking", ShowCount(finished.usage().thinking_tokens())),
                  DescribeReason(finished)));
  if (finished.usage().drafted_tokens() > 0) {
    out += Row(terminal, "drafts",
               fmt::format("{} tokens drafted, {} of them the answer's",
                           ShowCount(finished.usage().drafted_tokens()),
                           ShowCount(finished.usage().accepted_tokens())));
  }
  if (finished.has_cost()) {
    constexpr int64_t kPicos = router::billing::kPicosPerUnit;
    const v1::Cost& cost = finished.cost();
    out +=
        Row(terminal, "cost",
            fmt::format("{} {}", router::billing::FormatAmount(cost.picos() / kPicos, cost.picos() % kPicos),
                        cost.currency()));
  }
  out += Row(terminal, "relay", DescribeRelay(finished.relay(), terminal));

  const std::array<double, kPhases> phases = Phases(timing);
  const int bar = std::clamp(terminal.width - 48, 10, kSummaryBarCells);
  const std::array<int, kPhases> cells = PhaseCells(timing, bar);
  const std::string_view cell = terminal.utf8 ? "█" : "#";
  int offset = 0;
  for (int i = 0; i < kPhases; ++i) {
    std::string marks(offset, ' ');
    std::string filled;
    for (int k = 0; k < cells[i]; ++k) filled += cell;
    marks += Paint(terminal, kPhaseStyles[i], filled);
    offset += cells[i];
    std::string line = fmt::format("{:<14}{:>9}  {}", kPhaseNames[i], ShowSeconds(phases[i]), marks);
    line.erase(line.find_last_not_of(' ') + 1);
    out += Row(terminal, i == 0 ? "TTFT" : "", line);
  }
  out += Row(terminal, "", fmt::format("{:<14}{:>9}", "= TTFT", ShowSeconds(timing.ttft_seconds())));
  if (timing.has_tpot_seconds() && timing.tpot_seconds() > 0) {
    out += Row(terminal, "TPOT",
               fmt::format("{} per token, {:.1f} tokens/s", ShowSeconds(timing.tpot_seconds()),
                           1 / timing.tpot_seconds()));
  }
  out += Row(terminal, "end to end", ShowSeconds(timing.e2e_seconds()));
  return out;
}

}  // namespace baton::cli
