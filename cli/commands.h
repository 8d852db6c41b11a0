// The subcommands of `baton`. Each Add function declares one's flags and help, and returns what to run when
// the user has chosen it; that returns the exit code.
#pragma once

#include <CLI/App.hpp>
#include <functional>
#include <string>

#include "cli/local_relay.h"
#include "cli/show/terminal.h"

namespace baton::cli {

// What main() knows of its surroundings.
struct Surroundings {
  // Where this binary and the servers' lie.
  std::string binary_folder;
  Terminal out;
  Terminal err;
  StartLocalRelay start_local_relay;
};

struct Command {
  CLI::App* app;
  std::function<int()> run;
};

Command AddServe(CLI::App& root, const Surroundings& surroundings);
Command AddChat(CLI::App& root, const Surroundings& surroundings);
Command AddGenerate(CLI::App& root, const Surroundings& surroundings);
Command AddBench(CLI::App& root, const Surroundings& surroundings);
Command AddHealth(CLI::App& root, const Surroundings& surroundings);
Command AddKey(CLI::App& root, const Surroundings& surroundings);
Command AddSimulate(CLI::App& root, const Surroundings& surroundings);
Command AddModel(CLI::App& root, const Surroundings& surroundings);
Command AddPlan(CLI::App& root, const Surroundings& surroundings);
Command AddVersion(CLI::App& root, const Surroundings& surroundings);

}  // namespace baton::cli
