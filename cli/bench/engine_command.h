// `baton bench engine`: the subcommand of `baton bench` that needs no server.
#pragma once

#include "cli/commands.h"

namespace baton::cli {

// `bench`: the command that it belongs to.
Command AddBenchEngine(CLI::App& bench, const CliContext& context);

}  // namespace baton::cli
