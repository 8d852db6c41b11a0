#include "cli/serve/traffic.h"

#include <fmt/format.h>

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "cli/show/quantity.h"

namespace baton::cli {
namespace {

// A counter's growth; all of `after` if it began again.
double Gain(double before, double after) { return after < before ? after : after - before; }

}  // namespace

Traffic Traffic::Parse(std::string_view page) {
  Traffic traffic;
  for (const absl::string_view line : absl::StrSplit(absl::string_view(page.data(), page.size()), '\n')) {
    const size_t name_end = line.find_first_of("{ ");
    const size_t value_at = line.rfind(' ');
    double value;
    if (line.empty() || line.front() == '#' || value_at == absl::string_view::npos ||
        !absl::SimpleAtod(line.substr(value_at + 1), &value)) {
      continue;
    }
    const absl::string_view name = line.substr(0, name_end);
    if (name == "baton_router_requests_total") {
      const bool well = line.find("outcome=\"OK\"") != absl::string_view::npos;
      (well ? traffic.answered : traffic.failed) += value;
    } else if (name == "baton_router_ttft_seconds_count") {
      traffic.first_tokens += value;
    } else if (name == "baton_router_ttft_seconds_sum") {
      traffic.ttft_seconds += value;
    } else if (name == "baton_router_answer_tokens_total") {
      traffic.answer_tokens += value;
    } else if (name == "baton_router_placed_tokens_total") {
      traffic.placed_tokens += value;
    } else if (name == "baton_router_cached_tokens_total") {
      traffic.cached_tokens += value;
    } else if (name == "baton_router_running") {
      traffic.running += value;
    } else if (name == "baton_router_queue_requests") {
      traffic.queued += value;
    }
  }
  return traffic;
}

std::string DescribeTraffic(const Traffic& before, const Traffic& after, double seconds) {
  const double answered = Gain(before.answered, after.answered);
  const double failed = Gain(before.failed, after.failed);
  const double first_tokens = Gain(before.first_tokens, after.first_tokens);
  const double placed = Gain(before.placed_tokens, after.placed_tokens);
  const double cached = Gain(before.cached_tokens, after.cached_tokens);
  std::string line = fmt::format("{:.1f} requests/s", (answered + failed) / seconds);
  if (failed > 0) line += fmt::format(" ({:.0f} failed)", failed);
  const double ttft_seconds = Gain(before.ttft_seconds, after.ttft_seconds);
  line += first_tokens > 0 ? fmt::format(", TTFT {}", ShowSeconds(ttft_seconds / first_tokens)) : ", TTFT -";
  line += fmt::format(", {:.0f} tokens/s", Gain(before.answer_tokens, after.answer_tokens) / seconds);
  // One counter moves when a request is placed, the other when it ends: a window may see more of the second.
  line += placed > 0 ? fmt::format(", {:.0f}% cached", 100 * std::min(1.0, cached / placed)) : ", - cached";
  line += fmt::format(", {:.0f} running", after.running);
  if (after.queued > 0) line += fmt::format(", {:.0f} queued", after.queued);
  return line;
}

}  // namespace baton::cli
