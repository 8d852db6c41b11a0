#include "gateway/http/opening.h"

#include <algorithm>
#include <boost/beast/core/flat_buffer.hpp>
#include <string_view>
#include <utility>

#include "gateway/http/http1_connection.h"
#include "gateway/http/http2_connection.h"
#include "gateway/http/wire.h"

namespace baton::gateway::http {
namespace {

using Error = boost::system::error_code;

constexpr std::string_view kPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

class FirstBytes final : public Opening, public std::enable_shared_from_this<FirstBytes> {
 public:
  FirstBytes(Site& site, boost::asio::ip::tcp::socket socket, Certificate::Context tls, std::string address)
      : Opening(std::move(address)),
        site_(site),
        wire_(std::make_unique<Wire>(std::move(socket), std::move(tls))) {}

  void Begin() override {
    wire_->tcp().expires_after(absl::ToChronoNanoseconds(site_.options.header_timeout));
    if (!wire_->secure()) return Read();
    wire_->Handshake([self = shared_from_this()](Error error) {
      if (self->closed_) return;
      if (!error) return self->Read();
      self->site_.Count(self->site_.failed_handshakes);
      self->Close();
    });
  }

  void Leave() override { Close(); }

  void Close() override {
    if (std::exchange(closed_, true)) return;
    const auto self = shared_from_this();
    if (wire_ != nullptr) wire_->tcp().close();
    site_.closed(*this);
  }

 private:
  void Read() {
    wire_->async_read_some(buffer_.prepare(kReadBytes),
                           [self = shared_from_this()](Error error, size_t bytes) {
                             if (self->closed_) return;
                             if (error) return self->Close();
                             self->buffer_.commit(bytes);
                             self->Decide();
                           });
  }

  void Decide() {
    const std::string_view read(static_cast<const char*>(buffer_.data().data()), buffer_.size());
    const bool http2 = read.substr(0, kPreface.size()) == kPreface.substr(0, read.size());
    if (http2 && read.size() < kPreface.size()) return Read();
    closed_ = true;
    site_.became(*this, http2 ? BeginHttp2(site_, std::move(wire_), address(), std::move(buffer_))
                              : BeginHttp1(site_, std::move(wire_), address(), std::move(buffer_)));
  }

  Site& site_;
  std::unique_ptr<Wire> wire_;
  boost::beast::flat_buffer buffer_;
  bool closed_ = false;  // or it is something else now
};

}  // namespace

std::shared_ptr<Opening> MakeOpening(Site& site, boost::asio::ip::tcp::socket socket,
                                     Certificate::Context tls, std::string address) {
  return std::make_shared<FirstBytes>(site, std::move(socket), std::move(tls), std::move(address));
}

}  // namespace baton::gateway::http
