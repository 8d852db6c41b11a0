#include "common/command_line/spelling.h"

#include <algorithm>
#include <cstddef>

namespace baton::command_line {
namespace {

constexpr size_t kMinBeginning = 3;
constexpr size_t kLettersPerEdit = 3;
// Longer words are not typed by people; the work is quadratic.
constexpr size_t kMaxWord = 64;

// Optimal string alignment: Levenshtein's distance with swaps of neighbours. Only the last three rows are
// kept.
size_t Edits(std::string_view a, std::string_view b) {
  std::vector<size_t> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) row[j] = std::min(row[j], before[j - 2] + 1);
    }
    before = last;
    last = row;
  }
  return last[b.size()];
}

}  // namespace

std::string Nearest(std::string_view word, const std::vector<std::string>& candidates) {
  if (word.empty() || word.size() > kMaxWord) return "";
  if (word.size() >= kMinBeginning) {
    std::vector<std::string> begun;
    for (const std::string& candidate : candidates) {
      if (candidate.starts_with(word)) begun.push_back(candidate);
    }
    if (begun.size() == 1) return begun.front();
  }
  std::string nearest;
  size_t fewest = std::max(word.size(), kLettersPerEdit) / kLettersPerEdit + 1;
  for (const std::string& candidate : candidates) {
    const size_t edits = Edits(word, candidate);
    if (edits < fewest) {
      fewest = edits;
      nearest = candidate;
    }
  }
  return nearest;
}

}  // namespace baton::command_line
