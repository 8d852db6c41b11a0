#include "gateway/http/http1_connection.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <boost/asio/write.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <deque>
#include <exception>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "gateway/http/turn.h"

namespace baton::gateway::http {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace bhttp = boost::beast::http;
using Error = boost::system::error_code;
using Tcp = asio::ip::tcp;

// While an answer is under way so much is read at once.
constexpr size_t kWatchBytes = 512;

std::string Text(beast::string_view text) { return {text.data(), text.size()}; }

// The target may be a whole URL (RFC 9112, 3.2.2).
std::string PathOf(std::string_view target) {
  if (const size_t scheme = target.find("://");
      !target.starts_with('/') && scheme != std::string_view::npos) {
    target.remove_prefix(std::min(target.size(), target.find('/', scheme + 3)));
    if (target.empty()) target = "/";
  }
  return std::string(target.substr(0, target.find('?')));
}

bool IsParseError(const Error& error) {
  return error.category() == make_error_code(bhttp::error::bad_method).category() &&
         error != bhttp::error::end_of_stream && error != bhttp::error::partial_message;
}

// Some are newer than Boost, or not the standard's.
std::string ReasonOf(int status) {
  if (status == 499) return "Client Closed Request";
  if (status == 529) return "Overloaded";
  return Text(bhttp::obsolete_reason(bhttp::int_to_status(static_cast<unsigned>(status))));
}

std::string LengthOf(const Response& response) {
  return fmt::format("Content-Length: {}\r\n", response.body.size());
}

// `framing`: lines that say where the body ends; none: where the connection does.
std::string HeadOf(const Response& response, bool keep_alive, const std::string& framing) {
  std::string head = fmt::format("HTTP/1.1 {} {}\r\n", response.status, ReasonOf(response.status));
  head += fmt::format("Content-Type: {}\r\n{}", response.content_type, framing);
  for (const auto& [name, value] : response.headers) head += fmt::format("{}: {}\r\n", name, value);
  head += keep_alive ? "" : "Connection: close\r\n";
  return head + "\r\n";
}

// One client: a request, its answer, again. Handlers keep it alive; once closed, it starts nothing any more.
class Http1Connection final : public Connection,
                              public Outlet,
                              public std::enable_shared_from_this<Http1Connection> {
 private:
  // Calls `next` unless the connection was closed meanwhile. Boost throws over what it can't hold: that is
  // this client's end, and nobody else's.
  template <typename Next>
  auto Then(Next next) {
    return [self = shared_from_this(), next](Error error, size_t bytes = 0) {
      if (self->closed_) return;
      try {
        next(*self, error, bytes);
      } catch (const std::exception& thrown) {
        spdlog::error("a connection of {} is closed: {}", self->address(), thrown.what());
        self->Close();
      }
    };
  }

 public:
  Http1Connection(Site& site, std::unique_ptr<Wire> wire, std::string address, beast::flat_buffer read)
      : Connection(std::move(address)), site_(site), wire_(std::move(wire)), buffer_(std::move(read)) {
    // A header has to lie in it whole, and so have the line before a chunk and what follows the last one:
    // who sends more of these meets its end.
    buffer_.max_size(std::max(buffer_.size(), site_.options.max_header_bytes) + kReadBytes);
  }

  void Begin() {
    if (!closed_) AwaitRequest(site_.options.header_timeout);
  }

  void Leave() override {
    if (turn_ == nullptr) Close();
  }

  void Close() override {
    if (std::exchange(closed_, true)) return;
    const auto self = shared_from_this();
    wire_->tcp().close();
    if (turn_ != nullptr) std::exchange(turn_, nullptr)->Gone();
    site_.closed(*this);
  }

  void SendAnswer(Turn& turn, Response response) override {
    keep_alive_ = keep_alive_ && !site_.leaving;
    Send(HeadOf(response, keep_alive_, LengthOf(response)) +
             (turn.request().method == "HEAD" ? "" : response.body),
         [this] { AnswerIsOver(); });
  }

  void SendHead(Turn&, Response response) override {
    keep_alive_ = keep_alive_ && chunks_ && !site_.leaving;
    Send(HeadOf(response, keep_alive_, chunks_ ? "Transfer-Encoding: chunked\r\n" : "") +
             Framed(response.body),
         nullptr);
  }

  void SendPiece(Turn&, std::string piece, std::function<void()> taken) override {
    Send(Framed(piece), std::move(taken));
  }

  void SendEnd(Turn&) override {
    Send(chunks_ ? "0\r\n\r\n" : "", [this] { AnswerIsOver(); });
  }

  void Cut(Turn&) override { Close(); }

 private:
  void AwaitRequest(absl::Duration limit) {
    turn_.reset();
    if (site_.leaving) return Close();
    site_.waiting.Enter(*this);
    parser_.emplace();
    body_wire_ = 0;
    held_.emplace(site_.UnfinishedOf(address()));
    parser_->header_limit(static_cast<uint32_t>(site_.options.max_header_bytes));
    parser_->body_limit(site_.options.max_body_bytes);
    if (buffer_.size() > 0) return ReadHeader();  // the next of several that came together
    Wait(limit);
    wire_->async_read_some(buffer_.prepare(kReadBytes),
                           Then([](Http1Connection& self, Error error, size_t bytes) {
                             if (error) return self.Close();
                             self.buffer_.commit(bytes);
                             self.ReadHeader();
                           }));
  }

  // Bytes on their way; `taken` runs when they have left.
  void Send(std::string bytes, std::function<void()> taken) {
    // Bytes that wait behind others leave with one call.
    if (outgoing_.size() < 2) outgoing_.emplace_back();
    outgoing_.back().bytes += bytes;
    HoldOutgoing();
    if (taken) outgoing_.back().taken.push_back(std::move(taken));
    if (outgoing_.size() == 1) SendFront();
  }

  void HoldOutgoing() {
    size_t bytes = 0;
    for (const Outgoing& one : outgoing_) bytes += one.bytes.size();
    held_out_.Be(bytes);
  }

  std::string Framed(const std::string& piece) const {
    if (piece.empty() || !chunks_) return piece;
    return fmt::format("{:x}\r\n{}\r\n", piece.size(), piece);
  }

  void AnswerIsOver() {
    if (turn_ != nullptr) turn_->Over();
    Over(keep_alive_);
  }

  // The answer is over: the next request, or the connection's end.
  void Over(bool keep_alive) {
    if (keep_alive && !closed_) site_.waiting.Enter(*this);
    Error ignored;
    socket().cancel(ignored);  // the wait for the client's end
    // No read may follow before that one has ended.
    if (watching_) {
      after_watch_ = [keep_alive](Http1Connection& self) { self.GoOn(keep_alive && self.keep_alive_); };
    } else {
      GoOn(keep_alive);
    }
  }

  struct Outgoing {
    std::string bytes;
    std::vector<std::function<void()>> taken;
  };

  void GoOn(bool keep_alive) {
    if (keep_alive) return AwaitRequest(site_.options.idle_timeout);
    // A server that leaves does not wait for a client without unread bytes.
    Error ignored;
    if (site_.leaving && turn_ != nullptr && buffer_.size() == 0 && socket().available(ignored) == 0)
      return Close();
    // To close a socket with unread bytes in it resets the connection, and the client may lose the answer:
    // what it still sends is dropped until it has read the answer's end.
    buffer_.clear();
    Wait(site_.options.header_timeout);
    if (!wire_->secure()) return DropRest();
    // Under TLS the client is told that this is the end, and not a cut.
    wire_->Shutdown(Then([](Http1Connection& self, Error, size_t) { self.DropRest(); }));
  }

  void DropRest() {
    Error ignored;
    socket().shutdown(Tcp::socket::shutdown_send, ignored);
    Drop();
  }

  Tcp::socket& socket() { return wire_->tcp().socket(); }
  void Wait(absl::Duration limit) { wire_->tcp().expires_after(absl::ToChronoNanoseconds(limit)); }

  void ReadHeader() {
    Wait(site_.options.header_timeout);
    bhttp::async_read_header(*wire_, buffer_, *parser_,
                             Then([](Http1Connection& self, Error error, size_t) { self.OnHeader(error); }));
  }

  void OnHeader(Error error) {
    if (error == bhttp::error::header_limit || error == bhttp::error::buffer_overflow) {
      return Refuse(431, "the header is too long");
    }
    if (error == bhttp::error::body_limit) return TooLarge();
    if (IsParseError(error)) return Refuse(400, "this is no HTTP/1.1");
    if (error) return Close();
    const auto& request = parser_->get();
    if (request.count(bhttp::field::content_length) > 1 ||
        request.count(bhttp::field::transfer_encoding) > 1 ||
        (request.count(bhttp::field::content_length) > 0 &&
         request.count(bhttp::field::transfer_encoding) > 0) ||
        request[bhttp::field::content_length].find(',') != beast::string_view::npos) {
      return Refuse(400, "the length of the body is given twice");
    }
    if (request.count(bhttp::field::transfer_encoding) > 0 &&
        !beast::iequals(request[bhttp::field::transfer_encoding], "chunked")) {
      return Refuse(400, "the only transfer coding that is taken is chunked");
    }
    if (request.version() < 11 && request.count(bhttp::field::transfer_encoding) > 0)
      return Refuse(400, "HTTP/1.0 has no transfer codings");
    if (request.version() >= 11 && request.count(bhttp::field::host) != 1)
      return Refuse(400, "there must be one Host");
    if (const auto length = parser_->content_length(); length && *length > site_.options.max_body_bytes)
      return TooLarge();
    if (beast::iequals(request[bhttp::field::expect], "100-continue"))
      Send("HTTP/1.1 100 Continue\r\n\r\n", nullptr);
    // Now, because Boost adds what follows the last chunk to the header. Nothing there is taken: a proxy that
    // looks at keys does not see it (RFC 9110, 6.5.1).
    request_ = Request{.method = Text(request.method_string()), .address = address()};
    request_.path = PathOf(Text(request.target()));
    for (const auto& field : request) {
      request_.headers.emplace_back(absl::AsciiStrToLower(Text(field.name_string())), Text(field.value()));
    }
    Wait(site_.options.body_timeout);
    ReadBody({});
  }

  // Piece by piece: what clients have the process hold is counted as it comes, and what they send besides,
  // sizes and extensions of chunks, against the same limit.
  void ReadBody(Error error) {
    if (error || parser_->is_done()) return OnRequest(error);
    bhttp::async_read_some(
        *wire_, buffer_, *parser_, Then([](Http1Connection& self, Error failed, size_t bytes) {
          const auto& options = self.site_.options;
          if (self.body_wire_ += bytes; self.body_wire_ > options.max_body_bytes + options.max_header_bytes)
            return self.TooLarge();
          if (self.held_->Become(self.parser_->get().body().size())) return self.ReadBody(failed);
          self.Refuse(503, kNoRoom);
        }));
  }

  void OnRequest(Error error) {
    if (error == bhttp::error::body_limit) return TooLarge();
    if (error == bhttp::error::header_limit || error == bhttp::error::buffer_overflow)
      return Refuse(431, "what lies between chunks, or behind the last one, is too long");
    if (IsParseError(error)) return Refuse(400, "this is no HTTP/1.1");
    if (error) return Close();
    auto message = parser_->release();
    request_.body = std::move(message.body());
    held_->MoveTo(site_.budget);
    site_.waiting.Leave(*this);
    keep_alive_ = message.keep_alive();
    chunks_ = message.version() >= 11;
    turn_ = std::make_shared<Turn>(site_.loop, weak_from_this(), std::move(request_), *std::move(held_),
                                   Held(site_.budget));
    WatchForEnd();
    site_.handler(Turn::Handle(turn_));
  }

  void TooLarge() {
    Refuse(413, fmt::format("the body is longer than {} bytes", site_.options.max_body_bytes));
  }

  void Refuse(int status, const std::string& why) {
    site_.Count(site_.bad);
    held_->Become(0);
    const Response response = site_.Refusal(status, Text(parser_->get().target()), why);
    Send(HeadOf(response, false, LengthOf(response)) + response.body, [this] { Over(false); });
  }

  void SendFront() {
    Wait(site_.options.send_timeout);
    asio::async_write(*wire_, asio::buffer(outgoing_.front().bytes),
                      Then([](Http1Connection& self, Error error, size_t) {
                        if (error) return self.Close();
                        const auto taken = std::move(self.outgoing_.front().taken);
                        self.outgoing_.pop_front();
                        self.HoldOutgoing();
                        if (!self.outgoing_.empty()) self.SendFront();
                        for (const auto& one : taken) one();
                      }));
  }

  // While an answer is under way the next requests are read, as far as a header's worth, and so is the
  // client's end behind them. A client that sends more has its one answer, and asks again for the rest (RFC
  // 9112, 9.3.2): what lies unread in a socket hides the end.
  void WatchForEnd() {
    const size_t room =
        site_.options.max_header_bytes - std::min(site_.options.max_header_bytes, buffer_.size());
    watching_ = true;
    wire_->tcp().expires_never();
    const auto next = Then([room](Http1Connection& self, Error error, size_t bytes) {
      self.watching_ = false;
      if (room > 0) self.buffer_.commit(bytes);
      if (room == 0 && bytes > 0) self.keep_alive_ = false;
      if (const auto after = std::exchange(self.after_watch_, nullptr)) return after(self);
      error ? self.Close() : self.WatchForEnd();
    });
    if (room > 0) return wire_->async_read_some(buffer_.prepare(std::min(kWatchBytes, room)), next);
    wire_->async_read_some(asio::buffer(site_.scratch), next);
  }

  // Whatever it is: under TLS it is not looked into any more.
  void Drop() {
    wire_->tcp().async_read_some(
        buffer_.prepare(kReadBytes),
        Then([](Http1Connection& self, Error error, size_t) { error ? self.Close() : self.Drop(); }));
  }

  Site& site_;
  const std::unique_ptr<Wire> wire_;
  beast::flat_buffer buffer_;
  std::optional<bhttp::request_parser<bhttp::string_body>> parser_;
  Request request_;                // but for its body
  size_t body_wire_ = 0;           // bytes that came behind the header
  std::optional<Held> held_;       // what of the request is here
  std::deque<Outgoing> outgoing_;  // at most two
  Held held_out_{site_.budget};
  std::shared_ptr<Turn> turn_;  // null: it waits for a request
  bool keep_alive_ = false;
  bool chunks_ = false;    // HTTP/1.0 knows none
  bool watching_ = false;  // a read for the client's end is under way
  std::function<void(Http1Connection&)> after_watch_;
  bool closed_ = false;
};

}  // namespace

std::shared_ptr<Connection> BeginHttp1(Site& site, std::unique_ptr<Wire> wire, std::string address,
                                       beast::flat_buffer read) {
  const auto connection =
      std::make_shared<Http1Connection>(site, std::move(wire), std::move(address), std::move(read));
  site.loop->Post([connection] { connection->Begin(); });
  return connection;
}

}  // namespace baton::gateway::http
