// Traffic: what a router's metrics page says about its requests, and the rates that follow. Pure
// functions, any thread.
#pragma once

#include <string>
#include <string_view>

#include "absl/time/time.h"

namespace baton::cli {

// Totals since the router's start, over all labels; gauges as they stood.
struct Traffic {
  double answered = 0;  // requests that ended well
  double failed = 0;    // requests that were refused or ended in an error
  double first_tokens = 0;
  double ttft_seconds = 0;  // their sum
  double answer_tokens = 0;
  double placed_tokens = 0;  // prompt tokens of placements
  double cached_tokens = 0;  // those that the chosen workers held
  double running = 0;
  double queued = 0;

  // From a page in Prometheus' text format; what it lacks is 0.
  static Traffic Parse(std::string_view page);
};

// One line about what happened between two pages, `seconds` apart, as a rule of less than 80 columns: "2.5
// requests/s, TTFT 41.0 ms, 118 tokens/s, 62% cached, 4 running, 1 queued". Cached: of the prompt tokens. A
// counter that went back means that the router was restarted.
std::string DescribeTraffic(const Traffic& before, const Traffic& after, double seconds);

}  // namespace baton::cli
