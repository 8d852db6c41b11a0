#include "gateway/http/server.h"

#include <fmt/format.h>

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <chrono>
#include <deque>
#include <limits>
#include <optional>
#include <thread>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"

namespace baton::gateway::http {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace bhttp = boost::beast::http;
using Error = boost::system::error_code;
using Tcp = asio::ip::tcp;

constexpr std::chrono::milliseconds kAcceptRetry(100);
constexpr size_t kReadBytes = 16 << 10;

std::string Text(beast::string_view text) { return {text.data(), text.size()}; }

bool IsParseError(const Error& error) {
  return error.category() == make_error_code(bhttp::error::bad_method).category() &&
         error != bhttp::error::end_of_stream && error != bhttp::error::partial_message;
}

Response Refusal(int status, const std::string& why) {
  return {.status = status,
          .body = absl::StrCat(R"({"error": {"message": ")", why,
                               R"(", "type": "invalid_request_error", "param": null, "code": null}})", "\n")};
}

std::string LengthOf(const Response& response) {
  return fmt::format("Content-Length: {}\r\n", response.body.size());
}

// `framing`: lines that say where the body ends; none: where the connection does.
std::string HeadOf(const Response& response, bool keep_alive, const std::string& framing) {
  std::string head =
      fmt::format("HTTP/1.1 {} {}\r\n", response.status,
                  Text(bhttp::obsolete_reason(bhttp::int_to_status(static_cast<unsigned>(response.status)))));
  head += fmt::format("Content-Type: {}\r\n{}", response.content_type, framing);
  for (const auto& [name, value] : response.headers) head += fmt::format("{}: {}\r\n", name, value);
  head += keep_alive ? "" : "Connection: close\r\n";
  return head + "\r\n";
}

// The server's loop, as exchanges see it, which may outlive the server: what they post then is dropped.
struct Loop {
  asio::io_context context{1};
  absl::Mutex mutex;
  bool stopped ABSL_GUARDED_BY(mutex) = false;

  void Post(std::function<void()> what) {
    absl::MutexLock lock(&mutex);
    if (!stopped) asio::post(context, std::move(what));
  }
};

}  // namespace

std::string_view Request::Header(std::string_view name) const {
  for (const auto& [other, value] : headers) {
    if (other == name) return value;
  }
  return {};
}

// All of it but Start, Stop, counts() and the destructor runs on `thread_`.
class Server::Impl {
 public:
  Impl(const ServerOptions& options, Handler handler) : options_(options), handler_(std::move(handler)) {}
  ~Impl() { Stop(absl::ZeroDuration()); }

  // Returns the port.
  absl::StatusOr<uint16_t> Listen(const std::string& host, uint16_t port);
  void Stop(absl::Duration grace);
  ServerCounts counts() const {
    return {.connections = open_count_, .refused_connections = refused_, .bad_requests = bad_};
  }

 private:
  class Connection;
  class Turn;

  void Accept();
  void Open(Tcp::socket socket);
  void Closed(const std::shared_ptr<Connection>& connection);
  void CloseAll();

  const ServerOptions options_;
  const Handler handler_;
  const std::shared_ptr<Loop> loop_ = std::make_shared<Loop>();
  std::unordered_set<std::shared_ptr<Connection>> open_;
  std::unordered_map<std::string, size_t> by_address_;
  std::atomic<size_t> open_count_ = 0, refused_ = 0, bad_ = 0;
  bool closing_ = false;
  Tcp::acceptor acceptor_{loop_->context};
  asio::steady_timer retry_{loop_->context};
  asio::steady_timer grace_{loop_->context};
  std::thread thread_;
};

// One client: a request, its answer, again. Handlers keep it alive; once closed, it starts nothing any more.
class Server::Impl::Connection : public std::enable_shared_from_this<Connection> {
 private:
  // Calls `next` unless the connection was closed meanwhile.
  template <typename Next>
  auto Then(Next next) {
    return [self = shared_from_this(), next](Error error, size_t bytes = 0) {
      if (!self->closed_) next(*self, error, bytes);
    };
  }

 public:
  Connection(Impl& server, Tcp::socket socket, std::string address)
      : server_(server), stream_(std::move(socket)), address_(std::move(address)) {}

  const std::string& address() const { return address_; }
  bool idle() const { return turn_ == nullptr; }

  void AwaitRequest(absl::Duration limit) {
    turn_.reset();
    if (server_.closing_) return Close();
    parser_.emplace();
    parser_->header_limit(static_cast<uint32_t>(server_.options_.max_header_bytes));
    parser_->body_limit(server_.options_.max_body_bytes);
    if (buffer_.size() > 0) return ReadHeader();  // the next of several that came together
    Wait(limit);
    stream_.async_read_some(buffer_.prepare(kReadBytes),
                            Then([](Connection& self, Error error, size_t bytes) {
                              if (error) return self.Close();
                              self.buffer_.commit(bytes);
                              self.ReadHeader();
                            }));
  }

  // Bytes on their way; `taken` runs when they have left.
  void Send(std::string bytes, std::function<void()> taken) {
    outgoing_.push_back({std::move(bytes), std::move(taken)});
    if (outgoing_.size() == 1) SendFront();
  }

  // The answer is over: the next request, or the connection's end.
  void Over(bool keep_alive) {
    Error ignored;
    stream_.socket().cancel(ignored);  // the wait for the client's end
    if (keep_alive) return AwaitRequest(server_.options_.idle_timeout);
    // To close a socket with unread bytes in it resets the connection, and the client may lose the answer:
    // what it still sends is dropped until it has read the answer's end.
    stream_.socket().shutdown(Tcp::socket::shutdown_send, ignored);
    buffer_.clear();
    Wait(server_.options_.header_timeout);
    Drop();
  }

  void Close();

 private:
  struct Outgoing {
    std::string bytes;
    std::function<void()> taken;
  };

  void Wait(absl::Duration limit) { stream_.expires_after(absl::ToChronoNanoseconds(limit)); }

  void ReadHeader() {
    Wait(server_.options_.header_timeout);
    bhttp::async_read_header(stream_, buffer_, *parser_,
                             Then([](Connection& self, Error error, size_t) { self.OnHeader(error); }));
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
         request.count(bhttp::field::transfer_encoding) > 0)) {
      return Refuse(400, "the length of the body is given twice");
    }
    if (request.count(bhttp::field::transfer_encoding) > 0 &&
        !beast::iequals(request[bhttp::field::transfer_encoding], "chunked")) {
      return Refuse(400, "the only transfer coding that is taken is chunked");
    }
    if (request.version() >= 11 && request.count(bhttp::field::host) != 1)
      return Refuse(400, "there must be one Host");
    if (const auto length = parser_->content_length(); length && *length > server_.options_.max_body_bytes)
      return TooLarge();
    if (beast::iequals(request[bhttp::field::expect], "100-continue"))
      Send("HTTP/1.1 100 Continue\r\n\r\n", nullptr);
    Wait(server_.options_.body_timeout);
    bhttp::async_read(stream_, buffer_, *parser_,
                      Then([](Connection& self, Error failed, size_t) { self.OnRequest(failed); }));
  }

  void OnRequest(Error error);

  void TooLarge() {
    Refuse(413, fmt::format("the body is longer than {} bytes", server_.options_.max_body_bytes));
  }

  void Refuse(int status, const std::string& why) {
    ++server_.bad_;
    const Response response = Refusal(status, why);
    Send(HeadOf(response, false, LengthOf(response)) + response.body, [this] { Over(false); });
  }

  void SendFront() {
    Wait(server_.options_.send_timeout);
    asio::async_write(stream_, asio::buffer(outgoing_.front().bytes),
                      Then([](Connection& self, Error error, size_t) {
                        if (error) return self.Close();
                        const auto taken = std::move(self.outgoing_.front().taken);
                        self.outgoing_.pop_front();
                        if (!self.outgoing_.empty()) self.SendFront();
                        if (taken) taken();
                      }));
  }

  // While an answer is under way nothing is read; only that the client has gone is seen.
  void WatchForEnd() {
    stream_.socket().async_wait(Tcp::socket::wait_read, Then([](Connection& self, Error error, size_t) {
                                  if (error || self.turn_ == nullptr) return;
                                  Error failed;
                                  const size_t there = self.stream_.socket().available(failed);
                                  if (failed || there == 0) self.Close();
                                }));
  }

  void Drop() {
    stream_.async_read_some(buffer_.prepare(kReadBytes), Then([](Connection& self, Error error, size_t) {
                              error ? self.Close() : self.Drop();
                            }));
  }

  Impl& server_;
  beast::tcp_stream stream_;
  const std::string address_;
  beast::flat_buffer buffer_;
  std::optional<bhttp::request_parser<bhttp::string_body>> parser_;
  std::deque<Outgoing> outgoing_;
  std::shared_ptr<Turn> turn_;  // null: it waits for a request
  bool closed_ = false;
};

// The exchange: what handlers hold. It reaches the connection as long as that is open.
class Server::Impl::Turn final : public Exchange, public std::enable_shared_from_this<Turn> {
 public:
  Turn(std::shared_ptr<Loop> loop, std::weak_ptr<Connection> connection, Request request, bool keep_alive,
       bool chunks)
      : loop_(std::move(loop)),
        connection_(std::move(connection)),
        request_(std::move(request)),
        keep_alive_(keep_alive),
        chunks_(chunks) {}

  const Request& request() const override { return request_; }

  void Answer(Response response) override {
    Run([this, response = std::move(response)](Connection& connection) {
      if (std::exchange(begun_, true)) return;
      ended_ = true;
      connection.Send(HeadOf(response, keep_alive_, LengthOf(response)) +
                          (request_.method == "HEAD" ? "" : response.body),
                      [self = shared_from_this()] { self->Over(); });
    });
  }

  void Begin(Response response) override {
    Run([this, response = std::move(response)](Connection& connection) {
      if (std::exchange(begun_, true)) return;
      keep_alive_ = keep_alive_ && chunks_;
      connection.Send(HeadOf(response, keep_alive_, chunks_ ? "Transfer-Encoding: chunked\r\n" : "") +
                          Framed(response.body),
                      nullptr);
    });
  }

  void Write(std::string piece, std::function<void()> taken) override {
    Run([this, piece = std::move(piece), taken = std::move(taken)](Connection& connection) {
      if (ended_) return;
      connection.Send(Framed(piece), taken);
    });
  }

  void End() override {
    Run([this](Connection& connection) {
      if (std::exchange(ended_, true)) return;
      connection.Send(chunks_ ? "0\r\n\r\n" : "", [self = shared_from_this()] { self->Over(); });
    });
  }

  void Abort() override {
    Run([this](Connection& connection) {
      Settle();
      connection.Close();
    });
  }

  void OnGone(std::function<void()> gone) override {
    loop_->Post([self = shared_from_this(), gone = std::move(gone)] {
      if (self->is_gone_) {
        gone();
      } else if (!self->over_) {
        self->gone_ = gone;
      }
    });
  }

  void Post(std::function<void()> what) override { loop_->Post(std::move(what)); }

  void After(int milliseconds, std::function<void()> what) override {
    loop_->Post([self = shared_from_this(), milliseconds, what = std::move(what)] {
      if (self->over_) return;
      self->timer_.expires_after(std::chrono::milliseconds(milliseconds));
      self->timer_.async_wait([self, what](Error error) {
        if (!error && !self->over_) what();
      });
    });
  }

  // From the connection: it is closed.
  void Gone() {
    if (over_) return;
    over_ = is_gone_ = true;
    timer_.cancel();
    if (const auto gone = std::exchange(gone_, nullptr)) gone();
  }

  // The handler let go of it: nobody answers any more.
  void Abandoned() {
    loop_->Post([self = shared_from_this()] {
      if (self->over_ || self->ended_) return;
      self->Settle();
      if (const auto connection = self->connection_.lock()) connection->Close();
    });
  }

 private:
  template <typename Do>
  void Run(Do what) {
    loop_->Post([self = shared_from_this(), what = std::move(what)] {
      const auto connection = self->connection_.lock();
      if (connection != nullptr && !self->over_) what(*connection);
    });
  }

  std::string Framed(const std::string& piece) const {
    if (piece.empty() || !chunks_) return piece;
    return fmt::format("{:x}\r\n{}\r\n", piece.size(), piece);
  }

  void Settle() {
    over_ = true;
    gone_ = nullptr;
    timer_.cancel();
  }

  void Over() {
    Settle();
    if (const auto connection = connection_.lock()) connection->Over(keep_alive_);
  }

  const std::shared_ptr<Loop> loop_;
  const std::weak_ptr<Connection> connection_;
  const Request request_;
  bool keep_alive_;
  const bool chunks_;  // HTTP/1.0 knows none
  std::function<void()> gone_;
  asio::steady_timer timer_{loop_->context};
  bool begun_ = false, ended_ = false, over_ = false, is_gone_ = false;
};

void Server::Impl::Connection::Close() {
  if (std::exchange(closed_, true)) return;
  const auto self = shared_from_this();
  stream_.close();
  if (turn_ != nullptr) std::exchange(turn_, nullptr)->Gone();
  server_.Closed(self);
}

void Server::Impl::Connection::OnRequest(Error error) {
  if (error == bhttp::error::body_limit) return TooLarge();
  if (IsParseError(error)) return Refuse(400, "this is no HTTP/1.1");
  if (error) return Close();
  auto message = parser_->release();
  Request request{
      .method = Text(message.method_string()), .address = address_, .body = std::move(message.body())};
  const std::string target = Text(message.target());
  request.path = target.substr(0, target.find('?'));
  for (const auto& field : message) {
    request.headers.emplace_back(absl::AsciiStrToLower(Text(field.name_string())), Text(field.value()));
  }
  turn_ = std::make_shared<Turn>(server_.loop_, weak_from_this(), std::move(request), message.keep_alive(),
                                 message.version() >= 11);
  WatchForEnd();
  server_.handler_(std::shared_ptr<Exchange>(turn_.get(), [turn = turn_](Exchange*) { turn->Abandoned(); }));
}

absl::StatusOr<uint16_t> Server::Impl::Listen(const std::string& host, uint16_t port) {
  const auto cannot = [&](const Error& error) {
    return absl::UnavailableError(
        absl::StrCat("can't serve HTTP on ", options_.listen, ": ", error.message()));
  };
  Error error;
  Tcp::resolver resolver(loop_->context);
  const auto found = resolver.resolve(host, std::to_string(port), Tcp::resolver::passive, error);
  if (error) return cannot(error);
  const Tcp::endpoint endpoint = found.begin()->endpoint();
  acceptor_.open(endpoint.protocol(), error);
  // Connections that a former process left behind do not count as a taken port.
  if (!error) acceptor_.set_option(Tcp::acceptor::reuse_address(true), error);
  if (!error) acceptor_.bind(endpoint, error);
  if (!error) acceptor_.listen(asio::socket_base::max_listen_connections, error);
  if (error) return cannot(error);
  const uint16_t bound = acceptor_.local_endpoint(error).port();
  if (error) return cannot(error);
  Accept();
  thread_ = std::thread([this] { loop_->context.run(); });
  return bound;
}

void Server::Impl::Accept() {
  acceptor_.async_accept([this](Error error, Tcp::socket socket) {
    if (closing_) return;
    if (!error) {
      Open(std::move(socket));
      return Accept();
    }
    // Most likely no descriptor is left: others may end meanwhile.
    retry_.expires_after(kAcceptRetry);
    retry_.async_wait([this](Error) {
      if (!closing_) Accept();
    });
  });
}

void Server::Impl::Open(Tcp::socket socket) {
  Error error;
  const auto peer = socket.remote_endpoint(error);
  if (error) return;
  const std::string address = peer.address().to_string();
  size_t& of_address = by_address_[address];
  if (open_.size() >= options_.max_connections || of_address >= options_.max_connections_per_address) {
    ++refused_;
    if (of_address == 0) by_address_.erase(address);
    return;
  }
  ++of_address;
  socket.set_option(Tcp::no_delay(true), error);
  const auto connection = std::make_shared<Connection>(*this, std::move(socket), address);
  open_.insert(connection);
  open_count_ = open_.size();
  connection->AwaitRequest(options_.header_timeout);
}

void Server::Impl::Closed(const std::shared_ptr<Connection>& connection) {
  open_.erase(connection);
  open_count_ = open_.size();
  if (const auto found = by_address_.find(connection->address());
      found != by_address_.end() && --found->second == 0) {
    by_address_.erase(found);
  }
  if (closing_ && open_.empty()) grace_.cancel();
}

void Server::Impl::CloseAll() {
  while (!open_.empty()) {
    const std::shared_ptr<Connection> one = *open_.begin();
    one->Close();
  }
}

void Server::Impl::Stop(absl::Duration grace) {
  if (!thread_.joinable()) return;
  loop_->Post([this, grace] {
    closing_ = true;
    Error ignored;
    acceptor_.close(ignored);
    retry_.cancel();
    const auto connections = open_;
    for (const std::shared_ptr<Connection>& one : connections) {
      if (one->idle()) one->Close();
    }
    if (open_.empty()) return;
    grace_.expires_after(absl::ToChronoNanoseconds(grace));
    grace_.async_wait([this](Error) { CloseAll(); });
  });
  // Nothing is left to do once the handlers have run.
  thread_.join();
  {
    absl::MutexLock lock(&loop_->mutex);
    loop_->stopped = true;
  }
  loop_->context.restart();
  loop_->context.poll();  // what came meanwhile
}

absl::StatusOr<std::unique_ptr<Server>> Server::Start(const ServerOptions& options, Handler handler) {
  const size_t colon = options.listen.rfind(':');
  uint32_t port = 0;
  if (colon == std::string::npos || !absl::SimpleAtoi(options.listen.substr(colon + 1), &port) ||
      port > std::numeric_limits<uint16_t>::max()) {
    return absl::InvalidArgumentError(
        absl::StrCat("HTTP address \"", options.listen, "\": use host:port, with a port from 0 to 65535"));
  }
  const std::string shown = options.listen.substr(0, colon);
  std::string host = shown;
  if (host.size() >= 2 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  auto impl = std::make_unique<Impl>(options, std::move(handler));
  const absl::StatusOr<uint16_t> bound = impl->Listen(host, static_cast<uint16_t>(port));
  if (!bound.ok()) return bound.status();
  return std::unique_ptr<Server>(new Server(std::move(impl), absl::StrCat(shown, ":", *bound)));
}

Server::Server(std::unique_ptr<Impl> impl, std::string address)
    : impl_(std::move(impl)), address_(std::move(address)) {}
Server::~Server() = default;

ServerCounts Server::counts() const { return impl_->counts(); }
void Server::Stop(absl::Duration grace) { impl_->Stop(grace); }

}  // namespace baton::gateway::http
