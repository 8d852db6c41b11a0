// `baton bench engine`: the subcommand of `baton bench` that needs no server.
#pragma once

#include "cli/commands.h"

namespace baton::lab {

// `bench`: the command that it belongs to.
cli::Command AddBenchEngine(CLI::App& bench, const cli::CliContext& context);

}  // namespace baton::lab
