#include "gateway/http/server.h"

#include <fcntl.h>
#include <malloc.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ip/v6_only.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <exception>
#include <limits>
#include <thread>
#include <unordered_map>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/descriptors.h"
#include "gateway/http/opening.h"
#include "gateway/http/site.h"

namespace baton::gateway::http {
namespace {

namespace asio = boost::asio;
using Error = boost::system::error_code;
using Tcp = asio::ip::tcp;

constexpr std::chrono::milliseconds kAcceptRetry(100);
// Longest delay until an ended connection's memory goes back to the system.
constexpr std::chrono::seconds kTrimDelay(2);

// Descriptors for all else: channels to routers, the metrics page, files.
constexpr size_t kOwnDescriptors = 128;
constexpr size_t kFewestConnections = 16;

// A descriptor that is there when all others are taken.
int OpenReserve() { return open("/dev/null", O_RDONLY | O_CLOEXEC); }

}  // namespace

ServerOptions Affordable(ServerOptions options) {
  const size_t most =
      std::max(RaiseDescriptorLimit(), kOwnDescriptors + kFewestConnections) - kOwnDescriptors;
  if (options.max_connections > most) {
    spdlog::warn("at most {} connections, not {}: the hard limit of open files (ulimit -Hn) is too low", most,
                 options.max_connections);
    // Nobody can keep all others out then, either.
    options.max_connections_per_address =
        std::max<size_t>(1, options.max_connections_per_address * most / options.max_connections);
    options.max_connections = most;
  }
  return options;
}

// All of it but Start, Stop, counts() and the destructor runs on `thread_`.
class Server::Impl {
 public:
  Impl(const ServerOptions& options, Handler handler, CallHandler call_handler, CountsObserver observer)
      : site_(Affordable(options), std::move(handler), std::move(call_handler), std::move(observer)) {
    site_.closed = [this](Connection& connection) { Closed(connection); };
    site_.became = [this](Connection& before, std::shared_ptr<Connection> after) {
      site_.waiting.Become(before, *after);
      open_.erase(&before);
      open_.emplace(after.get(), after);
      if (site_.leaving) after->Leave();
    };
  }
  ~Impl() {
    Stop(absl::ZeroDuration());
    if (reserve_ >= 0) close(reserve_);
  }

  // Returns the port.
  absl::StatusOr<uint16_t> Listen(const std::string& host, uint16_t port);
  void Stop(absl::Duration grace);
  ServerCounts counts() const { return site_.counts(); }

 private:
  void Accept();
  bool TurnAway();
  void WatchCertificate();
  void Open(Tcp::socket socket);
  void Closed(Connection& connection);
  void CloseAll();
  void TrimSoon();

  Site site_;
  std::unordered_map<const Connection*, std::shared_ptr<Connection>> open_;
  std::unordered_map<std::string, size_t> by_address_;
  Tcp::acceptor acceptor_{site_.loop->context()};
  int reserve_ = OpenReserve();
  asio::steady_timer retry_{site_.loop->context()};
  asio::steady_timer grace_{site_.loop->context()};
  std::unique_ptr<Certificate> certificate_;  // null: no TLS
  asio::steady_timer reload_{site_.loop->context()};
  asio::steady_timer trim_{site_.loop->context()};
  bool trims_ = false;
  std::thread thread_;
};

absl::StatusOr<uint16_t> Server::Impl::Listen(const std::string& host, uint16_t port) {
  const auto cannot = [&](const Error& error) {
    return absl::UnavailableError(
        absl::StrCat("can't serve HTTP on ", site_.options.listen, ": ", error.message()));
  };
  if (!site_.options.tls_cert.empty()) {
    auto certificate = Certificate::Load(site_.options.tls_cert, site_.options.tls_key);
    if (!certificate.ok()) return certificate.status();
    certificate_ = *std::move(certificate);
    WatchCertificate();
  }
  Error error;
  Tcp::resolver resolver(site_.loop->context());
  const auto found = resolver.resolve(host, std::to_string(port), Tcp::resolver::passive, error);
  if (error) return cannot(error);
  const Tcp::endpoint given = found.begin()->endpoint();
  const bool everywhere = given.address().is_unspecified();
  const auto open = [&](const Tcp::endpoint& endpoint) {
    Error ignored;
    acceptor_.close(ignored);
    acceptor_.open(endpoint.protocol(), error);
    // Connections that a former process left behind do not count as a taken port.
    if (!error) acceptor_.set_option(Tcp::acceptor::reuse_address(true), error);
    if (!error && everywhere && endpoint.protocol() == Tcp::v6())
      acceptor_.set_option(asio::ip::v6_only(false), error);
    if (!error) acceptor_.bind(endpoint, error);
    if (!error) acceptor_.listen(asio::socket_base::max_listen_connections, error);
  };
  // A wildcard means IPv6 and IPv4, and IPv4 alone on a host that has no other.
  open(everywhere ? Tcp::endpoint(Tcp::v6(), port) : given);
  if (everywhere && (error == asio::error::address_family_not_supported || error.value() == EADDRNOTAVAIL)) {
    open(Tcp::endpoint(Tcp::v4(), port));
  }
  if (error) return cannot(error);
  const uint16_t bound = acceptor_.local_endpoint(error).port();
  if (error) return cannot(error);
  Accept();
  thread_ = std::thread([this] {
    // An exception ends the handler that has thrown it. Its client may be left without an answer, and has its
    // time limits; all others are served on.
    while (true) {
      try {
        site_.loop->context().run();
        return;
      } catch (const std::exception& thrown) {
        spdlog::error("a handler has thrown: {}", thrown.what());
      }
    }
  });
  return bound;
}

void Server::Impl::WatchCertificate() {
  reload_.expires_after(absl::ToChronoNanoseconds(site_.options.tls_reload_interval));
  reload_.async_wait([this](Error error) {
    if (error || site_.leaving) return;
    if (const absl::Status status = certificate_->Reload(); !status.ok()) {
      spdlog::warn("the certificate stays as it was: {}", std::string(status.message()));
    }
    WatchCertificate();
  });
}

void Server::Impl::Accept() {
  acceptor_.async_accept([this](Error error, Tcp::socket socket) {
    if (site_.leaving) return;
    if (!error) {
      Open(std::move(socket));
      return Accept();
    }
    if (TurnAway()) return Accept();
    // Others may end meanwhile.
    retry_.expires_after(kAcceptRetry);
    retry_.async_wait([this](Error) {
      if (!site_.leaving) Accept();
    });
  });
}

// No descriptor is left, and a client waits: the reserve serves to close it. False: even that is gone.
bool Server::Impl::TurnAway() {
  if (reserve_ < 0) return false;
  close(reserve_);
  const int refused = accept4(acceptor_.native_handle(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (refused >= 0) {
    close(refused);
    site_.Count(site_.refused);
  }
  reserve_ = OpenReserve();
  return refused >= 0;
}

void Server::Impl::Open(Tcp::socket socket) {
  Error error;
  const auto peer = socket.remote_endpoint(error);
  if (error) return;
  // An IPv4 client of a socket of both families has its own address.
  const auto six = peer.address().is_v6() ? peer.address().to_v6() : asio::ip::address_v6();
  const std::string address = six.is_v4_mapped()
                                  ? asio::ip::make_address_v4(asio::ip::v4_mapped, six).to_string()
                                  : peer.address().to_string();
  // One that has waited for its client gives way. A client that is served is not cut off for a new one.
  const auto counted = by_address_.find(address);
  const bool address_full =
      counted != by_address_.end() && counted->second >= site_.options.max_connections_per_address;
  if (address_full || open_.size() >= site_.options.max_connections) {
    Connection* const first = address_full ? site_.waiting.FirstOf(address) : site_.waiting.First();
    site_.Count(site_.refused);
    if (first == nullptr) return;
    first->Close();
  }
  ++by_address_[address];
  socket.set_option(Tcp::no_delay(true), error);
  const auto opening = MakeOpening(site_, std::move(socket),
                                   certificate_ == nullptr ? nullptr : certificate_->context(), address);
  open_.emplace(opening.get(), opening);
  site_.waiting.Enter(*opening);
  site_.Count(site_.open);
  opening->Begin();
}

void Server::Impl::Closed(Connection& connection) {
  site_.waiting.Leave(connection);
  if (const auto found = by_address_.find(connection.address());
      found != by_address_.end() && --found->second == 0) {
    by_address_.erase(found);
    site_.Forget(connection.address());
  }
  open_.erase(&connection);
  site_.open = open_.size();
  site_.Tell();
  if (site_.leaving) {
    if (open_.empty()) grace_.cancel();
  } else {
    TrimSoon();
  }
}

void Server::Impl::TrimSoon() {
  if (std::exchange(trims_, true)) return;
  trim_.expires_after(kTrimDelay);
  trim_.async_wait([this](Error error) {
    trims_ = false;
    if (!error) malloc_trim(0);
  });
}

void Server::Impl::CloseAll() {
  while (!open_.empty()) {
    const std::shared_ptr<Connection> one = open_.begin()->second;
    one->Close();
  }
}

void Server::Impl::Stop(absl::Duration grace) {
  if (!thread_.joinable()) return;
  site_.loop->Post([this, grace] {
    site_.leaving = true;
    Error ignored;
    acceptor_.close(ignored);
    retry_.cancel();
    reload_.cancel();
    trim_.cancel();
    const auto connections = open_;
    for (const auto& [unused, one] : connections) one->Leave();
    if (open_.empty()) return;
    grace_.expires_after(absl::ToChronoNanoseconds(grace));
    grace_.async_wait([this](Error) { CloseAll(); });
  });
  // Nothing is left to do once the handlers have run.
  thread_.join();
  site_.loop->Stop();
}

absl::StatusOr<std::unique_ptr<Server>> Server::Start(const ServerOptions& options, Handler handler,
                                                      CallHandler call_handler, CountsObserver observer) {
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
  auto impl =
      std::make_unique<Impl>(options, std::move(handler), std::move(call_handler), std::move(observer));
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
