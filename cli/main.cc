// `baton`: the one command that a person needs.
#include <CLI/App.hpp>

#include "cli/command_main.h"
#include "cli/commands.h"
#include "cli/lab_commands.h"

namespace {

constexpr char kExamples[] = R"(
Start here:
  baton serve --model DIR             serve a model on this machine
  baton chat                          talk to it, from another terminal
  baton generate --help               each command explains itself, with examples

Exit codes: 0 done, 1 failed, 2 misused.)";

}  // namespace

int main(int argc, char** argv) {
  using namespace baton::cli;
  const CliContext context = MakeContext();
  if (const int failed = HandOver(context.binary_folder, argc, argv)) return failed;
  const auto made =
      MakeApp("Baton serves language models: prefill and decode apart, KV handed over in between.");
  CLI::App& app = *made;
  app.footer(kExamples);
  const std::vector<Command> commands = {
      AddServe(app, context),   AddChat(app, context),   AddGenerate(app, context),
      AddExplain(app, context), AddHealth(app, context), AddKey(app, context),
      AddModel(app, context),   AddUsage(app, context),  AddVersion(app, context)};
  for (const LabCommand& one : kLabCommands) app.add_subcommand(one.name, one.description);
  return RunCommands(app, commands, argc, argv);
}
