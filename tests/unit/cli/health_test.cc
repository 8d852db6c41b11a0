// grpc.health.v1 as kubelets and `baton health` ask it: on the public port and on the plain one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/client/inference_client.h"
#include "common/rpc/server.h"
#include "tests/patience.h"

namespace baton::cli {
namespace {

absl::StatusOr<bool> Ask(const std::string& address, const std::string& service) {
  const auto client = InferenceClient::Connect(address, Scaled(absl::Seconds(30)));
  if (!client.ok()) return client.status();
  return (*client)->IsServing(service);
}

class Health : public testing::Test {
 protected:
  void SetUp() override {
    auto started = rpc::Server::Start({.listen = "127.0.0.1:0", .health_listen = "127.0.0.1:0"}, {});
    ASSERT_TRUE(started.ok()) << started.status();
    server_ = *std::move(started);
  }
  std::unique_ptr<rpc::Server> server_;
};

TEST_F(Health, BothDoorsSayTheSame) {
  for (const std::string& address : {server_->address(), server_->health_address()}) {
    EXPECT_EQ(*Ask(address, ""), true);
    EXPECT_EQ(*Ask(address, "live"), true);
  }
}

TEST_F(Health, AProcessThatTakesNoWorkStillLives) {
  server_->SetServing(false);
  for (const std::string& address : {server_->address(), server_->health_address()}) {
    EXPECT_EQ(*Ask(address, ""), false);
    EXPECT_EQ(*Ask(address, "live"), true);
  }
  server_->SetServing(true);
  EXPECT_EQ(*Ask(server_->health_address(), ""), true);
}

TEST_F(Health, AnUnknownServiceIsNotFound) {
  EXPECT_EQ(Ask(server_->health_address(), "nobody").status().code(), absl::StatusCode::kNotFound);
}

TEST_F(Health, TheDoorCloses) {
  const std::string address = server_->health_address();
  server_->Shutdown(absl::ZeroDuration());
  EXPECT_EQ(InferenceClient::Connect(address).status().code(), absl::StatusCode::kUnavailable);
}

TEST_F(Health, ATakenPortIsAnError) {
  const auto second = rpc::Server::Start({.health_listen = server_->health_address()}, {});
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(second.status().message()), testing::HasSubstr(server_->health_address()));
}

TEST(HealthPort, NoneUnlessAskedFor) {
  const auto server = rpc::Server::Start({}, {});
  ASSERT_TRUE(server.ok());
  EXPECT_EQ((*server)->health_address(), "");
}

}  // namespace
}  // namespace baton::cli
