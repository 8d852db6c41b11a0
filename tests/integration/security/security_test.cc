// Parties that may speak to each other: real handshakes over loopback, with certificates of the moment.
#include "common/rpc/security.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <mutex>
#include <vector>

#include "baton/fleet/v1/worker.grpc.pb.h"
#include "common/base/check.h"
#include "common/base/secret.h"
#include "common/rpc/channel.h"
#include "common/rpc/client_stream.h"
#include "common/rpc/peer.h"
#include "common/rpc/server.h"
#include "common/rpc/server_stream.h"
#include "tests/integration/security/certificates.h"
#include "tests/patience.h"

namespace baton::rpc {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// Lets the fleet in; a Drain answers at once, a Watch stays open until it is told to end.
class Guarded final : public fleet::v1::Worker::CallbackService {
 public:
  explicit Guarded(std::shared_ptr<const Security> security)
      : peers_(std::move(security), [this] { ++denied; }) {}

  grpc::ServerUnaryReactor* Drain(grpc::CallbackServerContext* context, const fleet::v1::DrainRequest*,
                                  fleet::v1::DrainResponse*) override {
    auto* reactor = context->DefaultReactor();
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      names_ = PeerCertificateNames(*context);
    }
    reactor->Finish(ToGrpc(peers_(*context)));
    return reactor;
  }
  grpc::ServerWriteReactor<fleet::v1::WatchEvent>* Watch(grpc::CallbackServerContext* context,
                                                         const fleet::v1::WatchRequest*) override {
    auto stream = ServerStream<fleet::v1::WatchEvent>::Create();
    if (absl::Status stranger = peers_(*context); !stranger.ok()) {
      stream->Finish(std::move(stranger));
    } else {
      stream->Send({});
      const std::lock_guard<std::mutex> lock(mutex_);
      open_.push_back(stream);
    }
    return stream->reactor();
  }
  void EndStreams() {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const auto& stream : open_) {
      stream->Send({});
      stream->Finish(absl::OkStatus());
    }
    open_.clear();
  }
  std::vector<std::string> last_names() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return names_;
  }

  std::atomic<int> denied = 0;

 private:
  const PeerCheck peers_;
  std::mutex mutex_;
  std::vector<std::string> names_;
  std::vector<std::shared_ptr<ServerStream<fleet::v1::WatchEvent>>> open_;
};

class SecurityTest : public ::testing::Test {
 protected:
  ~SecurityTest() override {
    if (server_ != nullptr) server_->Shutdown(absl::ZeroDuration());
    for (const std::string& file : files_) std::filesystem::remove(file);
  }

  static std::shared_ptr<const Security> Load(const SecurityOptions& options) {
    auto security = Security::Load(options);
    BATON_CHECK(security.ok()) << security.status();
    return *std::move(security);
  }
  void Serve(SecurityOptions options, bool is_public = false) {
    options.reload_interval = absl::Seconds(1);
    const auto security = Load(options);
    service_ = std::make_unique<Guarded>(security);
    auto server = Server::Start(
        {.security = security, .is_public = is_public, .keepalive = {.timeout = Scaled(absl::Seconds(60))}},
        {service_.get()});
    BATON_CHECK(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  std::shared_ptr<grpc::Channel> Dial(const SecurityOptions& options) {
    return MakeChannel(server_->address(), {.timeout = Scaled(absl::Seconds(60))}, Load(options).get());
  }
  // One call on a new channel.
  absl::Status Call(const SecurityOptions& options, std::vector<std::string>* server_names = nullptr) {
    const auto stub = fleet::v1::Worker::NewStub(Dial(options));
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + Scaled(std::chrono::seconds(60)));
    fleet::v1::DrainResponse response;
    const grpc::Status status = stub->Drain(&context, {}, &response);
    if (server_names != nullptr && status.ok()) {
      for (const auto& name : context.auth_context()->FindPropertyValues("x509_common_name")) {
        server_names->emplace_back(name.data(), name.size());
      }
    }
    return FromGrpc(status);
  }
  std::string KeyFile(const std::string& key) {
    files_.push_back(::testing::TempDir() + "/key_" + RandomHex(6));
    std::ofstream(files_.back()) << key << "\n";
    return files_.back();
  }
  static SecurityOptions With(const PairFiles& pair, const std::string& ca) {
    return {.cert = pair.cert, .key = pair.key, .ca = ca};
  }

  Authority fleet_{"fleet"};
  Authority strangers_{"strangers"};
  std::vector<std::string> files_;
  std::unique_ptr<Guarded> service_;
  std::unique_ptr<Server> server_;
};

TEST_F(SecurityTest, TheFleetsCertificatesAreAccepted) {
  Serve(With(fleet_.Issue("decode"), fleet_.ca()));
  EXPECT_EQ(Call(With(fleet_.Issue("router"), fleet_.ca())), absl::OkStatus());
  EXPECT_THAT(service_->last_names(), Contains("router"));
}

TEST_F(SecurityTest, NobodyElseComesIn) {
  Serve(With(fleet_.Issue("decode"), fleet_.ca()));
  EXPECT_TRUE(absl::IsUnavailable(Call({.ca = fleet_.ca()}))) << "no certificate";
  EXPECT_TRUE(absl::IsUnavailable(Call(With(strangers_.Issue("router"), fleet_.ca()))))
      << "another authority's";
  EXPECT_TRUE(
      absl::IsUnavailable(Call(With(fleet_.Issue("late", -absl::Hours(1), -absl::Minutes(1)), fleet_.ca()))))
      << "expired";
  EXPECT_TRUE(absl::IsUnavailable(Call({}))) << "plain";
  EXPECT_THAT(service_->last_names(), IsEmpty()) << "nothing of it reached the service";
  EXPECT_EQ(Call(With(fleet_.Issue("router"), fleet_.ca())), absl::OkStatus()) << "the control";
}

TEST_F(SecurityTest, ClientsBelieveOnlyTheFleetsServers) {
  Serve(With(strangers_.Issue("decode"), fleet_.ca()));
  EXPECT_TRUE(absl::IsUnavailable(Call(With(fleet_.Issue("router"), fleet_.ca()))));
}

TEST_F(SecurityTest, ClientsDoNotBelieveAnExpiredServer) {
  Serve(With(fleet_.Issue("decode", -absl::Hours(1), -absl::Minutes(1)), fleet_.ca()));
  EXPECT_TRUE(absl::IsUnavailable(Call(With(fleet_.Issue("router"), fleet_.ca()))));
}

TEST_F(SecurityTest, ANameForAllPartiesIsCheckedOnBothSides) {
  SecurityOptions server = With(fleet_.Issue("party"), fleet_.ca());
  server.peer_name = "party";
  Serve(server);
  EXPECT_EQ(Call(server), absl::OkStatus());
  SecurityOptions outsider = With(fleet_.Issue("client-of-the-same-authority"), fleet_.ca());
  const absl::Status denied = Call(outsider);
  EXPECT_TRUE(absl::IsPermissionDenied(denied)) << denied;
  EXPECT_EQ(service_->denied, 1);
  SecurityOptions elsewhere = server;
  elsewhere.peer_name = "another-party";
  EXPECT_TRUE(absl::IsUnavailable(Call(elsewhere))) << "the server doesn't have this name";
}

TEST_F(SecurityTest, WithoutTlsTheFleetsKeyIsAccepted) {
  const std::string key = RandomHex(32);
  Serve({.fleet_key_file = KeyFile(key)});
  EXPECT_EQ(Call({.fleet_key_file = KeyFile(key)}), absl::OkStatus());
  const absl::Status wrong = Call({.fleet_key_file = KeyFile(RandomHex(32))});
  EXPECT_TRUE(absl::IsUnauthenticated(wrong)) << wrong;
  EXPECT_THAT(std::string(wrong.message()), Not(HasSubstr(key)));
  EXPECT_TRUE(absl::IsUnauthenticated(Call({})));
  EXPECT_EQ(service_->denied, 2);
  // A stream is no other way in.
  const auto stub = fleet::v1::Worker::NewStub(Dial({}));
  grpc::ClientContext context;
  const auto watch = stub->Watch(&context, {});
  fleet::v1::WatchEvent event;
  EXPECT_FALSE(watch->Read(&event));
  EXPECT_EQ(watch->Finish().error_code(), grpc::StatusCode::UNAUTHENTICATED);
}

TEST_F(SecurityTest, APublicServerAsksForACertificateAndDoesNotRequireIt) {
  SecurityOptions server = With(fleet_.Issue("router"), fleet_.ca());
  server.client_ca = strangers_.ca();
  Serve(server, true);
  service_->EndStreams();
  Call({.ca = fleet_.ca()}).IgnoreError();
  EXPECT_THAT(service_->last_names(), IsEmpty());
  Call(With(strangers_.Issue("search.example.org"), fleet_.ca())).IgnoreError();
  EXPECT_THAT(service_->last_names(), Contains("search.example.org"));
  EXPECT_TRUE(absl::IsUnavailable(Call(With(fleet_.Issue("search.example.org"), fleet_.ca()))))
      << "a name that another authority signed is nobody's";
}

TEST_F(SecurityTest, ARenewedCertificateIsShownWhileStreamsRun) {
  const PairFiles pair = fleet_.Issue("decode");
  Serve(With(pair, fleet_.ca()));
  const SecurityOptions client = With(fleet_.Issue("router"), fleet_.ca());
  const auto stub = fleet::v1::Worker::NewStub(Dial(client));
  grpc::ClientContext context;
  const auto watch = stub->Watch(&context, {});
  fleet::v1::WatchEvent event;
  ASSERT_TRUE(watch->Read(&event));

  const PairFiles renewed = fleet_.Issue("renewed");
  std::filesystem::rename(renewed.key, pair.key);
  std::filesystem::rename(renewed.cert, pair.cert);
  std::vector<std::string> names;
  const auto is_shown = [&] {
    names.clear();
    Call(client, &names).IgnoreError();
    return std::count(names.begin(), names.end(), "renewed") > 0;
  };
  Await(is_shown, "the renewed certificate");
  EXPECT_THAT(names, Contains("renewed"));
  service_->EndStreams();
  EXPECT_TRUE(watch->Read(&event)) << "the stream of the old certificate goes on";
  EXPECT_FALSE(watch->Read(&event));
  EXPECT_TRUE(watch->Finish().ok());
}

TEST_F(SecurityTest, WhatCannotWorkIsSaidAtTheStart) {
  const PairFiles a = fleet_.Issue("a"), b = fleet_.Issue("b");
  const auto problem = [](const SecurityOptions& options) {
    return std::string(Security::Load(options).status().message());
  };
  EXPECT_THAT(problem({.cert = a.cert}), HasSubstr("both or neither"));
  EXPECT_THAT(problem({.cert = a.cert, .key = b.key}), HasSubstr("is not the private key of"));
  EXPECT_THAT(problem({.cert = a.key, .key = a.key}), HasSubstr("no PEM certificate"));
  EXPECT_THAT(problem({.cert = a.cert, .key = a.cert}), HasSubstr("no PEM private key"));
  EXPECT_THAT(problem({.ca = "/nowhere/ca.pem"}), HasSubstr("can't be read"));
  EXPECT_THAT(problem({.client_ca = fleet_.ca()}), HasSubstr("--tls-client-ca"));
  EXPECT_THAT(problem({.peer_name = "x"}), HasSubstr("--tls-peer-name"));
  EXPECT_THAT(problem({.fleet_key_file = KeyFile("short")}), HasSubstr("at least 16"));
  EXPECT_THAT(problem({.api_key_file = KeyFile("two words are no key")}), HasSubstr("one word"));
}

}  // namespace
}  // namespace baton::rpc
