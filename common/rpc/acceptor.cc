#include "common/rpc/acceptor.h"

#include <fcntl.h>
#include <malloc.h>
#include <netdb.h>
#include <poll.h>
#include <spdlog/spdlog.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/check.h"
#include "common/base/descriptors.h"
#include "common/base/status.h"
#include "common/rpc/guarded_socket.h"

namespace baton::rpc {
namespace {

// Descriptors for all else: files, channels to peers, the metrics page.
constexpr int kOwnDescriptors = 128;
constexpr int kFewestConnections = 16;
// After so many ends of connections, or one that was cut, what they held goes back to the system.
constexpr int kEndsBeforeTrim = 64;
// From then on, for gRPC frees a connection's memory a moment after its descriptor.
constexpr int kTrimDelayMs = 200;
// How long to wait for a descriptor when even the reserve is gone.
constexpr int kShortageMs = 20;

int DescriptorLimit() {
  return static_cast<int>(std::min<size_t>(RaiseDescriptorLimit(), kMaxGuardedDescriptor));
}

ConnectionLimits Affordable(ConnectionLimits limits) {
  const int affordable = std::max(kFewestConnections, DescriptorLimit() - kOwnDescriptors);
  if (limits.total > affordable) {
    spdlog::warn("at most {} connections, not {}: the hard limit of open files (ulimit -Hn) is too low",
                 affordable, limits.total);
    limits.total = affordable;
  }
  return limits;
}

// At most one line a second: strangers must not fill the disk.
void Warn(const std::string& who, const char* why) {
  static std::atomic<int64_t> next{0};
  static std::atomic<int64_t> unsaid{0};
  const int64_t now = absl::ToUnixMillis(absl::Now());
  int64_t due = next.load();
  if (now < due || !next.compare_exchange_strong(due, now + 1000)) {
    unsaid.fetch_add(1);
    return;
  }
  const int64_t more = unsaid.exchange(0);
  spdlog::warn("closed the connection of {}: {}{}", who, why,
               more > 0 ? absl::StrCat("; and ", more, " more since the last such line") : "");
}

std::string NameOf(const sockaddr_storage& peer) {
  char host[NI_MAXHOST], port[NI_MAXSERV];
  if (peer.ss_family == AF_UNIX ||
      getnameinfo(reinterpret_cast<const sockaddr*>(&peer), sizeof(peer), host, sizeof(host), port,
                  sizeof(port), NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return "a local client";
  }
  return absl::StrCat(host, ":", port);
}

std::atomic<bool> cut_over_tls{false};

}  // namespace

// News of ended connections for the accepting thread.
struct Acceptor::Housekeeping {
  ~Housekeeping() { close(wake); }
  void Wake() const {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = write(wake, &one, sizeof(one));
  }
  void Ended() {
    if (ended.fetch_add(1) + 1 < kEndsBeforeTrim && !cut && !cut_over_tls) return;
    if (!trim.exchange(true)) Wake();
  }

  const int wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  std::atomic<bool> stop{false};
  std::atomic<bool> cut{false};
  std::atomic<bool> trim{false};
  std::atomic<int> ended{0};
};

absl::StatusOr<std::unique_ptr<Acceptor>> Acceptor::Create(const Options& options) {
  BATON_ASSIGN_OR_RETURN(Listening listening, Listen(options.address, options.user_timeout));
  return std::unique_ptr<Acceptor>(new Acceptor(options, std::move(listening)));
}

Acceptor::Acceptor(const Options& options, Listening listening)
    : tls_(options.tls),
      listening_(std::move(listening)),
      ledger_(std::make_shared<ConnectionLedger>(Affordable(options.limits))),
      housekeeping_(std::make_shared<Housekeeping>()),
      reserve_(open("/dev/null", O_RDONLY | O_CLOEXEC)) {
  BATON_CHECK(housekeeping_->wake >= 0) << "no descriptor for an eventfd";
  if (tls_) {
    OnTlsCut([](const char* why) {
      cut_over_tls = true;
      Warn("a client over TLS", why);
    });
  }
}

Acceptor::~Acceptor() {
  Stop();
  if (reserve_ >= 0) close(reserve_);
}

void Acceptor::Start(std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> server) {
  server_ = std::move(server);
  thread_ = std::thread([this] { Run(); });
}

void Acceptor::Pause() {
  housekeeping_->stop = true;
  housekeeping_->Wake();
  if (thread_.joinable()) thread_.join();
  housekeeping_->stop = false;
}

void Acceptor::Stop() {
  if (std::exchange(stopped_, true)) return;
  Pause();
  for (const auto& socket : listening_.sockets) close(socket.descriptor);
}

void Acceptor::Run() {
  std::vector<pollfd> polled = {{housekeeping_->wake, POLLIN, 0}};
  for (const auto& socket : listening_.sockets) polled.push_back({socket.descriptor, POLLIN, 0});
  bool shortage = false;
  absl::Time trim_due = absl::InfiniteFuture();
  while (true) {
    if (shortage) poll(polled.data(), 1, kShortageMs);
    const bool trimming = trim_due != absl::InfiniteFuture();
    poll(polled.data(), polled.size(), trimming ? kTrimDelayMs : -1);
    if (housekeeping_->stop) return;
    if (polled[0].revents != 0) {
      uint64_t drop;
      [[maybe_unused]] const ssize_t got = read(housekeeping_->wake, &drop, sizeof(drop));
    }
    if (trimming && absl::Now() >= trim_due) {
      malloc_trim(0);
      trim_due = absl::InfiniteFuture();
    }
    if (housekeeping_->trim.exchange(false)) {
      housekeeping_->ended = 0;
      housekeeping_->cut = false;
      cut_over_tls = false;
      trim_due = std::min(trim_due, absl::Now() + absl::Milliseconds(kTrimDelayMs));
    }
    shortage = false;
    for (size_t i = 1; i < polled.size(); ++i) {
      if (polled[i].revents != 0) shortage |= !AcceptAll(polled[i].fd);
    }
  }
}

bool Acceptor::AcceptAll(int listening) {
  while (!housekeeping_->stop) {
    const int connection = accept4(listening, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (connection >= 0) {
      Admit(listening, connection);
      continue;
    }
    if (errno == EAGAIN || errno == EWOULDBLOCK) return true;
    if (errno != EMFILE && errno != ENFILE && errno != ENOBUFS && errno != ENOMEM) continue;
    // No descriptor is left. Accept4 says so even if no client waits, and the reserve is not to be spent on
    // that: another thread could take its descriptor.
    pollfd waiting = {listening, POLLIN, 0};
    if (poll(&waiting, 1, 0) == 0) return true;
    // The reserve serves to accept the client and close it, so that it does not wait.
    if (reserve_ < 0) {
      reserve_ = open("/dev/null", O_RDONLY | O_CLOEXEC);
      if (reserve_ < 0) return false;
      continue;
    }
    close(reserve_);
    const int refused = accept4(listening, nullptr, nullptr, SOCK_CLOEXEC);
    if (refused >= 0) {
      close(refused);
      Warn("a client", "the process has no descriptor left (ulimit -Hn)");
    }
    reserve_ = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (refused < 0) return true;
  }
  return true;
}

void Acceptor::Admit(int listening, int connection) {
  sockaddr_storage peer = {};
  socklen_t size = sizeof(peer);
  if (getpeername(connection, reinterpret_cast<sockaddr*>(&peer), &size) != 0) {
    close(connection);  // it is gone already
    return;
  }
  const std::string key = AddressKey(peer);
  if (const char* const why = ledger_->Enter(key)) {
    close(connection);
    Warn(NameOf(peer), why);
    return;
  }
  SocketEvents events;
  events.cut = [housekeeping = housekeeping_, who = NameOf(peer)](const char* why) {
    housekeeping->cut = true;
    Warn(who, why);
  };
  events.closed = [housekeeping = housekeeping_, ledger = ledger_, key] {
    ledger->Leave(key);
    housekeeping->Ended();
  };
  if (!GuardSocket(connection, tls_, std::move(events))) {
    ledger_->Leave(key);
    close(connection);
    return;
  }
  grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters handed;
  handed.listener_fd = listening;
  handed.fd = connection;
  server_->HandleNewConnection(&handed);
}

}  // namespace baton::rpc
