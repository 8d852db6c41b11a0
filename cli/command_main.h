// The frame of `baton` and `baton-lab`: what they find out about their process, and how they run the command
// that the user has chosen.
#pragma once

#include <CLI/App.hpp>
#include <memory>
#include <string>
#include <vector>

#include "cli/commands.h"

namespace baton::cli {

// The process's binaries and terminals, and the relay that commands start for `--model DIR`. Once, first in
// main().
CliContext MakeContext();

// The application that commands are added to; it is called `baton`.
std::unique_ptr<CLI::App> MakeApp(const std::string& description);

// Parses and runs one of the commands. Returns the exit code, which is a failure's if standard output could
// not be written.
int RunCommands(CLI::App& app, const std::vector<Command>& commands, int argc, char** argv);

}  // namespace baton::cli
