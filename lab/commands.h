// The commands of `baton-lab`: each Add function as those in cli/commands.h.
#pragma once

#include <CLI/App.hpp>

#include "cli/commands.h"

namespace baton::lab {

cli::Command AddBench(CLI::App& root, const cli::CliContext& context);
cli::Command AddEval(CLI::App& root, const cli::CliContext& context);
cli::Command AddPlan(CLI::App& root, const cli::CliContext& context);
cli::Command AddSimulate(CLI::App& root, const cli::CliContext& context);

}  // namespace baton::lab
