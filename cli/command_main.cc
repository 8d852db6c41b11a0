#include "cli/command_main.h"

#include <clocale>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>

#include "cli/exit_code.h"
#include "cli/relay_in_process.h"
#include "common/command_line/parse.h"
#include "common/rpc/lifecycle.h"

namespace baton::cli {
namespace {

constexpr char kNotWritten[] = "not all of the answer could be written to standard output";

// Flushes standard output and returns the exit code: an answer that was not written is no success.
int Finish(int code) {
  if ((std::fflush(stdout) == 0 && std::ferror(stdout) == 0) || code != kExitOk) return code;
  return Fail(kNotWritten);
}

}  // namespace

CliContext MakeContext() {
  rpc::PrepareStandardStreams();
  rpc::SkipLockOrderChecks();
  // Only what a terminal can show depends on the locale; numbers stay numbers.
  std::setlocale(LC_CTYPE, "");
  const bool colour = std::getenv("NO_COLOR") == nullptr;
  std::error_code error;
  CliContext context;
  context.binary_folder = std::filesystem::read_symlink("/proc/self/exe", error).parent_path().string();
  context.out = DetectTerminal(1, colour);
  context.err = DetectTerminal(2, colour);
  context.start_local_relay = StartRelayInProcess;
  return context;
}

std::unique_ptr<CLI::App> MakeApp(const std::string& description) {
  auto app = std::make_unique<CLI::App>(description, "baton");
  app->require_subcommand(1);
  app->set_help_all_flag("--help-all", "Print all options and exit");  // commands that are added get it, too
  return app;
}

int RunCommands(CLI::App& app, const std::vector<Command>& commands, int argc, char** argv) {
  if (argc == 1) {
    std::fputs(app.help().c_str(), stderr);
    return kExitUsage;
  }
  if (const auto code = command_line::Parse(app, argc, argv)) return Finish(*code);
  try {
    for (const Command& command : commands) {
      if (command.app->parsed()) return Finish(command.run());
    }
  } catch (const std::system_error& failure) {  // fmt::print, to standard output
    return Fail(std::string(kNotWritten) + ": " + failure.code().message());
  }
  return kExitUsage;
}

}  // namespace baton::cli
