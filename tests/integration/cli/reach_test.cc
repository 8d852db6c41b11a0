// How a command reaches its server: what it says where no connection comes about, and how long it waits.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <atomic>
#include <fstream>
#include <iterator>
#include <memory>
#include <utility>

#include "tests/fakes/fake_inference.h"
#include "tests/integration/cli/baton_process.h"
#include "tests/integration/security/certificates.h"

namespace baton::cli {
namespace {

using fakes::FakeInference;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

struct TlsServer {
  std::string address;
  std::unique_ptr<grpc::CallbackGenericService> service;
  std::unique_ptr<grpc::Server> server;
};

TlsServer StartTlsServer(const rpc::PairFiles& files) {
  const auto read = [](const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  grpc::SslServerCredentialsOptions options;
  options.pem_key_cert_pairs.push_back({read(files.key), read(files.cert)});
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::SslServerCredentials(options), &port);
  auto service = std::make_unique<grpc::CallbackGenericService>();
  builder.RegisterCallbackGenericService(service.get());
  TlsServer started{.address = {}, .service = std::move(service), .server = builder.BuildAndStart()};
  started.address = fmt::format("127.0.0.1:{}", port);
  return started;
}

TEST(ReachTest, NobodyThereSaysHowToStartAServer) {
  std::string address;
  { address = FakeInference().address(); }
  const Outcome outcome = RunBaton({"generate", "--server", address, "-p", "x"});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("can't reach a server at " + address), HasSubstr("baton serve"),
                                 Not(HasSubstr("TLS"))));
}

TEST(ReachTest, PlainTextToATlsPortSaysSo) {
  rpc::Authority authority("authority");
  const rpc::PairFiles files = authority.Issue("server");
  const auto server = StartTlsServer(files);
  const Outcome outcome = RunBaton({"health", "--server", server.address});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.err,
              AllOf(HasSubstr("listens there"), HasSubstr("--tls-ca"), Not(HasSubstr("is it running"))));
}

TEST(ReachTest, TlsThatDoesNotComeAboutSaysWhy) {
  rpc::Authority authority("authority"), other("other");
  FakeInference plain;
  const Outcome to_plain = RunBaton({"health", "--server", plain.address(), "--tls-ca", authority.ca()});
  EXPECT_EQ(to_plain.code, 1);
  EXPECT_THAT(to_plain.err, AllOf(HasSubstr("listens there"), HasSubstr("without TLS")));
  const auto server = StartTlsServer(other.Issue("server"));
  const Outcome to_other = RunBaton({"health", "--server", server.address, "--tls-ca", authority.ca()});
  EXPECT_EQ(to_other.code, 1);
  EXPECT_THAT(to_other.err, AllOf(HasSubstr("listens there"), HasSubstr("another authority")));
}

TEST(ReachTest, WaitLastsUntilADecodeWorkerIsUp) {
  std::atomic<int> asked = 0;
  FakeInference server({.decode_workers = [&] { return ++asked < 4 ? 0u : 1u; }});
  EXPECT_EQ(RunBaton({"generate", "--server", server.address(), "-p", "x", "-m", "1"}).code, 0);
  EXPECT_EQ(asked, 0) << "without --wait the request goes at once";
  const Outcome outcome =
      RunBaton({"generate", "--server", server.address(), "-p", "x", "-m", "1", "--wait", "10m"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(asked, 4);
}

TEST(ReachTest, AWaitThatIsTooShortLeavesTheWordToTheServer) {
  FakeInference server({.decode_workers = [] { return 0u; }});
  EXPECT_EQ(RunBaton({"generate", "--server", server.address(), "-p", "x", "-m", "1", "--wait", "1ms"}).code,
            0);
  EXPECT_EQ(server.generate_requests().size(), 1u);
  EXPECT_EQ(
      RunBaton({"generate", "--server", server.address(), "-p", "x", "--model-name", "none", "--wait", "10m"})
          .code,
      0)
      << "a model that is not served is not waited for";
}

TEST(ReachTest, HealthHasTheFlagsOfAServerAlone) {
  const Outcome help = RunBaton({"health", "--help"});
  EXPECT_THAT(help.out, AllOf(HasSubstr("--server"), HasSubstr("--wait"), HasSubstr("--tls-ca"),
                              Not(HasSubstr("--weights")), Not(HasSubstr("--model"))));
}

}  // namespace
}  // namespace baton::cli
