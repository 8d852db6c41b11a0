#include "tests/e2e/cut_proxy.h"

#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <utility>

#include "common/base/check.h"

namespace baton::e2e {
namespace {

constexpr int kLookMilliseconds = 5;

sockaddr_in AddressOf(const std::string& text) {
  const size_t colon = text.rfind(':');
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(std::stoi(text.substr(colon + 1))));
  BATON_CHECK(inet_pton(AF_INET, text.substr(0, colon).c_str(), &address.sin_addr) == 1) << text;
  return address;
}

// The other side gets a reset.
void Reset(int fd) {
  const linger at_once = {.l_onoff = 1, .l_linger = 0};
  setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
  close(fd);
}

// False: the connection is over.
bool Move(int from, int to) {
  std::array<char, 4096> bytes;
  const ssize_t got = recv(from, bytes.data(), bytes.size(), 0);
  if (got <= 0) return false;
  for (ssize_t sent = 0; sent < got;) {
    const ssize_t now = send(to, bytes.data() + sent, static_cast<size_t>(got - sent), MSG_NOSIGNAL);
    if (now <= 0) return false;
    sent += now;
  }
  return true;
}

}  // namespace

// Sockets are closed in processes that are started meanwhile: a connection ends with its last holder.
CutProxy::CutProxy(std::string target) : target_(std::move(target)) {
  listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = AddressOf("127.0.0.1:0");
  BATON_CHECK(bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
  BATON_CHECK(listen(listener_, 64) == 0);
  socklen_t size = sizeof(address);
  BATON_CHECK(getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size) == 0);
  address_ = "127.0.0.1:" + std::to_string(ntohs(address.sin_port));
  accept_ = std::thread([this] { Accept(); });
}

CutProxy::~CutProxy() {
  stopping_ = true;
  accept_.join();
  close(listener_);
  absl::MutexLock lock(&mutex_);
  for (const auto& connection : connections_) {
    connection->cut = true;
    connection->pump.join();
  }
}

void CutProxy::SetTarget(std::string target) {
  absl::MutexLock lock(&mutex_);
  target_ = std::move(target);
}

bool CutProxy::Cut() {
  absl::MutexLock lock(&mutex_);
  for (const auto& connection : connections_) {
    if (connection->over || connection->cut) continue;
    connection->cut = true;
    return true;
  }
  return false;
}

void CutProxy::Accept() {
  while (!stopping_) {
    pollfd wait = {.fd = listener_, .events = POLLIN, .revents = 0};
    if (poll(&wait, 1, kLookMilliseconds) <= 0) continue;
    const int client = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (client < 0) continue;
    absl::MutexLock lock(&mutex_);
    std::erase_if(connections_, [](const std::unique_ptr<Connection>& one) {
      if (!one->over) return false;
      one->pump.join();
      return true;
    });
    const int server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const sockaddr_in address = AddressOf(target_);
    if (connect(server, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
      close(server);
      Reset(client);
      continue;
    }
    auto& made = *connections_.emplace_back(std::make_unique<Connection>());
    made.client = client;
    made.server = server;
    made.pump = std::thread([&made] { Pump(made); });
  }
}

void CutProxy::Pump(Connection& connection) {
  bool open = true;
  while (open && !connection.cut) {
    std::array<pollfd, 2> wait = {pollfd{.fd = connection.client, .events = POLLIN, .revents = 0},
                                  pollfd{.fd = connection.server, .events = POLLIN, .revents = 0}};
    if (poll(wait.data(), wait.size(), kLookMilliseconds) <= 0) continue;
    if (wait[0].revents != 0) open = Move(connection.client, connection.server);
    if (open && wait[1].revents != 0) open = Move(connection.server, connection.client);
  }
  Reset(connection.client);
  Reset(connection.server);
  connection.over = true;
}

}  // namespace baton::e2e
