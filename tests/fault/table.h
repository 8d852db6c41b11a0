// A fault matrix tried cell by cell: every red cell is a failed expectation, and the table goes to stdout.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <span>
#include <string>

#include "tests/fault/matrix.h"
#include "tests/patience.h"

namespace baton::fault {

// Which cells a test tries under a sanitizer: one in `of`, another one than its siblings, whose matrices have
// the same states and faults. Without a sanitizer a test tries all cells, or one in `of_all`.
struct Share {
  size_t one = 0;
  size_t of = 1;
  size_t of_all = 1;
};

inline void TryAll(std::span<const char* const> states, std::span<const char* const> faults, Share share,
                   const std::function<Cell(int state, int fault)>& try_cell) {
  const size_t of = kSanitized ? share.of : share.of_all;
  int red = 0;
  int tried = 0;
  absl::Duration longest_noticed, longest_answer;
  std::string table = fmt::format("{:12}", "");
  for (const char* fault : faults) table += fmt::format("{:>10}", fault);
  table += "\n";
  for (size_t state = 0; state < states.size(); ++state) {
    table += fmt::format("{:12}", states[state]);
    for (size_t fault = 0; fault < faults.size(); ++fault) {
      if ((state + fault) % of != share.one % of) {
        table += fmt::format("{:>10}", "-");
        continue;
      }
      ++tried;
      const Cell cell = try_cell(static_cast<int>(state), static_cast<int>(fault));
      EXPECT_EQ(cell.wrong, "") << states[state] << " x " << faults[fault];
      red += !cell.wrong.empty();
      longest_noticed = std::max(longest_noticed, cell.noticed);
      longest_answer = std::max(longest_answer, cell.answered);
      table += cell.wrong.empty() ? fmt::format("{:>10}", absl::ToInt64Milliseconds(cell.answered))
                                  : fmt::format("{:>10}", "RED");
    }
    table += "\n";
  }
  std::printf("Milliseconds (virtual) from the fault to the client's end:\n%s", table.c_str());
  std::printf(
      "%d cells, %d red; longest until the survivors let go: %.3f s; longest until the answer: %.3f s\n",
      tried, red, absl::ToDoubleSeconds(longest_noticed), absl::ToDoubleSeconds(longest_answer));
}

}  // namespace baton::fault
