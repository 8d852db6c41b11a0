// TlsPeer: an HTTP client under TLS that does only what it is told. Blocking; reads fail after 20 s, scaled.
// One thread.
#pragma once

#include <openssl/ssl.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tests/unit/common/telemetry/http_peer.h"

namespace baton::gateway {

struct TlsWish {
  std::string ca;
  int max_version = TLS1_3_VERSION;
  // Protocols that the client names; none: it names none.
  std::vector<std::string> protocols = {"http/1.1"};
};

class TlsPeer {
 public:
  // Connects, and shakes hands. connected(): whether the server's certificate was accepted for 127.0.0.1, and
  // all went well.
  TlsPeer(const std::string& address, const TlsWish& wish);
  ~TlsPeer();
  TlsPeer(const TlsPeer&) = delete;
  TlsPeer& operator=(const TlsPeer&) = delete;

  bool connected() const { return connected_; }
  std::string version() const { return SSL_get_version(ssl_.get()); }
  std::string protocol() const;
  // The server certificate's serial number.
  long serial() const;

  bool Send(std::string_view bytes);
  telemetry::HttpAnswer Receive();
  // Everything up to the end. ended_well(): it was told as such, and not cut.
  std::string ReadToEnd();
  bool ended_well() const { return ended_well_; }
  // Says goodbye, as a client that leaves.
  void Leave();

 private:
  bool Fill();

  const std::unique_ptr<SSL_CTX, void (*)(SSL_CTX*)> context_;
  const std::unique_ptr<SSL, void (*)(SSL*)> ssl_;
  int socket_ = -1;
  bool connected_ = false, ended_well_ = false;
  std::string received_;
};

}  // namespace baton::gateway
