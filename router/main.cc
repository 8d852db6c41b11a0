// baton-router: takes requests from clients and places them on decode and prefill workers.
#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "common/command_line/parse.h"
#include "common/rpc/process.h"
#include "common/telemetry/metrics.h"
#include "router/flags.h"
#include "router/router.h"

namespace {

using namespace baton;

absl::StatusOr<rpc::Serving> Start(const router::RouterOptions& options, const std::string& metrics_listen) {
  struct Running {
    std::unique_ptr<router::Router> router;
    std::unique_ptr<telemetry::MetricsServer> metrics;  // of the router
  };
  const auto running = std::make_shared<Running>();
  BATON_ASSIGN_OR_RETURN(running->router, router::Router::Start(options));
  BATON_ASSIGN_OR_RETURN(
      running->metrics,
      telemetry::MetricsServer::Start(metrics_listen, running->router->metrics(), options.security.cert));
  return rpc::Serving{
      .addresses = {{"grpc", running->router->address()}, {"metrics", running->metrics->address()}},
      .drain = [running](absl::Duration) { running->router->Stop(); }};
}

}  // namespace

int main(int argc, char** argv) {
  rpc::BeginProcess();
  router::Flags flags;
  CLI::App app(
      "The public endpoint of a Baton deployment: tokenizes, admits and places requests, and streams the "
      "answers.",
      "baton-router");
  router::AddFlags(app, flags);
  if (const auto code = command_line::Parse(app, argc, argv)) return *code;
  const absl::StatusOr<router::RouterOptions> options = router::OptionsOf(flags);
  if (absl::IsInvalidArgument(options.status())) {
    return command_line::Misused(app, std::string(options.status().message()));
  }
  return rpc::RunProcess("router", flags.process, flags.options.security,
                         [&]() -> absl::StatusOr<rpc::Serving> {
                           BATON_RETURN_IF_ERROR(options.status());
                           return Start(*options, flags.metrics_listen);
                         });
}
