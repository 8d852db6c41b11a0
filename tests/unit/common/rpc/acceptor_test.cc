// Limits of the acceptor: connections in all and by address, no descriptor left, and silent clients.
#include "common/rpc/acceptor.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "common/base/secret.h"
#include "common/rpc/channel.h"
#include "common/rpc/server.h"
#include "tests/descriptors.h"
#include "tests/patience.h"

namespace baton::rpc {
namespace {

constexpr int kPatienceMs = Scaled(60'000);

// A connection to `address` from the loopback address that ends in `from`.
class Client {
 public:
  explicit Client(const std::string& address, uint32_t from = 1) : Client() { Connect(address, from); }
  // Has a socket, and connects later.
  Client() : socket_(socket(AF_INET, SOCK_STREAM, 0)) { EXPECT_GE(socket_, 0); }
  Client(Client&& other) noexcept : socket_(std::exchange(other.socket_, -1)) {}
  ~Client() {
    if (socket_ >= 0) close(socket_);
  }

  void Connect(const std::string& address, uint32_t from = 1) const {
    sockaddr_in own = {};
    own.sin_family = AF_INET;
    own.sin_addr.s_addr = htonl(0x7f000000 | from);
    EXPECT_EQ(bind(socket_, reinterpret_cast<const sockaddr*>(&own), sizeof(own)), 0);
    sockaddr_in to = own;
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    to.sin_port = htons(static_cast<uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))));
    EXPECT_EQ(connect(socket_, reinterpret_cast<const sockaddr*>(&to), sizeof(to)), 0);
  }
  // Waits until the server says something (its SETTINGS): true; or hangs up: false.
  bool IsServed() const {
    pollfd readable = {socket_, POLLIN, 0};
    char byte;
    return poll(&readable, 1, kPatienceMs) == 1 && recv(socket_, &byte, 1, 0) == 1;
  }
  // Waits until the server hangs up: true; or says something: false.
  // After `patience_ms` without either: false.
  bool IsTurnedAway(int patience_ms) const {
    pollfd readable = {socket_, POLLIN, 0};
    char byte;
    return poll(&readable, 1, patience_ms) == 1 && recv(socket_, &byte, 1, 0) <= 0;
  }
  // Waits for the end of what the server says.
  bool IsClosed() const {
    char bytes[4096];
    while (true) {
      pollfd readable = {socket_, POLLIN, 0};
      if (poll(&readable, 1, kPatienceMs) != 1) return false;
      if (recv(socket_, bytes, sizeof(bytes), 0) <= 0) return true;
    }
  }

 private:
  int socket_;
};

TEST(AcceptorTest, SoManyInAllAndFromEachAddressAndAgainWhenTheyHaveGone) {
  const auto server = Server::Start({.connections = {.total = 4, .per_address = 2}}, {});
  ASSERT_TRUE(server.ok()) << server.status();
  const std::string& address = (*server)->address();
  {
    std::vector<Client> clients;
    for (const uint32_t from : {2u, 2u, 3u, 3u}) {
      clients.emplace_back(address, from);
      EXPECT_TRUE(clients.back().IsServed());
      EXPECT_FALSE(from == 2 && clients.size() == 2 && Client(address, 2).IsServed())
          << "two from an address";
    }
    EXPECT_FALSE(Client(address, 4).IsServed()) << "four in all";
  }
  // The server hears of their ends in its own time.
  Await([&] { return Client(address, 2).IsServed(); }, "a server that has room again");
}

TEST(AcceptorTest, WithoutADescriptorLeftItTurnsClientsAwayAndLaterServesAgain) {
  if (kSanitizerNeedsDescriptors) GTEST_SKIP() << "the sanitizer itself needs a descriptor";
  const auto server = Server::Start({}, {});
  ASSERT_TRUE(server.ok()) << server.status();
  Client first((*server)->address());
  ASSERT_TRUE(first.IsServed());
  rlimit limit = {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  // Other threads of the process take and give back descriptors beside this one. One that comes back after
  // all others were taken serves the client; gRPC's threads may take even the reserve, and the client waits.
  // In both cases another round follows.
  std::vector<Client> served;
  std::vector<int> taken;
  bool turned_away = false;
  for (int round = 0; round < 12 && !turned_away; ++round) {
    Client client;
    for (int fd; (fd = dup(0)) >= 0;) {
      taken.push_back(fd);
      if (taken.size() == 64) {
        const rlimit few = {.rlim_cur = static_cast<rlim_t>(fd) + 1, .rlim_max = limit.rlim_max};
        ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
      }
    }
    ASSERT_EQ(errno, EMFILE);
    client.Connect((*server)->address());
    turned_away = client.IsTurnedAway(5'000);
    if (turned_away) break;
    served.push_back(std::move(client));
    // The next client's.
    close(taken.back());
    taken.pop_back();
  }
  EXPECT_TRUE(turned_away) << "at once, without a descriptor";
  for (const int fd : taken) close(fd);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  EXPECT_TRUE(Client((*server)->address()).IsServed());
}

TEST(AcceptorTest, WhoeverSaysNothingIsClosed) {
  const auto server = Server::Start({.opening = absl::Milliseconds(200)}, {});
  ASSERT_TRUE(server.ok()) << server.status();
  EXPECT_TRUE(Client((*server)->address()).IsClosed());
}

TEST(AcceptorTest, ListensOnAllThatGrpcDid) {
  const std::string path = std::filesystem::path(testing::TempDir()) / ("listen_" + RandomHex(6));
  for (const std::string& address : {std::string("127.0.0.1:0"), std::string("localhost:0"),
                                     std::string("0.0.0.0:0"), std::string("[::]:0"), "unix:" + path}) {
    const auto server = Server::Start({.listen = address}, {});
    ASSERT_TRUE(server.ok()) << server.status();
    // A name is not looked up: Debian's c-ares loses ten bytes for each.
    std::string target = (*server)->address();
    if (target.starts_with("localhost:")) target.replace(0, target.find(':'), "127.0.0.1");
    const auto channel = MakeChannel(target);
    EXPECT_TRUE(
        channel->WaitForConnected(std::chrono::system_clock::now() + Scaled(std::chrono::seconds(60))))
        << (*server)->address();
    EXPECT_FALSE(Server::Start({.listen = (*server)->address()}, {}).ok()) << "taken";
  }
  unlink(path.c_str());
  EXPECT_EQ(Server::Start({.listen = "127.0.0.1"}, {}).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace baton::rpc
