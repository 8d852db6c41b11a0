#include "common/telemetry/page_server.h"

#include <sys/socket.h>

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/http/write.hpp>
#include <chrono>
#include <iterator>
#include <list>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/listening.h"
#include "common/telemetry/gzip.h"

namespace baton::telemetry {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using Error = boost::system::error_code;
using Tcp = asio::ip::tcp;

constexpr std::chrono::milliseconds kAcceptRetry(100);

std::string_view View(beast::string_view text) { return {text.data(), text.size()}; }

}  // namespace

// All of it but Start, connections() and the destructor runs on `thread_`.
class PageServer::Impl {
 public:
  Impl(const PageServerOptions& options, std::function<std::string()> page)
      : options_(options), page_(std::move(page)) {}
  ~Impl();

  void Serve(const Listening& listening);
  size_t connections() const { return open_count_; }

 private:
  class Connection;
  using Connections = std::list<std::shared_ptr<Connection>>;
  // A listening socket.
  struct Door {
    Door(asio::io_context& io, Listening::Socket socket)
        : acceptor(io, socket.family == AF_INET6 ? Tcp::v6() : Tcp::v4(), socket.descriptor), retry(io) {}
    Tcp::acceptor acceptor;
    asio::steady_timer retry;
  };

  void Accept(Door& door);
  void Open(Tcp::socket socket);
  // The connection now waits for its client, later than all others began to.
  void Waits(Connections::iterator connection) { open_.splice(open_.end(), open_, connection); }
  void Close(Connections::iterator connection);

  const PageServerOptions options_;
  const std::function<std::string()> page_;
  // Members that handlers use outlive them: handlers are destroyed with `io_`.
  Connections open_;  // the first has waited longest
  std::atomic<size_t> open_count_ = 0;
  bool closing_ = false;
  asio::io_context io_{1};
  std::list<Door> doors_;  // one per address that is listened on
  std::thread thread_;
};

// One client: read a request, answer, again. Handlers keep it alive; once closed, it starts nothing any more.
class PageServer::Impl::Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(Impl& server, Tcp::socket socket)
      : server_(server), stream_(std::move(socket)), buffer_(server.options_.max_header_bytes) {}

  // `self`: where it stands in the server's list.
  void Start(Connections::iterator self) {
    self_ = self;
    AwaitRequest(server_.options_.request_timeout);
  }

  // No handler does anything after this; the peer reads the end of the stream.
  void Shut() {
    self_.reset();
    stream_.close();
  }

 private:
  // Calls a member with its arguments unless the connection was closed meanwhile.
  template <typename... Args>
  auto Then(void (Connection::*next)(Args...)) {
    return [self = shared_from_this(), next](Args... args) {
      if (self->self_.has_value()) ((*self).*next)(args...);
    };
  }

  // Whatever is waited for next may take this long.
  void Wait(absl::Duration limit) {
    server_.Waits(*self_);
    stream_.expires_after(absl::ToChronoNanoseconds(limit));
  }
  void Close() { server_.Close(*self_); }

  void AwaitRequest(absl::Duration limit) {
    parser_.emplace();
    parser_->header_limit(static_cast<uint32_t>(server_.options_.max_header_bytes));
    if (buffer_.size() > 0) return ReadRequest();  // the next of several that came together
    Wait(limit);
    stream_.async_read_some(buffer_.prepare(server_.options_.max_header_bytes),
                            Then(&Connection::OnFirstBytes));
  }

  void OnFirstBytes(Error error, size_t bytes) {
    if (error) return Close();
    buffer_.commit(bytes);
    ReadRequest();
  }

  void ReadRequest() {
    Wait(server_.options_.request_timeout);
    http::async_read_header(stream_, buffer_, *parser_, Then(&Connection::OnRequest));
  }

  void OnRequest(Error error, size_t) {
    if (error == http::error::header_limit || error == http::error::buffer_overflow) {
      return Refuse(http::status::request_header_fields_too_large, "the header is too long\n");
    }
    if (error.category() == make_error_code(http::error::bad_method).category() &&
        error != http::error::end_of_stream && error != http::error::partial_message) {
      return Refuse(http::status::bad_request, "this is no HTTP/1.1\n");
    }
    if (error) return Close();
    const auto& request = parser_->get();
    if (!parser_->is_done()) return Refuse(http::status::payload_too_large, "no body is taken here\n");
    const bool head = request.method() == http::verb::head;
    if (!head && request.method() != http::verb::get) {
      response_ = {};
      response_.set(http::field::allow, "GET, HEAD");
      return Answer(http::status::method_not_allowed, "use GET or HEAD\n", false);
    }
    response_ = {};
    const std::string_view target = View(request.target());
    if (target.substr(0, target.find('?')) != server_.options_.path) {
      return Answer(http::status::not_found, absl::StrCat("see ", server_.options_.path, "\n"),
                    request.keep_alive(), head);
    }
    std::string page = server_.page_();
    response_.set(http::field::content_type, server_.options_.content_type);
    if (AcceptsGzip(View(request[http::field::accept_encoding]))) {
      if (std::string packed = Gzip(page); !packed.empty()) {
        page = std::move(packed);
        response_.set(http::field::content_encoding, "gzip");
      }
    }
    Answer(http::status::ok, std::move(page), request.keep_alive(), head);
  }

  void Refuse(http::status status, std::string reason) {
    response_ = {};
    Answer(status, std::move(reason), false);
  }

  void Answer(http::status status, std::string body, bool keep_alive, bool head = false) {
    response_.result(status);
    response_.version(parser_->get().version() == 10 ? 10 : 11);
    if (response_.find(http::field::content_type) == response_.end()) {
      response_.set(http::field::content_type, "text/plain; charset=utf-8");
    }
    response_.keep_alive(keep_alive);
    response_.content_length(body.size());
    if (!head) response_.body() = std::move(body);
    Wait(server_.options_.send_timeout);
    http::async_write(stream_, response_, Then(&Connection::OnAnswered));
  }

  void OnAnswered(Error error, size_t) {
    if (error) return Close();
    if (response_.keep_alive()) return AwaitRequest(server_.options_.idle_timeout);
    // To close a socket with unread bytes in it resets the connection, and the client may lose the answer:
    // what it still sends is dropped until it has read the answer's end.
    Error ignored;
    stream_.socket().shutdown(Tcp::socket::shutdown_send, ignored);
    buffer_.clear();
    Wait(server_.options_.request_timeout);
    Drop();
  }

  void Drop() {
    stream_.async_read_some(buffer_.prepare(server_.options_.max_header_bytes), Then(&Connection::OnDropped));
  }

  void OnDropped(Error error, size_t) { error ? Close() : Drop(); }

  Impl& server_;
  beast::tcp_stream stream_;
  beast::flat_buffer buffer_;
  std::optional<http::request_parser<http::empty_body>> parser_;
  http::response<http::string_body> response_;
  std::optional<Connections::iterator> self_;  // none once closed
};

void PageServer::Impl::Serve(const Listening& listening) {
  for (const Listening::Socket socket : listening.sockets) Accept(doors_.emplace_back(io_, socket));
  thread_ = std::thread([this] { io_.run(); });
}

void PageServer::Impl::Accept(Door& door) {
  door.acceptor.async_accept([this, &door](Error error, Tcp::socket socket) {
    if (closing_) return;
    if (!error) {
      Open(std::move(socket));
      return Accept(door);
    }
    // Most likely no descriptor is left: one of ours may help, and others may end meanwhile.
    if (!open_.empty()) Close(open_.begin());
    door.retry.expires_after(kAcceptRetry);
    door.retry.async_wait([this, &door](Error) {
      if (!closing_) Accept(door);
    });
  });
}

void PageServer::Impl::Open(Tcp::socket socket) {
  if (open_.size() >= options_.max_connections) Close(open_.begin());
  open_.push_back(std::make_shared<Connection>(*this, std::move(socket)));
  open_count_ = open_.size();
  open_.back()->Start(std::prev(open_.end()));
}

void PageServer::Impl::Close(Connections::iterator connection) {
  const std::shared_ptr<Connection> closed = std::move(*connection);
  open_.erase(connection);
  open_count_ = open_.size();
  closed->Shut();
}

PageServer::Impl::~Impl() {
  if (!thread_.joinable()) return;
  asio::post(io_, [this] {
    closing_ = true;
    for (Door& door : doors_) {
      Error ignored;
      door.acceptor.close(ignored);
      door.retry.cancel();
    }
    while (!open_.empty()) Close(open_.begin());
  });
  // Nothing is left to do once the handlers have run.
  thread_.join();
}

absl::StatusOr<std::unique_ptr<PageServer>> PageServer::Start(const PageServerOptions& options,
                                                              std::function<std::string()> page) {
  const absl::StatusOr<Listening> listening = ListenTcp(options.listen);
  if (!listening.ok()) {
    return absl::Status(listening.status().code(), absl::StrCat("metrics: ", listening.status().message()));
  }
  auto impl = std::make_unique<Impl>(options, std::move(page));
  impl->Serve(*listening);
  return std::unique_ptr<PageServer>(new PageServer(std::move(impl), listening->address));
}

PageServer::PageServer(std::unique_ptr<Impl> impl, std::string address)
    : impl_(std::move(impl)), address_(std::move(address)) {}

PageServer::~PageServer() = default;

size_t PageServer::connections() const { return impl_->connections(); }

}  // namespace baton::telemetry
