#include "gateway/http/http2_connection.h"

#include <algorithm>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "gateway/http/http2_session.h"

namespace baton::gateway::http {
namespace {

namespace asio = boost::asio;
using Error = boost::system::error_code;
using Tcp = asio::ip::tcp;

// For a client to read what was sent last, before the socket is closed.
constexpr absl::Duration kLinger = absl::Seconds(1);

class Http2Connection final : public Connection, public std::enable_shared_from_this<Http2Connection> {
 public:
  Http2Connection(Site& site, std::unique_ptr<Wire> wire, std::string address)
      : Connection(std::move(address)),
        site_(site),
        wire_(std::move(wire)),
        session_(site, this->address(), absl::Now(), [this] { Flush(); }),
        timer_(site.loop->context()) {}

  void Begin(std::string_view read) {
    if (closed_) return;
    wire_->tcp().expires_never();  // its own timer sees to all of it
    Watch();
    Take(read);
    Read();
  }

  void Leave() override {
    session_.Leave(absl::Now());
    Flush();
  }

  void Close() override {
    if (std::exchange(closed_, true)) return;
    const auto self = shared_from_this();
    wire_->tcp().close();
    timer_.cancel();
    session_.Close();
    site_.closed(*this);
  }

 private:
  // Connections that rest have no buffer for what may come: without TLS it is read when it is there.
  void Read() {
    if (closed_) return;
    if (wire_->secure()) {
      buffer_.resize(kReadBytes);
      return wire_->async_read_some(asio::buffer(buffer_),
                                    [self = shared_from_this()](Error error, size_t bytes) {
                                      self->OnRead(error, self->buffer_.data(), bytes);
                                    });
    }
    wire_->tcp().socket().async_wait(Tcp::socket::wait_read, [self = shared_from_this()](Error error) {
      if (self->closed_) return;
      size_t bytes = 0;
      if (!error) {
        self->wire_->tcp().socket().non_blocking(true, error);
        bytes = self->wire_->tcp().socket().read_some(asio::buffer(self->site_.scratch), error);
      }
      if (error == asio::error::would_block) return self->Read();
      self->OnRead(error, self->site_.scratch.data(), bytes);
    });
  }

  void OnRead(Error error, const char* bytes, size_t size) {
    if (closed_) return;
    if (error) return Close();
    if (!ending_) Take({bytes, size});
    Read();
  }

  void Take(std::string_view bytes) {
    if (!session_.Receive(bytes, absl::Now())) last_words_ = true;
    Flush();
  }

  void Flush() {
    if (closed_) return;
    if (std::exchange(asked_, session_.asked()) != session_.asked()) {
      asked_ ? site_.waiting.Leave(*this) : site_.waiting.Enter(*this);
    }
    if (writing_ || ending_) return;
    outgoing_ = session_.Outgoing(absl::Now());
    if (outgoing_.empty()) {
      if (last_words_ || session_.over()) End();
      return;
    }
    writing_ = true;
    written_at_ = absl::Now();
    asio::async_write(*wire_, asio::buffer(outgoing_), [self = shared_from_this()](Error error, size_t) {
      self->writing_ = false;
      if (self->closed_) return;
      if (error) return self->Close();
      self->session_.Written();
      self->Flush();
    });
  }

  // To close a socket with unread bytes in it resets the connection, and the client may lose the end: what it
  // still sends is dropped for a moment. Nobody waits for one that was too bold.
  void End() {
    if (last_words_ || !session_.leaving()) return Close();
    ending_ = true;
    end_by_ = absl::Now() + kLinger;
    session_.Close();
    Error ignored;
    wire_->tcp().socket().shutdown(Tcp::socket::shutdown_send, ignored);
    Watch();
  }

  void Watch() {
    const ServerOptions& options = site_.options;
    const absl::Duration least = std::min({options.header_timeout, options.body_timeout, options.idle_timeout,
                                           options.send_timeout, options.ping_after, 4 * kLinger});
    timer_.expires_after(
        absl::ToChronoNanoseconds(std::clamp(least / 4, absl::Milliseconds(10), absl::Seconds(2))));
    timer_.async_wait([self = shared_from_this()](Error error) {
      if (self->closed_ || error) return;
      const absl::Time now = absl::Now();
      if (self->ending_ ? now > self->end_by_
                        : (self->writing_ && now > self->written_at_ + self->site_.options.send_timeout) ||
                              !self->session_.Tick(now)) {
        return self->Close();
      }
      self->Flush();
      if (!self->closed_) self->Watch();
    });
  }

  Site& site_;
  const std::unique_ptr<Wire> wire_;
  Http2Session session_;
  asio::steady_timer timer_;
  std::vector<char> buffer_;  // under TLS
  std::string outgoing_;
  absl::Time written_at_, end_by_;
  bool asked_ = false;  // at the last look
  bool writing_ = false;
  bool last_words_ = false;  // the client went too far: what is to be said leaves, and then it ends
  bool ending_ = false;
  bool closed_ = false;
};

}  // namespace

std::shared_ptr<Connection> BeginHttp2(Site& site, std::unique_ptr<Wire> wire, std::string address,
                                       boost::beast::flat_buffer read) {
  const auto connection = std::make_shared<Http2Connection>(site, std::move(wire), std::move(address));
  site.loop->Post([connection, read = std::move(read)] {
    connection->Begin({static_cast<const char*>(read.data().data()), read.size()});
  });
  return connection;
}

}  // namespace baton::gateway::http
