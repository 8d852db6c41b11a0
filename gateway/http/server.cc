#include "gateway/http/server.h"

#include <fcntl.h>
#include <malloc.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <exception>
#include <list>
#include <thread>
#include <unordered_map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/descriptors.h"
#include "common/base/listening.h"
#include "common/base/status.h"
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
constexpr std::chrono::seconds kTellInterval(1);

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

  // Reads the certificate. Before Serve.
  absl::Status ReadCertificate();
  void Serve(const Listening& listening);
  void Stop(absl::Duration grace);
  ServerCounts counts() const { return site_.counts(); }

 private:
  // A listening socket.
  struct Door {
    Door(asio::io_context& io, Listening::Socket socket)
        : acceptor(io, socket.family == AF_INET6 ? Tcp::v6() : Tcp::v4(), socket.descriptor), retry(io) {}
    Tcp::acceptor acceptor;
    asio::steady_timer retry;
  };

  void Accept(Door& door);
  bool TurnAway(Door& door);
  void WatchCertificate();
  void Open(Tcp::socket socket);
  void Closed(Connection& connection);
  void CloseAll();
  void TrimSoon();
  void TellSoon();

  Site site_;
  std::unordered_map<const Connection*, std::shared_ptr<Connection>> open_;
  std::unordered_map<std::string, size_t> by_address_;
  std::list<Door> doors_;  // one per address that is listened on
  int reserve_ = OpenReserve();
  asio::steady_timer grace_{site_.loop->context()};
  std::unique_ptr<Certificate> certificate_;  // null: no TLS
  asio::steady_timer reload_{site_.loop->context()};
  asio::steady_timer trim_{site_.loop->context()};
  bool trims_ = false;
  asio::steady_timer tell_{site_.loop->context()};
  bool tells_ = false;
  std::thread thread_;
};

absl::Status Server::Impl::ReadCertificate() {
  if (site_.options.tls_cert.empty()) return absl::OkStatus();
  auto certificate = Certificate::Load(site_.options.tls_cert, site_.options.tls_key);
  if (!certificate.ok()) return certificate.status();
  certificate_ = *std::move(certificate);
  WatchCertificate();
  return absl::OkStatus();
}

void Server::Impl::Serve(const Listening& listening) {
  for (const Listening::Socket socket : listening.sockets)
    Accept(doors_.emplace_back(site_.loop->context(), socket));
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

void Server::Impl::Accept(Door& door) {
  door.acceptor.async_accept([this, &door](Error error, Tcp::socket socket) {
    if (site_.leaving) return;
    if (!error) {
      Open(std::move(socket));
      return Accept(door);
    }
    if (TurnAway(door)) return Accept(door);
    // Others may end meanwhile.
    door.retry.expires_after(kAcceptRetry);
    door.retry.async_wait([this, &door](Error) {
      if (!site_.leaving) Accept(door);
    });
  });
}

// No descriptor is left, and a client waits: the reserve serves to close it. False: even that is gone.
bool Server::Impl::TurnAway(Door& door) {
  if (reserve_ < 0) return false;
  close(reserve_);
  const int refused = accept4(door.acceptor.native_handle(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
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
  TellSoon();
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

// The bytes that clients have the process hold change without an event that is counted.
void Server::Impl::TellSoon() {
  if (site_.leaving || std::exchange(tells_, true)) return;
  tell_.expires_after(kTellInterval);
  tell_.async_wait([this](Error error) {
    tells_ = false;
    if (error) return;
    site_.Tell();
    if (!open_.empty() || site_.budget->held() > 0) TellSoon();
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
    for (Door& door : doors_) {
      Error ignored;
      door.acceptor.close(ignored);
      door.retry.cancel();
    }
    reload_.cancel();
    trim_.cancel();
    tell_.cancel();
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
  auto impl =
      std::make_unique<Impl>(options, std::move(handler), std::move(call_handler), std::move(observer));
  BATON_RETURN_IF_ERROR(impl->ReadCertificate());
  const absl::StatusOr<Listening> listening = ListenTcp(options.listen);
  if (!listening.ok()) {
    return absl::Status(listening.status().code(), absl::StrCat("HTTP: ", listening.status().message()));
  }
  impl->Serve(*listening);
  return std::unique_ptr<Server>(new Server(std::move(impl), listening->address));
}

Server::Server(std::unique_ptr<Impl> impl, std::string address)
    : impl_(std::move(impl)), address_(std::move(address)) {}
Server::~Server() = default;

ServerCounts Server::counts() const { return impl_->counts(); }
void Server::Stop(absl::Duration grace) { impl_->Stop(grace); }

}  // namespace baton::gateway::http
