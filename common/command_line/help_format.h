// HelpFormat: how --help shows options: `--name VALUE`, then the description, then range, default and
// dependencies in brackets. For parse.cc. Immutable.
#pragma once

#include <CLI/App.hpp>
#include <CLI/Formatter.hpp>
#include <string>

namespace baton::command_line {

class HelpFormat final : public CLI::Formatter {
 public:
  std::string make_option_opts(const CLI::Option* option) const override;
  std::string make_option_desc(const CLI::Option* option) const override;
};

}  // namespace baton::command_line
