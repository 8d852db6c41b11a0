#include "tests/fuzz/http_bytes.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <string>

#include "common/base/check.h"
#include "gateway/http/server.h"
#include "tests/patience.h"

namespace baton::gateway::http {
namespace {

constexpr int kPatienceSeconds = Scaled(60);

void Echo(const std::shared_ptr<Exchange>& exchange) {
  const Request& request = exchange->request();
  if (request.path.size() % 2 == 0) return exchange->Answer({.body = request.method + request.body});
  exchange->Begin({.body = "begun"});
  exchange->Write(request.body, [exchange] { exchange->End(); });
}

Server& TheServer() {
  static const auto server = [] {
    auto started = Server::Start({.max_body_bytes = 10000}, Echo);
    BATON_CHECK(started.ok()) << started.status();
    return *std::move(started);
  }();
  return *server;
}

}  // namespace

absl::Status FuzzHttp(std::span<const uint8_t> bytes) {
  const std::string& address = TheServer().address();
  const int client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in to = {};
  to.sin_family = AF_INET;
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  to.sin_port = htons(static_cast<uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))));
  BATON_CHECK(client >= 0 && connect(client, reinterpret_cast<const sockaddr*>(&to), sizeof(to)) == 0);
  const timeval patience = {.tv_sec = kPatienceSeconds, .tv_usec = 0};
  setsockopt(client, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  while (!bytes.empty()) {
    const ssize_t sent = send(client, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) break;
    bytes = bytes.subspan(static_cast<size_t>(sent));
  }
  shutdown(client, SHUT_WR);
  std::string answer;
  char piece[4096];
  ssize_t got = 0;
  while ((got = recv(client, piece, sizeof(piece), 0)) > 0) answer.append(piece, static_cast<size_t>(got));
  const bool silent = got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
  // No connection stays behind in a state of waiting: there are only so many ports.
  const linger now = {.l_onoff = 1, .l_linger = 0};
  setsockopt(client, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
  close(client);
  if (silent) return absl::InternalError("the server does not hang up");
  constexpr std::string_view kHttp1 = "HTTP/1.1 ";
  // HTTP/2 begins with SETTINGS, and has no byte of 'H' for its length.
  if (!answer.empty() && !answer.starts_with(kHttp1) && (answer[0] != 0 || answer.size() < 9)) {
    return absl::InternalError("this is no answer: " + answer.substr(0, 100));
  }
  return absl::OkStatus();
}

}  // namespace baton::gateway::http
