#include "common/command_line/constraint.h"

#include <fmt/format.h>

#include <CLI/App.hpp>
#include <string_view>

#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace baton::command_line {
namespace {

// "INT in [1 - 64]" -> "1 to 64"; empty if it is no range.
std::string RangeOf(const std::string& check) {
  const size_t open = check.find(" in [");
  const size_t middle = check.find(" - ");
  if (open == std::string::npos || middle == std::string::npos || check.back() != ']') return "";
  const size_t begin = open + 5;
  return fmt::format("{} to {}", check.substr(begin, middle - begin),
                     check.substr(middle + 3, check.size() - middle - 4));
}

void Take(const std::string& check, bool whole, Constraint* constraint) {
  const std::string number = whole ? "a whole number" : "a number";
  if (check == "POSITIVE") {
    constraint->range = "above 0";
    constraint->wanted = number + " above 0";
  } else if (check == "NONNEGATIVE") {
    constraint->range = "0 or more";
    constraint->wanted = number + ", 0 or more";
  } else if (const std::string range = RangeOf(check); !range.empty()) {
    constraint->range = range;
    constraint->wanted =
        fmt::format("{} from {}", check.starts_with("FLOAT") ? "a number" : "a whole number", range);
  } else if (check.starts_with('{') && check.ends_with('}')) {
    constraint->choices = absl::StrSplit(check.substr(1, check.size() - 2), ',');
    constraint->placeholder = absl::StrJoin(constraint->choices, "|");
    constraint->wanted = "one of " + absl::StrJoin(constraint->choices, ", ");
  } else if (check.starts_with("SIZE ")) {
    constraint->placeholder = "SIZE";
    constraint->wanted = "a size: use for example 512MiB, 2GiB or a number of bytes";
  }
}

}  // namespace

Constraint ConstraintOf(const CLI::Option& option) {
  Constraint constraint;
  if (option.get_type_size() == 0) return constraint;
  // The name of the type, then what each check says of itself.
  const std::vector<std::string> words = absl::StrSplit(option.get_type_name(), ':');
  const std::string& type = words.front();
  const bool whole = type == "INT" || type == "UINT" || type == "N";
  if (whole) {
    constraint.placeholder = "N";
    constraint.wanted = "a whole number";
  } else if (type == "FLOAT") {
    constraint.placeholder = "X";
    constraint.wanted = "a number";
  } else {
    constraint.placeholder = type;
  }
  for (size_t i = 1; i < words.size(); ++i) Take(words[i], whole, &constraint);
  return constraint;
}

}  // namespace baton::command_line
