// Which known word was probably meant by an unknown one. Pure; any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace baton::command_line {

// The candidate that `word` is an unambiguous beginning of (three letters or more), else the one that is the
// fewest edits away (letters added, left out, replaced, or swapped with their neighbour): at most one edit
// per three letters. Empty if there is none.
std::string Nearest(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace baton::command_line
