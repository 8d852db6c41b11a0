// The subcommands of `baton`, but for those of `baton-lab` (lab_commands.h). Each Add function declares one's
// flags and help, and returns what to run when the user has chosen it; that returns the exit code.
#pragma once

#include <CLI/App.hpp>
#include <functional>
#include <string>

#include "cli/local_relay.h"
#include "cli/show/terminal.h"

namespace baton::cli {

// Properties of the process for every command: where the binaries are, and what the terminal can show.
struct CliContext {
  // Folder of this binary and of the servers' binaries.
  std::string binary_folder;
  Terminal out;
  Terminal err;
  StartLocalRelay start_local_relay;
};

struct Command {
  CLI::App* app;
  std::function<int()> run;
};

Command AddServe(CLI::App& root, const CliContext& context);
Command AddChat(CLI::App& root, const CliContext& context);
Command AddGenerate(CLI::App& root, const CliContext& context);
Command AddExplain(CLI::App& root, const CliContext& context);
Command AddHealth(CLI::App& root, const CliContext& context);
Command AddKey(CLI::App& root, const CliContext& context);
Command AddModel(CLI::App& root, const CliContext& context);
Command AddUsage(CLI::App& root, const CliContext& context);
Command AddVersion(CLI::App& root, const CliContext& context);

}  // namespace baton::cli
