// Certificate: the server's certificate and key for TLS, read again when their files change, so that a
// renewed one needs no restart. TLS 1.2 and 1.3, and h2 or http/1.1 where a client names protocols (ALPN).
// One thread.
#pragma once

#include <boost/asio/ssl/context.hpp>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace baton::gateway::http {

class Certificate {
 public:
  using Context = std::shared_ptr<boost::asio::ssl::context>;

  // PEM files. INVALID_ARGUMENT: one can't be read, or they are no pair.
  static absl::StatusOr<std::unique_ptr<Certificate>> Load(std::string cert, std::string key);

  // For connections that begin now.
  const Context& context() const { return context_; }
  // Looks whether the files have changed. An error leaves all as it was; it is told once for each change.
  absl::Status Reload();

 private:
  Certificate(std::string cert, std::string key) : cert_(std::move(cert)), key_(std::move(key)) {}

  const std::string cert_, key_;
  std::string read_;  // what the files held
  Context context_;
};

}  // namespace baton::gateway::http
