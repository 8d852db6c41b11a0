// baton-gateway: OpenAI's and Anthropic's HTTP APIs in front of routers.
#include <CLI/CLI.hpp>
#include <memory>

#include "common/base/status.h"
#include "common/command_line/parse.h"
#include "common/rpc/process.h"
#include "common/telemetry/metrics.h"
#include "gateway/flags.h"
#include "gateway/gateway.h"

namespace {

using namespace baton;

absl::StatusOr<rpc::Serving> Start(const gateway::Flags& flags) {
  struct Running {
    std::unique_ptr<gateway::Gateway> gateway;
    std::unique_ptr<telemetry::MetricsServer> metrics;  // of the gateway
  };
  const auto running = std::make_shared<Running>();
  BATON_ASSIGN_OR_RETURN(running->gateway, gateway::Gateway::Start(flags.options));
  BATON_ASSIGN_OR_RETURN(running->metrics,
                         telemetry::MetricsServer::Start(flags.metrics_listen, running->gateway->metrics(),
                                                         flags.options.security.cert));
  return rpc::Serving{
      .addresses = {{"http", running->gateway->address()}, {"metrics", running->metrics->address()}},
      .drain = [running](absl::Duration grace) { running->gateway->Stop(grace); }};
}

}  // namespace

int main(int argc, char** argv) {
  rpc::BeginProcess();
  gateway::Flags flags;
  CLI::App app("OpenAI's and Anthropic's HTTP APIs in front of routers.", "baton-gateway");
  gateway::AddFlags(app, flags);
  if (const auto code = command_line::Parse(app, argc, argv)) return *code;
  return rpc::RunProcess("gateway", flags.process, flags.options.security, [&] { return Start(flags); });
}
