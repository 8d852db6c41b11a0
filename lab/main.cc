// `baton-lab`: the commands of `baton` that measure, simulate and plan. `baton` runs it in its own place
// (cli/lab_commands.h), so its help has that name.
#include "cli/command_main.h"
#include "lab/commands.h"

int main(int argc, char** argv) {
  using namespace baton::lab;
  const baton::cli::CliContext context = baton::cli::MakeContext();
  const auto made =
      baton::cli::MakeApp("Measures how a deployment or a model does, and plans and simulates others.");
  CLI::App& app = *made;
  return baton::cli::RunCommands(
      app, {AddBench(app, context), AddEval(app, context), AddPlan(app, context), AddSimulate(app, context)},
      argc, argv);
}
