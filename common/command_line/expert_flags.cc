#include "common/command_line/expert_flags.h"

#include <CLI/CLI.hpp>

namespace baton::command_line {

std::array<CLI::Option*, 2> AddExpertFlags(CLI::App& app, std::string& file, int64_t& memory) {
  CLI::Option* const from =
      app.add_option(
             "--expert-file", file,
             "File that `baton model pack` made of the model's experts, which then stay on the disk (cpu)")
          ->type_name("FILE");
  CLI::Option* const most =
      app.add_option("--expert-memory", memory,
                     "Most bytes of experts of --expert-file that a worker has in memory, for example 8GiB")
          ->transform(CLI::AsSizeValue(false))
          ->check(CLI::PositiveNumber);
  from->needs(most);
  most->needs(from);
  return {from, most};
}

}  // namespace baton::command_line
