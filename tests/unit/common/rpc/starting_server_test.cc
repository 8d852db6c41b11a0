// StartingServer: what callers hear of a process that still loads, and that its socket passes to the server.
#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <string>

#include "absl/synchronization/notification.h"
#include "common/base/check.h"
#include "common/rpc/server.h"
#include "common/rpc/status.h"

namespace baton::rpc {
namespace {

// A TCP connection to 127.0.0.1:PORT, which the kernel has taken.
int ConnectTo(const std::string& address) {
  sockaddr_in to = {};
  to.sin_family = AF_INET;
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  to.sin_port = htons(static_cast<uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))));
  const int connection = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  BATON_CHECK(connection >= 0 && connect(connection, reinterpret_cast<sockaddr*>(&to), sizeof(to)) == 0);
  return connection;
}

class StartingServerTest : public ::testing::Test {
 protected:
  // Calls a method that no server has.
  absl::Status Call() {
    grpc::ClientContext context;
    context.set_wait_for_ready(true);
    const grpc::Slice nothing;
    grpc::ByteBuffer question(&nothing, 1), answer;
    grpc::Status status;
    absl::Notification done;
    stub_->UnaryCall(&context, "/baton.fleet.v1.Worker/Watch", grpc::StubOptions(), &question, &answer,
                     [&](grpc::Status ended) {
                       status = std::move(ended);
                       done.Notify();
                     });
    done.WaitForNotification();
    return FromGrpc(status);
  }
  void Dial(const std::string& address) {
    stub_ =
        std::make_unique<grpc::GenericStub>(grpc::CreateChannel(address, grpc::InsecureChannelCredentials()));
  }

  std::unique_ptr<grpc::GenericStub> stub_;
};

TEST_F(StartingServerTest, SaysSoToEveryCall) {
  auto starting = StartingServer::Start({});
  ASSERT_TRUE(starting.ok()) << starting.status();
  auto acceptor = (*starting)->HandOver();
  const std::string address = acceptor->address();
  acceptor.reset();
  starting = StartingServer::Start({.listen = address});
  ASSERT_TRUE(starting.ok()) << "its address is free again: " << starting.status();
  Dial(address);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(IsStarting(Call()));
}

TEST_F(StartingServerTest, ItsAddressIsTheServersFromThenOn) {
  auto starting = StartingServer::Start({});
  ASSERT_TRUE(starting.ok()) << starting.status();
  auto acceptor = (*starting)->HandOver();
  const std::string address = acceptor->address();
  // One that connects between the two waits for the server, which speaks first in HTTP/2.
  const int early = ConnectTo(address);
  auto server = Server::Start({}, {}, std::move(acceptor));
  ASSERT_TRUE(server.ok()) << server.status();
  EXPECT_EQ((*server)->address(), address);
  char settings = 0;
  EXPECT_EQ(recv(early, &settings, 1, 0), 1) << std::strerror(errno);
  close(early);
  Dial(address);
  const absl::Status answer = Call();
  EXPECT_TRUE(absl::IsUnimplemented(answer)) << answer;
}

TEST_F(StartingServerTest, AConnectionToItMeetsTheServerNext) {
  auto starting = StartingServer::Start({.listen = "127.0.0.1:0"});
  ASSERT_TRUE(starting.ok()) << starting.status();
  Dial((*starting)->address());
  EXPECT_TRUE(IsStarting(Call()));
  auto server = Server::Start({}, {}, (*starting)->HandOver());
  ASSERT_TRUE(server.ok()) << server.status();
  EXPECT_TRUE(absl::IsUnimplemented(Call()));
}

TEST_F(StartingServerTest, AnAddressThatIsTakenIsAnErrorAtOnce) {
  auto first = StartingServer::Start({});
  ASSERT_TRUE(first.ok());
  const auto second = StartingServer::Start({.listen = (*first)->address()});
  EXPECT_TRUE(absl::IsUnavailable(second.status())) << second.status();
}

TEST(StartingErrorTest, IsToldFromOthersOverTheWire) {
  EXPECT_TRUE(IsStarting(FromGrpc(ToGrpc(StartingError()))));
  EXPECT_FALSE(IsStarting(absl::OkStatus()));
  EXPECT_FALSE(IsStarting(absl::UnavailableError("connection refused")));
  EXPECT_FALSE(IsStarting(WithReason(absl::UnavailableError("leaving"), v1::REASON_ROUTER_DRAINING)));
}

}  // namespace
}  // namespace baton::rpc
