// `baton version`: which Baton this is.
#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/exit_code.h"
#include "common/base/build_info.h"

namespace baton::cli {

Command AddVersion(CLI::App& root, const CliContext&) {
  CLI::App* app = root.add_subcommand("version", "Print the version");
  return {app, [] {
            const BuildInfo build = GetBuildInfo();
            fmt::print("baton {} (commit {}, {}, {})\n", build.version, build.commit, build.build_type,
                       build.compiler);
            return kExitOk;
          }};
}

}  // namespace baton::cli
