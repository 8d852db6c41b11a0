// `baton health`: is a Baton process ready? For scripts, `helm test` and images without a shell.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <memory>

#include "cli/chat/interrupt.h"
#include "cli/chat/request_flags.h"
#include "cli/commands.h"
#include "cli/exit_code.h"

namespace baton::cli {
namespace {

constexpr char kHealthExamples[] = R"(
Examples:
  baton health                                   the router of `baton serve`
  baton health --server 10.0.0.7:8471 --service live
      the process lives, whatever its peers do
Exit code 0: SERVING; 1: not, or not reached.)";

// A process that takes longer to say how it is counts as not ready.
constexpr absl::Duration kPatience = absl::Seconds(30);

struct HealthFlags {
  ServerFlags server;
  std::string service;
};

int RunHealth(const HealthFlags& flags) {
  if (const absl::Status status = flags.server.Check(); !status.ok())
    return Misused(std::string(status.message()));
  if (flags.service.size() > 200) return Misused("--service: the name is too long");
  const Interrupt interrupt;
  const absl::StatusOr<Target> target = ReachServer(flags.server, interrupt.fd());
  if (!target.ok()) return Fail(target.status());
  const absl::StatusOr<bool> serving =
      target->client->IsServing(flags.service, std::min(flags.server.Timeout(), kPatience));
  if (!serving.ok()) return Fail(serving.status());
  fmt::print("{}\n", *serving ? "SERVING" : "NOT_SERVING");
  return *serving ? kExitOk : kExitError;
}

}  // namespace

Command AddHealth(CLI::App& root, const CliContext&) {
  CLI::App* app = root.add_subcommand("health", "Ask a server whether it is ready");
  app->footer(kHealthExamples);
  auto flags = std::make_shared<HealthFlags>();
  app->add_option("--service", flags->service,
                  "Service to ask for: none (ready for work), \"live\", or baton.v1.Inference/MODEL")
      ->type_name("NAME");
  flags->server.AddTo(*app, "to reach the server");
  return {app, [flags] { return RunHealth(*flags); }};
}

}  // namespace baton::cli
