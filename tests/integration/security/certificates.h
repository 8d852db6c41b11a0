// Certificates for tests, made by OpenSSL when the test runs: an authority, and certificates that it signs,
// as PEM files in a folder that goes with the object.
#pragma once

#include <openssl/evp.h>
#include <openssl/x509.h>

#include <memory>
#include <string>

#include "absl/time/time.h"

namespace baton::rpc {

struct PairFiles {
  std::string cert;
  std::string key;
};

class Authority {
 public:
  explicit Authority(const std::string& name);
  ~Authority();

  // The authority's own certificate.
  const std::string& ca() const { return ca_; }
  // For 127.0.0.1, localhost and the name `name`, which is also the file's. Issued again, the files are
  // replaced in one step each.
  PairFiles Issue(const std::string& name, absl::Duration valid_from = -absl::Hours(1),
                  absl::Duration valid_to = absl::Hours(1));

 private:
  const std::string folder_;
  std::string ca_;
  std::unique_ptr<EVP_PKEY, void (*)(EVP_PKEY*)> key_;
  std::unique_ptr<X509, void (*)(X509*)> certificate_;
  long serial_ = 1;
};

}  // namespace baton::rpc
