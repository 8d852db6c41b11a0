// Security: how a process proves itself to others and whom it trusts. With certificates: TLS on its ports and
// mutual TLS on its channels, read from files repeatedly, so that a renewed certificate needs no
// restart. With a key of the fleet: a secret that peers send with every call. With neither: open, as on a
// laptop. Immutable; any thread.
#pragma once

#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server_context.h>

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/rpc/security_options.h"

namespace baton::rpc {

// The metadata in which calls within a fleet carry its key.
inline constexpr char kFleetKeyMetadata[] = "baton-fleet-key";

class Security {
 public:
  // Reads every file once, so that errors are reported at the start: a key that does not fit the certificate,
  // a file without a certificate, an expired one.
  static absl::StatusOr<std::shared_ptr<const Security>> Load(const SecurityOptions& options);

  bool has_certificate() const { return !options_.cert.empty(); }
  bool has_tls_channels() const { return !options_.ca.empty(); }
  bool has_fleet_key() const { return !fleet_key_.empty(); }

  // For a server that only the fleet may call: a certificate of `ca` is required.
  std::shared_ptr<grpc::ServerCredentials> FleetCredentials() const;
  // For a server that clients call: a certificate of `client_ca` is asked for if that is set, and not
  // required.
  std::shared_ptr<grpc::ServerCredentials> PublicCredentials() const;
  // Peers must show a certificate of `ca`, named like the host that was dialed, or `peer_name`.
  std::shared_ptr<grpc::ChannelCredentials> Channel() const;
  const std::string& peer_name() const { return options_.peer_name; }

  // Metadata of every call on our channels; empty values are not sent.
  struct Shown {
    std::string fleet_key;
    std::string api_key;
  };
  Shown shown() const { return {fleet_key_, api_key_}; }

  // UNAUTHENTICATED or PERMISSION_DENIED unless the caller belongs to the fleet: the name in its certificate
  // and the key in its metadata, as far as they are configured.
  absl::Status CheckPeer(const grpc::ServerContextBase& context) const;

 private:
  explicit Security(SecurityOptions options) : options_(std::move(options)) {}

  const SecurityOptions options_;
  std::string fleet_key_;
  std::string api_key_;
};

// CheckPeer for the services of one server; `denied` is called for each caller that it refuses.
class PeerCheck {
 public:
  PeerCheck(std::shared_ptr<const Security> security, std::function<void()> denied)
      : security_(std::move(security)), denied_(std::move(denied)) {}

  absl::Status operator()(const grpc::ServerContextBase& context) const {
    absl::Status status = security_->CheckPeer(context);
    if (!status.ok()) denied_();
    return status;
  }

 private:
  const std::shared_ptr<const Security> security_;
  const std::function<void()> denied_;
};

}  // namespace baton::rpc
