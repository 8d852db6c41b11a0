// HelpFormat: how --help shows options: `--name VALUE`, then the description, then range, default and
// dependencies in brackets. For parse.cc. One thread.
#pragma once

#include <CLI/App.hpp>
#include <CLI/Formatter.hpp>
#include <string>
#include <vector>

namespace baton::command_line {

class HelpFormat final : public CLI::Formatter {
 public:
  std::string make_help(const CLI::App* app, std::string name, CLI::AppFormatMode mode) const override;
  std::string make_group(std::string group, bool is_positional,
                         std::vector<const CLI::Option*> options) const override;
  std::string make_option_opts(const CLI::Option* option) const override;
  std::string make_option_desc(const CLI::Option* option) const override;

 private:
  // The help that is being made leaves out all but the options of ShowFirst.
  mutable bool brief_ = false;
};

}  // namespace baton::command_line
