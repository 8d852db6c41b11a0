// Opening: a client of which nothing is known yet: its TLS handshake, and its first bytes, which decide
// between HTTP/1.1 and HTTP/2 (RFC 9113, 3.3), whatever ALPN said. Both have header_timeout in all.
#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <memory>
#include <string>

#include "gateway/http/site.h"
#include "gateway/http/tls.h"

namespace baton::gateway::http {

// `tls`: null for none. Begin comes when the site knows it.
class Opening : public Connection {
 public:
  using Connection::Connection;
  virtual void Begin() = 0;
};
std::shared_ptr<Opening> MakeOpening(Site& site, boost::asio::ip::tcp::socket socket,
                                     Certificate::Context tls, std::string address);

}  // namespace baton::gateway::http
