#include "gateway/flags.h"

#include <CLI/CLI.hpp>

#include "common/base/service_address.h"
#include "common/command_line/option_types.h"
#include "common/command_line/parse.h"
#include "common/rpc/security_flags.h"
#include "gateway/origins.h"

namespace baton::gateway {

void AddFlags(CLI::App& app, Flags& flags) {
  app.add_option(
         "--router", flags.options.routers,
         "The routers, with commas between them: host:port, or dns:///name:port for all addresses of a "
         "name, which is asked for again every 5 s. A call goes to the one that is ready and has the "
         "fewest")
      ->required()
      ->type_name("ADDR")
      ->delimiter(',')
      ->check([](const std::string& router) {
        return std::string(ServiceAddress::Parse(router).status().message());
      });
  app.add_option("--listen", flags.options.http.listen, "HTTP address; port 0 lets the system choose")
      ->type_name("ADDR")
      ->check(command_line::Address())
      ->capture_default_str();
  app.add_option("--metrics", flags.metrics_listen, "Prometheus address; port 0 lets the system choose")
      ->type_name("ADDR")
      ->check(command_line::Address())
      ->capture_default_str();
  app.add_option("--max-connections", flags.options.http.max_connections,
                 "Clients' connections at a time; beyond them the one that has been silent longest is closed")
      ->capture_default_str()
      ->check(CLI::Range(1, 100000));
  app.add_option("--max-connections-per-address", flags.options.http.max_connections_per_address,
                 "And from one address")
      ->capture_default_str()
      ->check(CLI::Range(1, 100000));
  app.add_flag_callback(
      "--keep-billing-header", [&flags] { flags.options.drop_billing_header = false; },
      "Leave the line x-anthropic-billing-header in Claude Code's system prompts: it differs with every "
      "request, so that nothing is found in the cache");
  app.add_option("--max-streams", flags.options.http.max_streams,
                 "Streams of HTTP/2 at a time; more are refused")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000000));
  app.add_option("--max-streams-per-address", flags.options.http.max_streams_per_address,
                 "And from one address")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000000));
  app.add_option("--max-held-bytes", flags.options.http.max_held_bytes,
                 "What clients may have the process hold: bodies, messages, answers that they do not take")
      ->transform(CLI::AsSizeValue(false))
      ->type_name("SIZE")
      ->default_str("512MiB");
  app.add_option("--cors-origin", flags.options.cors_origins,
                 "An origin whose web pages may use this server, as https://chat.example.com, or * for all; "
                 "may be repeated. Pages of others are refused unless they bring a key")
      ->type_name("ORIGIN")
      ->check([](const std::string& origin) { return std::string(Origins::Check(origin).message()); });
  app.add_flag("--page", flags.options.page, "Serve a page to chat with at /");
  rpc::AddGatewayFlags(app, flags.options.security);
  rpc::AddProcessFlags(app, flags.process);
  command_line::ShowFirst(app, {"--router", "--listen", "--metrics", "--page", "--cors-origin", "--tls-cert",
                                "--tls-key", "--drain-seconds"});
}

}  // namespace baton::gateway
