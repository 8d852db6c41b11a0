// baton-gateway: OpenAI's and Anthropic's HTTP APIs in front of routers.
#include <spdlog/spdlog.h>

#include <CLI/CLI.hpp>
#include <string>

#include "common/base/service_address.h"
#include "common/command_line/option_types.h"
#include "common/command_line/parse.h"
#include "common/rpc/lifecycle.h"
#include "common/rpc/security_flags.h"
#include "common/telemetry/metrics.h"
#include "gateway/gateway.h"
#include "gateway/origins.h"

namespace {

int Fail(const absl::Status& status) {
  spdlog::error("{}", std::string(status.message()));
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  baton::rpc::SkipLockOrderChecks();
  baton::rpc::CatchStopSignals();
  baton::gateway::GatewayOptions options;
  std::string metrics_listen = "127.0.0.1:0";
  std::string log_level = "info";
  bool exit_with_parent = false;
  double drain_seconds = 10;

  CLI::App app("OpenAI's and Anthropic's HTTP APIs in front of routers.", "baton-gateway");
  app.add_option(
         "--router", options.routers,
         "The routers, with commas between them: host:port, or dns:///name:port for all addresses of a "
         "name, which is asked for again every 5 s. A call goes to the one that is ready and has the "
         "fewest")
      ->required()
      ->type_name("ADDR")
      ->delimiter(',')
      ->check([](const std::string& router) {
        return std::string(baton::ServiceAddress::Parse(router).status().message());
      });
  app.add_option("--listen", options.http.listen, "HTTP address; port 0 lets the system choose")
      ->type_name("ADDR")
      ->check(baton::command_line::Address())
      ->capture_default_str();
  app.add_option("--metrics", metrics_listen, "Prometheus address; port 0 lets the system choose")
      ->type_name("ADDR")
      ->check(baton::command_line::Address())
      ->capture_default_str();
  app.add_option("--max-connections", options.http.max_connections,
                 "Clients' connections at a time; beyond them the one that has been silent longest is closed")
      ->capture_default_str()
      ->check(CLI::Range(1, 100000));
  app.add_option("--max-connections-per-address", options.http.max_connections_per_address,
                 "And from one address")
      ->capture_default_str()
      ->check(CLI::Range(1, 100000));
  app.add_flag_callback(
      "--keep-billing-header", [&options] { options.drop_billing_header = false; },
      "Leave the line x-anthropic-billing-header in Claude Code's system prompts: it differs with every "
      "request, so that nothing is found in the cache");
  app.add_option("--max-streams", options.http.max_streams, "Streams of HTTP/2 at a time; more are refused")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000000));
  app.add_option("--max-streams-per-address", options.http.max_streams_per_address, "And from one address")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000000));
  app.add_option("--max-held-bytes", options.http.max_held_bytes,
                 "What clients may have the process hold: bodies, messages, answers that they do not take")
      ->transform(CLI::AsSizeValue(false))
      ->type_name("SIZE")
      ->default_str("512MiB");
  app.add_option("--cors-origin", options.cors_origins,
                 "An origin whose web pages may use this server, as https://chat.example.com, or * for all; "
                 "may be repeated. Pages of others are refused unless they bring a key")
      ->type_name("ORIGIN")
      ->check([](const std::string& origin) {
        return std::string(baton::gateway::Origins::Check(origin).message());
      });
  app.add_flag("--page", options.page, "Serve a page to chat with at /");
  baton::rpc::AddGatewayFlags(app, options.security);
  app.add_option("--drain-seconds", drain_seconds, "Time for running answers after SIGTERM")
      ->type_name("SECONDS")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_flag("--exit-with-parent", exit_with_parent, "Leave when standard input ends");
  app.add_option("--log-level", log_level, "What is logged")
      ->check(CLI::IsMember({"debug", "info", "warn", "error", "off"}))
      ->capture_default_str();
  if (const auto code = baton::command_line::Parse(app, argc, argv)) return *code;

  if (absl::Status status = baton::rpc::SetUpLogging("gateway", log_level); !status.ok()) return Fail(status);
  auto gateway = baton::gateway::Gateway::Start(options);
  if (!gateway.ok()) return Fail(gateway.status());
  auto metrics =
      baton::telemetry::MetricsServer::Start(metrics_listen, (*gateway)->metrics(), options.security.cert);
  if (!metrics.ok()) return Fail(metrics.status());
  baton::rpc::AnnounceReady({{"http", (*gateway)->address()}, {"metrics", (*metrics)->address()}});
  baton::rpc::WaitForStop(exit_with_parent);
  spdlog::info("leaving: running answers have {} s", drain_seconds);
  (*gateway)->Stop(absl::Seconds(drain_seconds));
  return 0;
}
