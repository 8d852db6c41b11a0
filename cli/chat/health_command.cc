// `baton health`: is a Baton process ready? For scripts, `helm test` and images without a shell.
#include <fmt/format.h>

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

struct HealthFlags {
  TargetFlags target;
  std::string service;
};

int RunHealth(const HealthFlags& flags, const CliContext& context) {
  if (!flags.target.model_folder.empty()) return Misused("health asks a server: give --server, not --model");
  if (const absl::Status status = flags.target.Check(); !status.ok())
    return Misused(std::string(status.message()));
  if (flags.service.size() > 100) return Misused("--service: the name is too long");
  const Interrupt interrupt;
  const absl::StatusOr<Target> target = Reach(flags.target, interrupt.fd(), context);
  if (!target.ok()) return Fail(target.status());
  const absl::StatusOr<bool> serving = target->client->IsServing(flags.service);
  if (!serving.ok()) return Fail(serving.status());
  fmt::print("{}\n", *serving ? "SERVING" : "NOT_SERVING");
  return *serving ? kExitOk : kExitError;
}

}  // namespace

Command AddHealth(CLI::App& root, const CliContext& context) {
  CLI::App* app = root.add_subcommand("health", "Ask a server whether it is ready");
  app->footer(kHealthExamples);
  auto flags = std::make_shared<HealthFlags>();
  app->add_option("--service", flags->service, "Service to ask for: none (ready for work) or \"live\"")
      ->type_name("NAME");
  flags->target.AddTo(*app);
  return {app, [flags, &context] { return RunHealth(*flags, context); }};
}

}  // namespace baton::cli
