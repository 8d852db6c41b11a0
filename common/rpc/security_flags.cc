#include "common/rpc/security_flags.h"

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <string>

namespace baton::rpc {
namespace {

void AddCertificate(CLI::App& app, SecurityOptions& options, const std::string& shown_to) {
  app.add_option("--tls-cert", options.cert,
                 "Certificate to show to " + shown_to + ", PEM, read again when it changes")
      ->type_name("FILE");
  app.add_option("--tls-key", options.key, "Its private key, PEM")->type_name("FILE");
}

}  // namespace

absl::Status CheckFlags(const SecurityOptions& options) {
  if (options.cert.empty() != options.key.empty()) {
    return absl::InvalidArgumentError("--tls-cert and --tls-key: give both or neither");
  }
  if (!options.client_ca.empty() && options.cert.empty()) {
    return absl::InvalidArgumentError(
        "--tls-client-ca: needs --tls-cert and --tls-key, because only TLS can ask clients for certificates");
  }
  if (!options.peer_name.empty() && options.ca.empty()) {
    return absl::InvalidArgumentError(
        "--tls-peer-name: needs --tls-ca, the authority whose names are trusted");
  }
  return absl::OkStatus();
}

void AddFleetFlags(CLI::App& app, SecurityOptions& options) {
  AddCertificate(app, options, "clients and peers");
  app.add_option("--tls-ca", options.ca,
                 "CA of the fleet's certificates, PEM: mutual TLS between routers and workers")
      ->type_name("FILE");
  app.add_option("--tls-peer-name", options.peer_name,
                 "Name that the certificate of every router and worker has; none: the host that is dialed")
      ->type_name("NAME");
  app.add_option("--fleet-key-file", options.fleet_key_file,
                 "Secret by which routers and workers know one another, the same for all")
      ->type_name("FILE");
}

void AddPublicEndpointFlags(CLI::App& app, SecurityOptions& options) {
  app.add_option("--tls-client-ca", options.client_ca,
                 "CA of clients' certificates, PEM; a client may use one instead of an API key")
      ->type_name("FILE");
}

void AddGatewayFlags(CLI::App& app, SecurityOptions& options) {
  AddCertificate(app, options, "clients, who then have to use TLS, and to a router that asks");
  app.add_option("--tls-ca", options.ca, "Use TLS to the router; CA of its certificate, PEM")
      ->type_name("FILE");
  app.add_option("--tls-server-name", options.peer_name,
                 "Name in the router's certificate, if it is not the host in --router")
      ->type_name("NAME");
  app.add_option("--api-key-file", options.api_key_file, "File with the API key; `baton key new` makes one")
      ->type_name("FILE");
}

void AddClientFlags(CLI::App& app, SecurityOptions& options) {
  app.add_option("--tls-ca", options.ca, "Use TLS; CA of the server's certificate, PEM")->type_name("FILE");
  AddCertificate(app, options, "the server");
  app.add_option("--tls-server-name", options.peer_name,
                 "Name in the server's certificate, if it is not the host in --server")
      ->type_name("NAME");
  app.add_option("--api-key-file", options.api_key_file, "File with the API key; `baton key new` makes one")
      ->type_name("FILE");
}

}  // namespace baton::rpc
