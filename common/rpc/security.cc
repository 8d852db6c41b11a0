#include "common/rpc/security.h"

#include <fmt/format.h>
#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_credentials_options.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <spdlog/spdlog.h>

#include <algorithm>

#include "common/base/secret.h"
#include "common/base/status.h"
#include "common/rpc/peer.h"
#include "common/rpc/security_flags.h"

namespace baton::rpc {
namespace {

namespace tls = grpc::experimental;

constexpr size_t kMinKeyBytes = 16;

template <auto Free>
struct Freed {
  template <typename T>
  void operator()(T* object) const {
    Free(object);
  }
};
using File = std::unique_ptr<BIO, Freed<BIO_free_all>>;
using Certificate = std::unique_ptr<X509, Freed<X509_free>>;
using PrivateKey = std::unique_ptr<EVP_PKEY, Freed<EVP_PKEY_free>>;

absl::StatusOr<Certificate> ReadCertificate(const std::string& path) {
  const File file(BIO_new_file(path.c_str(), "r"));
  if (file == nullptr) return absl::NotFoundError(fmt::format("{}: can't be read", path));
  Certificate certificate(PEM_read_bio_X509(file.get(), nullptr, nullptr, nullptr));
  if (certificate == nullptr)
    return absl::InvalidArgumentError(fmt::format("{}: no PEM certificate in it", path));
  if (X509_cmp_current_time(X509_get0_notAfter(certificate.get())) < 0) {
    spdlog::error("{}: the certificate has expired; peers will refuse it", path);
  }
  return certificate;
}

// Never asks for a passphrase.
int NoPassphrase(char*, int, int, void*) { return -1; }

absl::Status CheckPair(const std::string& cert, const std::string& key) {
  BATON_ASSIGN_OR_RETURN(const Certificate certificate, ReadCertificate(cert));
  const File file(BIO_new_file(key.c_str(), "r"));
  if (file == nullptr) return absl::NotFoundError(fmt::format("{}: can't be read", key));
  const PrivateKey private_key(PEM_read_bio_PrivateKey(file.get(), nullptr, NoPassphrase, nullptr));
  if (private_key == nullptr) {
    return absl::InvalidArgumentError(fmt::format("{}: no PEM private key without a passphrase in it", key));
  }
  if (X509_check_private_key(certificate.get(), private_key.get()) != 1) {
    return absl::InvalidArgumentError(fmt::format("{} is not the private key of {}", key, cert));
  }
  return absl::OkStatus();
}

template <typename Options>
void Provide(Options* options, const SecurityOptions& from, const std::string& ca) {
  const auto seconds =
      static_cast<unsigned>(std::max<int64_t>(1, absl::ToInt64Seconds(from.reload_interval)));
  options->set_certificate_provider(
      std::make_shared<tls::FileWatcherCertificateProvider>(from.key, from.cert, ca, seconds));
  if (!from.cert.empty()) options->watch_identity_key_cert_pairs();
  if (!ca.empty()) options->watch_root_certs();
}

}  // namespace

absl::StatusOr<std::shared_ptr<const Security>> Security::Load(const SecurityOptions& options) {
  BATON_RETURN_IF_ERROR(CheckFlags(options));
  if (!options.cert.empty()) BATON_RETURN_IF_ERROR(CheckPair(options.cert, options.key));
  for (const std::string* ca : {&options.ca, &options.client_ca}) {
    if (!ca->empty()) BATON_RETURN_IF_ERROR(ReadCertificate(*ca).status());
  }
  std::shared_ptr<Security> security(new Security(options));
  if (!options.fleet_key_file.empty()) {
    BATON_ASSIGN_OR_RETURN(security->fleet_key_,
                           ReadSecretFile(options.fleet_key_file, "fleet key", kMinKeyBytes));
  }
  if (!options.api_key_file.empty()) {
    BATON_ASSIGN_OR_RETURN(security->api_key_, ReadSecretFile(options.api_key_file, "API key", kMinKeyBytes));
  }
  return std::shared_ptr<const Security>(std::move(security));
}

std::shared_ptr<grpc::ServerCredentials> Security::FleetCredentials() const {
  if (!has_certificate()) return grpc::InsecureServerCredentials();
  tls::TlsServerCredentialsOptions options(nullptr);
  Provide(&options, options_, options_.ca);
  options.set_cert_request_type(options_.ca.empty()
                                    ? GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE
                                    : GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  return tls::TlsServerCredentials(options);
}

std::shared_ptr<grpc::ServerCredentials> Security::PublicCredentials() const {
  if (!has_certificate()) return grpc::InsecureServerCredentials();
  tls::TlsServerCredentialsOptions options(nullptr);
  Provide(&options, options_, options_.client_ca);
  options.set_cert_request_type(options_.client_ca.empty() ? GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE
                                                           : GRPC_SSL_REQUEST_CLIENT_CERTIFICATE_AND_VERIFY);
  return tls::TlsServerCredentials(options);
}

std::shared_ptr<grpc::ChannelCredentials> Security::Channel() const {
  if (!has_tls_channels()) return grpc::InsecureChannelCredentials();
  tls::TlsChannelCredentialsOptions options;
  Provide(&options, options_, options_.ca);
  options.set_verify_server_certs(true);
  options.set_certificate_verifier(std::make_shared<tls::HostNameCertificateVerifier>());
  return tls::TlsCredentials(options);
}

absl::Status Security::CheckPeer(const grpc::ServerContextBase& context) const {
  if (has_certificate() && has_tls_channels()) {
    const std::vector<std::string> names = PeerCertificateNames(context);
    if (names.empty())
      return absl::UnauthenticatedError("this call needs a certificate of the fleet (--tls-cert)");
    if (!options_.peer_name.empty() &&
        std::find(names.begin(), names.end(), options_.peer_name) == names.end()) {
      return absl::PermissionDeniedError(fmt::format("the certificate of \"{}\" is not the fleet's (\"{}\")",
                                                     names.front(), options_.peer_name));
    }
  }
  if (has_fleet_key()) {
    const auto shown = context.client_metadata().find(kFleetKeyMetadata);
    if (shown == context.client_metadata().end()) {
      return absl::UnauthenticatedError("this call needs the fleet's key (--fleet-key-file)");
    }
    if (!SameSecret({shown->second.data(), shown->second.size()}, fleet_key_)) {
      return absl::UnauthenticatedError(
          "the fleet's key is wrong: every router and worker needs the same --fleet-key-file");
    }
  }
  return absl::OkStatus();
}

}  // namespace baton::rpc
