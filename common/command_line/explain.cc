#include "common/command_line/explain.h"

#include <fmt/format.h>

#include <CLI/App.hpp>
#include <algorithm>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/strings/str_join.h"
#include "common/command_line/constraint.h"
#include "common/command_line/spelling.h"

namespace baton::command_line {
namespace {

// The app and the commands that were recognized, from the outside in: `baton`, `key`, `new`.
using Chain = std::vector<const CLI::App*>;

constexpr size_t kMaxShown = 100;

std::string Quoted(std::string_view text) {
  const bool cut = text.size() > kMaxShown;
  return fmt::format("\"{}{}\"", text.substr(0, kMaxShown), cut ? "..." : "");
}

// " (did you mean X?)", or nothing.
std::string DidYouMean(std::string_view word, const std::vector<std::string>& candidates) {
  const std::string nearest = Nearest(word, candidates);
  return nearest.empty() ? "" : fmt::format("; did you mean {}?", nearest);
}

std::vector<std::string> CommandNames(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    names.push_back(command->get_name());
  }
  return names;
}

std::vector<std::string> OptionNames(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options([](const CLI::Option*) { return true; })) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

std::string CommandLine(const Chain& chain) {
  return absl::StrJoin(chain, " ", [](std::string* out, const CLI::App* app) { *out += app->get_name(); });
}

std::string UnknownWord(const Chain& chain, const CLI::App& where, const std::string& word) {
  if (word.starts_with("-")) {
    const std::string name = word.substr(0, word.find('='));
    const std::vector<std::string> known = OptionNames(*chain.back());
    if (&where != chain.back() && std::find(known.begin(), known.end(), name) != known.end()) {
      return fmt::format("{} belongs behind the command: {} {}", name, CommandLine(chain), name);
    }
    return fmt::format("{} has no option {}{}", where.get_name(), Quoted(name),
                       DidYouMean(name, OptionNames(where)));
  }
  const std::vector<std::string> commands = CommandNames(where);
  if (commands.empty() || &where != chain.back()) {
    return fmt::format("{} takes no argument {}: options begin with --", chain.back()->get_name(),
                       Quoted(word));
  }
  const std::string meant = DidYouMean(word, commands);
  return fmt::format("{} has no command {}{}", where.get_name(), Quoted(word),
                     meant.empty() ? fmt::format(": it has {}", absl::StrJoin(commands, ", ")) : meant);
}

// The option that CLI11's message begins with.
const CLI::Option* OptionIn(const Chain& chain, std::string_view message) {
  constexpr std::string_view kConversion = "Could not convert: ";
  if (message.starts_with(kConversion)) message.remove_prefix(kConversion.size());
  for (const CLI::App* app : chain) {
    for (const CLI::Option* option : app->get_options([](const CLI::Option*) { return true; })) {
      const std::string name = option->get_name();
      if (message.starts_with(name) &&
          (message.size() == name.size() || message[name.size()] == ' ' || message[name.size()] == ':')) {
        return option;
      }
    }
  }
  return nullptr;
}

// A value that is not what the option takes. The words of CLI11's own checks are replaced; a check of ours
// has its own.
std::string BadValue(const CLI::Option& option, const std::string& message) {
  const Constraint constraint = ConstraintOf(option);
  const bool own = message.find("Value ") == std::string::npos &&
                   message.find(" not in {") == std::string::npos &&
                   !message.starts_with("Could not convert");
  if (own || constraint.wanted.empty()) return message;
  const std::string value = absl::StrJoin(option.results(), ",");
  return fmt::format("{}: {} is not {}{}", option.get_name(), Quoted(value), constraint.wanted,
                     DidYouMean(value, constraint.choices));
}

std::string WhatIsWrong(const Chain& chain, const CLI::ParseError& error) {
  // An unknown word is the likeliest cause of anything else that seems to be missing.
  for (const CLI::App* app : chain) {
    if (const std::vector<std::string> rest = app->remaining(); !rest.empty()) {
      return UnknownWord(chain, *app, rest.front());
    }
  }
  const std::string message = error.what();
  const CLI::App& last = *chain.back();
  if (message.starts_with("A subcommand is required")) {
    return fmt::format("{} needs a command: {}", last.get_name(), absl::StrJoin(CommandNames(last), ", "));
  }
  const CLI::Option* option = OptionIn(chain, message);
  if (option == nullptr) return message;
  if (error.get_name() == "ArgumentMismatch") {
    const std::string placeholder = ConstraintOf(*option).placeholder;
    return option->count() > 1
               ? fmt::format("{} is given more than once", option->get_name())
               : fmt::format("{} needs a value: {} {}", option->get_name(), option->get_name(), placeholder);
  }
  if (error.get_name() == "ExcludesError") return message + ": give one of them";
  if (error.get_name() == "ConversionError" || error.get_name() == "ValidationError") {
    return BadValue(*option, message);
  }
  return message;
}

}  // namespace

std::string Explain(const CLI::App& app, const CLI::ParseError& error) {
  Chain chain = {&app};
  while (!chain.back()->get_subcommands().empty()) chain.push_back(chain.back()->get_subcommands().front());
  return fmt::format("{}: {}\nSee `{} --help`.\n", app.get_name(), WhatIsWrong(chain, error),
                     CommandLine(chain));
}

}  // namespace baton::command_line
