#include "common/command_line/parse.h"

#include <fmt/format.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <cstdio>
#include <memory>

#include "common/base/build_info.h"
#include "common/command_line/explain.h"
#include "common/command_line/help_format.h"

namespace baton::command_line {
namespace {

void SetFormat(CLI::App& app, const std::shared_ptr<HelpFormat>& format) {
  app.formatter(format);
  for (CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
    SetFormat(*command, format);
}

}  // namespace

std::optional<int> Parse(CLI::App& app, int argc, const char* const* argv) {
  const BuildInfo build = GetBuildInfo();
  app.set_version_flag("--version", fmt::format("{} {} (commit {}, {}, {})", app.get_name(), build.version,
                                                build.commit, build.build_type, build.compiler));
  if (app.get_help_all_ptr() == nullptr) app.set_help_all_flag("--help-all", "Print all options and exit");
  SetFormat(app, std::make_shared<HelpFormat>());
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& asked) {
    return app.exit(asked);  // --help, --help-all, --version
  } catch (const CLI::ParseError& error) {
    std::fputs(Explain(app, error).c_str(), stderr);
    return kExitMisused;
  }
  return std::nullopt;
}

int Misused(const CLI::App& app, const std::string& message) {
  fmt::print(stderr, "{}: {}\n", app.get_name(), message);
  return kExitMisused;
}

}  // namespace baton::command_line
