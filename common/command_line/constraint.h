// Constraint: what an option takes, in words for help and errors. CLI11 describes types and checks in its own
// ("TEXT", "INT in [1 - 64]", "POSITIVE"); this file parses those. Pure; any thread.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class Option;
}

namespace baton::command_line {

struct Constraint {
  // The placeholder of the value: "ADDR", "N", "cpu|cuda". Empty for a flag.
  std::string placeholder;
  // For help: "1 to 64", "above 0". Empty: anything, or the placeholder says it.
  std::string range;
  // For errors, after "is not": "a number from 1 to 64", "one of cpu, cuda". Empty: the check has its own
  // message.
  std::string wanted;
  // The allowed values, if they are a list.
  std::vector<std::string> choices;
};

Constraint ConstraintOf(const CLI::Option& option);

}  // namespace baton::command_line
