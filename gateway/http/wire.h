// Wire: a client's bytes, as they are or under TLS. What is read and written here are requests and answers in
// either case; deadlines and the end are those of the TCP stream below. For server.cc: Boost is slow to
// compile.
#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <memory>
#include <optional>
#include <utility>

#include "gateway/http/tls.h"

namespace baton::gateway::http {

class Wire {
 public:
  using executor_type = boost::beast::tcp_stream::executor_type;

  // `tls`: null for none.
  Wire(boost::asio::ip::tcp::socket socket, Certificate::Context tls)
      : tcp_(std::move(socket)), context_(std::move(tls)) {
    if (context_ != nullptr) tls_.emplace(tcp_, *context_);
  }

  bool secure() const { return tls_.has_value(); }
  boost::beast::tcp_stream& tcp() { return tcp_; }
  executor_type get_executor() { return tcp_.get_executor(); }

  template <typename Buffers, typename Handler>
  void async_read_some(const Buffers& buffers, Handler&& handler) {
    secure() ? tls_->async_read_some(buffers, std::forward<Handler>(handler))
             : tcp_.async_read_some(buffers, std::forward<Handler>(handler));
  }
  template <typename Buffers, typename Handler>
  void async_write_some(const Buffers& buffers, Handler&& handler) {
    secure() ? tls_->async_write_some(buffers, std::forward<Handler>(handler))
             : tcp_.async_write_some(buffers, std::forward<Handler>(handler));
  }
  // Only with TLS.
  template <typename Handler>
  void Handshake(Handler&& handler) {
    tls_->async_handshake(boost::asio::ssl::stream_base::server, std::forward<Handler>(handler));
  }
  // Says that no more will be written, and waits for the client to say so.
  template <typename Handler>
  void Shutdown(Handler&& handler) {
    tls_->async_shutdown(std::forward<Handler>(handler));
  }

 private:
  boost::beast::tcp_stream tcp_;
  const Certificate::Context context_;
  std::optional<boost::asio::ssl::stream<boost::beast::tcp_stream&>> tls_;
};

}  // namespace baton::gateway::http
