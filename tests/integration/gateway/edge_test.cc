// gRPC through the gateway: a real client, a real server, and HTTP/2 of the gateway's own between them.
#include <gmock/gmock.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/support/byte_buffer.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <fstream>
#include <set>
#include <thread>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "baton/v1/inference.grpc.pb.h"
#include "common/rpc/status.h"
#include "gateway/gateway.h"
#include "grpc/health/v1/health.pb.h"
#include "grpc/reflection/v1/reflection.pb.h"
#include "tests/fakes/fake_inference.h"
#include "tests/integration/gateway/echo_router.h"
#include "tests/integration/security/certificates.h"
#include "tests/patience.h"
#include "tests/unit/common/telemetry/http_peer.h"

namespace baton::gateway {
namespace {

using fakes::AnswerWith;
using fakes::FakeInference;
using fakes::Script;
using ::testing::HasSubstr;
using ::testing::StartsWith;

const absl::Duration kGenerous = Scaled(absl::Seconds(60));

std::unique_ptr<Gateway> Serve(const std::string& router, GatewayOptions options = {}) {
  options.routers = {router};
  auto gateway = Gateway::Start(options);
  EXPECT_TRUE(gateway.ok()) << gateway.status();
  return *std::move(gateway);
}

std::shared_ptr<grpc::Channel> Dial(const std::string& address, const std::string& ca = "") {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(64 << 20);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  if (ca.empty()) return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
  std::ifstream file(ca);
  return grpc::CreateCustomChannel(
      address, grpc::SslCredentials({.pem_root_certs = {std::istreambuf_iterator<char>(file), {}}}),
      arguments);
}

void Patient(grpc::ClientContext& context) {
  context.set_deadline(absl::ToChronoTime(absl::Now() + kGenerous));
}

// Calls a method that nobody declared, by a queue of its own.
class RawCall {
 public:
  RawCall(const std::shared_ptr<grpc::Channel>& channel, grpc::ClientContext& context,
          const std::string& method = "/any.Service/Method")
      : stub_(channel), stream_(stub_.PrepareCall(&context, method, &queue_)) {
    stream_->StartCall(nullptr);
    Next();
  }
  ~RawCall() {
    queue_.Shutdown();
    void* tag = nullptr;
    for (bool ok = false; queue_.Next(&tag, &ok);) {
    }
  }
  bool Write(const std::string& message) {
    const grpc::Slice slice(message);
    stream_->Write(grpc::ByteBuffer(&slice, 1), nullptr);
    return Next();
  }
  bool WritesDone() {
    stream_->WritesDone(nullptr);
    return Next();
  }
  std::optional<std::string> Read() {
    grpc::ByteBuffer buffer;
    stream_->Read(&buffer, nullptr);
    if (!Next()) return std::nullopt;
    std::vector<grpc::Slice> slices;
    std::string message;
    if (!buffer.Dump(&slices).ok()) return std::nullopt;
    for (const grpc::Slice& slice : slices)
      message.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
    return message;
  }
  bool ReadHead() {
    stream_->ReadInitialMetadata(nullptr);
    return Next();
  }
  grpc::Status Finish() {
    grpc::Status status;
    stream_->Finish(&status, nullptr);
    Next();
    return status;
  }

 private:
  bool Next() {
    void* tag = nullptr;
    bool ok = false;
    return queue_.Next(&tag, &ok) && ok;
  }

  grpc::CompletionQueue queue_;
  grpc::GenericStub stub_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> stream_;
};

std::optional<std::string> EchoOnce(const std::shared_ptr<grpc::Channel>& channel, const std::string& text) {
  grpc::ClientContext context;
  Patient(context);
  RawCall call(channel, context);
  call.Write(text);
  const auto answer = call.Read();
  call.WritesDone();
  const grpc::Status status = call.Finish();
  EXPECT_TRUE(status.ok()) << status.error_message();
  return answer;
}

std::string Find(const std::multimap<grpc::string_ref, grpc::string_ref>& metadata, const char* name) {
  const auto found = metadata.find(name);
  return found == metadata.end() ? "(none)" : std::string(found->second.data(), found->second.size());
}

TEST(EdgeTest, CallsAndStreamsOfTheServiceItself) {
  FakeInference router;
  const auto gateway = Serve(router.address());
  const auto channel = Dial(gateway->address());
  const auto stub = v1::Inference::NewStub(channel);
  grpc::ClientContext unary, streamed, checked;
  v1::ListModelsResponse models;
  Patient(unary);
  ASSERT_TRUE(stub->ListModels(&unary, {}, &models).ok());
  EXPECT_EQ(models.models(0).name(), "fake");
  v1::GenerateRequest request;
  request.set_text("hi");
  request.mutable_stop()->set_max_tokens(500);
  Patient(streamed);
  const auto reader = stub->Generate(&streamed, request);
  v1::GenerateResponse response;
  int tokens = 0;
  while (reader->Read(&response)) tokens += response.has_delta() ? 1 : 0;
  EXPECT_TRUE(reader->Finish().ok());
  EXPECT_EQ(tokens, 500);
  // Health is what the router says of itself.
  grpc::TemplatedGenericStub<grpc::health::v1::HealthCheckRequest, grpc::health::v1::HealthCheckResponse>
      health(channel);
  grpc::health::v1::HealthCheckRequest question;
  grpc::health::v1::HealthCheckResponse answer;
  absl::Notification done;
  Patient(checked);
  health.UnaryCall(&checked, "/grpc.health.v1.Health/Check", grpc::StubOptions(), &question, &answer,
                   [&](const grpc::Status& status) {
                     EXPECT_TRUE(status.ok()) << status.error_message();
                     done.Notify();
                   });
  done.WaitForNotification();
  EXPECT_EQ(answer.status(), grpc::health::v1::HealthCheckResponse::SERVING);
}

// Questions of grpcurl to a server whose proto files it does not have, on one stream, one by one.
TEST(EdgeTest, ReflectionTellsOfTheRoutersServices) {
  using grpc::reflection::v1::ServerReflectionRequest;
  using grpc::reflection::v1::ServerReflectionResponse;
  FakeInference router;
  const auto gateway = Serve(router.address());
  const auto channel = Dial(gateway->address());
  for (const std::string version : {"v1", "v1alpha"}) {
    SCOPED_TRACE(version);
    grpc::ClientContext context;
    Patient(context);
    RawCall call(channel, context, "/grpc.reflection." + version + ".ServerReflection/ServerReflectionInfo");
    const auto ask = [&](const ServerReflectionRequest& request) {
      ServerReflectionResponse response;
      EXPECT_TRUE(call.Write(request.SerializeAsString()));
      EXPECT_TRUE(response.ParseFromString(call.Read().value_or("")));
      return response;
    };
    ServerReflectionRequest list, find;
    list.set_list_services("*");
    const ServerReflectionResponse listed = ask(list);
    std::set<std::string> services;
    for (const auto& service : listed.list_services_response().service()) services.insert(service.name());
    EXPECT_TRUE(services.contains("baton.v1.Inference"));
    EXPECT_TRUE(services.contains("grpc.reflection." + version + ".ServerReflection"));
    find.set_file_containing_symbol("baton.v1.Inference");
    const ServerReflectionResponse found = ask(find);
    ASSERT_GE(found.file_descriptor_response().file_descriptor_proto_size(), 1);
    EXPECT_THAT(found.file_descriptor_response().file_descriptor_proto(0), HasSubstr("inference.proto"));
    find.set_file_containing_symbol("no.such.Thing");
    EXPECT_EQ(ask(find).error_response().error_code(), grpc::NOT_FOUND);
    call.WritesDone();
    EXPECT_EQ(call.Read(), std::nullopt);
    EXPECT_TRUE(call.Finish().ok());
  }
}

// It opens a stream and says nothing, and answers pings.
TEST(EdgeTest, ACallWithoutAMessageIsToldSoAndReachesNoRouter) {
  EchoRouter router;
  const auto gateway = Serve(router.address(), {.http = {.body_timeout = absl::Milliseconds(200)}});
  grpc::ClientContext context;
  Patient(context);
  RawCall call(Dial(gateway->address()), context);
  EXPECT_EQ(call.Read(), std::nullopt);
  const grpc::Status status = call.Finish();
  EXPECT_EQ(status.error_code(), grpc::DEADLINE_EXCEEDED);
  EXPECT_THAT(status.error_message(), HasSubstr("no message came within 200ms"));
  EXPECT_THAT(gateway->metrics().Text(), HasSubstr("baton_gateway_bad_requests_total 1\n"));
}

TEST(EdgeTest, BothSidesTalkInTurns) {
  EchoRouter router;
  const auto gateway = Serve(router.address());
  grpc::ClientContext context;
  Patient(context);
  RawCall call(Dial(gateway->address()), context);
  for (int i = 0; i < 50; ++i) {
    ASSERT_TRUE(call.Write("message " + std::to_string(i)));
    ASSERT_EQ(call.Read(), "message " + std::to_string(i));
  }
  call.Write("");
  EXPECT_EQ(call.Read(), "");
  call.WritesDone();
  EXPECT_EQ(call.Read(), std::nullopt);
  EXPECT_TRUE(call.Finish().ok());
}

TEST(EdgeTest, MetadataTrailersAndDetailsOfErrorsArriveAsTheyAre) {
  EchoRouter router;
  const auto gateway = Serve(router.address());
  std::string binary;
  for (int i = 0; i < 256; ++i) binary += static_cast<char>(i);
  for (const bool head : {false, true}) {
    grpc::ClientContext context;
    Patient(context);
    context.AddMetadata("x-text", "a b, c=d");
    context.AddMetadata("x-twice", "one");
    context.AddMetadata("x-twice", "two");
    context.AddMetadata("x-some-bin", binary);
    context.AddMetadata("x-code", "9");
    context.AddMetadata("x-code-details-bin", binary + "?");
    if (head) context.AddMetadata("x-ask", "head");
    RawCall call(Dial(gateway->address()), context);
    if (head) {
      // Before any message.
      ASSERT_TRUE(call.Write("m"));
      ASSERT_TRUE(call.ReadHead());
      EXPECT_EQ(Find(context.GetServerInitialMetadata(), "x-some-bin"), binary);
      EXPECT_EQ(call.Read(), "m");
    }
    call.WritesDone();
    EXPECT_EQ(call.Read(), std::nullopt);
    const grpc::Status status = call.Finish();
    EXPECT_EQ(status.error_code(), 9);
    EXPECT_EQ(status.error_message(), "as asked: 100% \xC3\xA4\n");
    EXPECT_EQ(status.error_details(), binary + "?");
    const auto& trailers = context.GetServerTrailingMetadata();
    EXPECT_EQ(Find(trailers, "x-text"), "a b, c=d");
    EXPECT_EQ(Find(trailers, "x-some-bin"), binary);
    EXPECT_EQ(trailers.count("x-twice"), 2u);
  }
}

// The gateway has one connection to the router for all of its clients.
TEST(EdgeTest, MetadataThatTheRouterWouldRefuseEndsItsOwnCallAlone) {
  EchoRouter router;
  const auto gateway = Serve(router.address());
  grpc::ClientContext talking;
  Patient(talking);
  RawCall other(Dial(gateway->address()), talking);
  ASSERT_TRUE(other.Write("one"));
  EXPECT_EQ(other.Read(), "one");
  for (const size_t bytes : {7'200, 8'300, 15'000}) {
    grpc::ClientContext context;
    Patient(context);
    context.AddMetadata("x-large", std::string(bytes, 'a'));
    RawCall refused(Dial(gateway->address()), context);
    (void)refused.Write("m");
    EXPECT_EQ(refused.Read(), std::nullopt);
    const grpc::Status status = refused.Finish();
    EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED) << status.error_message();
    EXPECT_THAT(status.error_message(), testing::HasSubstr("at most 7168 are passed on"));
  }
  ASSERT_TRUE(other.Write("two"));
  EXPECT_EQ(other.Read(), "two");
  other.WritesDone();
  EXPECT_EQ(other.Read(), std::nullopt);
  EXPECT_TRUE(other.Finish().ok());
}

TEST(EdgeTest, LargeMessagesPassAndTooLargeOnesAreRefused) {
  EchoRouter router;
  const auto gateway = Serve(router.address());
  const auto channel = Dial(gateway->address());
  std::string large(12 << 20, 'x');
  for (size_t i = 0; i < large.size(); i += 4096) large[i] = static_cast<char>(i >> 12);
  EXPECT_TRUE(EchoOnce(channel, large) == large);
  grpc::ClientContext context;
  Patient(context);
  RawCall call(channel, context);
  call.Write(std::string((16 << 20) + 1, 'x'));
  const grpc::Status status = call.Finish();
  EXPECT_EQ(status.error_code(), grpc::RESOURCE_EXHAUSTED) << status.error_message();
  EXPECT_EQ(EchoOnce(channel, "and on"), "and on");
}

TEST(EdgeTest, CompressedMessagesAreRefused) {
  EchoRouter router;
  const auto gateway = Serve(router.address());
  grpc::ClientContext context;
  Patient(context);
  context.set_compression_algorithm(GRPC_COMPRESS_GZIP);
  RawCall call(Dial(gateway->address()), context);
  call.Write(std::string(1000, 'x'));
  EXPECT_EQ(call.Finish().error_code(), grpc::UNIMPLEMENTED);
}

TEST(EdgeTest, DeadlinesReachTheRouterAndEndTheCall) {
  EchoRouter router;
  const auto gateway = Serve(router.address());
  grpc::ClientContext context;
  const absl::Time deadline = absl::Now() + absl::Milliseconds(500);
  context.set_deadline(absl::ToChronoTime(deadline));
  context.AddMetadata("x-silent", "1");
  RawCall call(Dial(gateway->address()), context);
  call.Write("m");
  EXPECT_EQ(call.Finish().error_code(), grpc::DEADLINE_EXCEEDED);
  EXPECT_TRUE(router.WaitForCancelled(1));
  EXPECT_LT(router.deadline(), deadline + absl::Seconds(30)) << "it was told";
}

TEST(EdgeTest, WhoGivesUpWhileThePromptWaitsEndsTheCallOfTheRouter) {
  FakeInference router({.chat = [](const v1::ChatRequest&) {
    return Script{.steps = {{.wait = absl::InfiniteDuration(), .event = {}}}};
  }});
  const auto gateway = Serve(router.address());
  const auto stub = v1::Inference::NewStub(Dial(gateway->address()));
  grpc::ClientContext context;
  v1::ChatRequest request;
  request.mutable_conversation()->add_messages()->set_content("hi");
  const auto reader = stub->Chat(&context, request);
  Await([&] { return router.open() > 0; }, "a call at the router");
  context.TryCancel();
  EXPECT_TRUE(router.WaitForCancelled(1));
  EXPECT_EQ(reader->Finish().error_code(), grpc::CANCELLED);
}

TEST(EdgeTest, ARouterThatIsAwayIsUnavailable) {
  const auto gateway = Serve("127.0.0.1:1");
  const auto stub = v1::Inference::NewStub(Dial(gateway->address()));
  grpc::ClientContext context;
  Patient(context);
  v1::ListModelsResponse models;
  EXPECT_EQ(stub->ListModels(&context, {}, &models).error_code(), grpc::UNAVAILABLE);
}

// 128 MiB for a client that takes nothing.
TEST(EdgeTest, WhoReadsNothingStopsTheRouterAndNobodyElse) {
  EchoRouter router;
  const auto gateway = Serve(router.address());
  const auto channel = Dial(gateway->address());
  grpc::ClientContext context;
  context.AddMetadata("x-flood", "2000");
  RawCall call(channel, context);
  call.Write(std::string(64 << 10, 'x'));
  Await([&] { return router.written() > 0; }, "what the router writes");
  for (int i = 0; i < 50; ++i) ASSERT_EQ(EchoOnce(channel, "x"), "x");
  EXPECT_LT(router.written(), 1000 + 50);
  context.TryCancel();
  call.Finish();
  EXPECT_TRUE(router.WaitForCancelled(1));
}

TEST(EdgeTest, OnItsWayOutStreamsEndAndNewOnesGoElsewhere) {
  EchoRouter router;
  auto gateway = Serve(router.address());
  const auto channel = Dial(gateway->address());
  grpc::ClientContext context;
  Patient(context);
  RawCall call(channel, context);
  ASSERT_TRUE(call.Write("before"));
  ASSERT_EQ(call.Read(), "before");
  std::thread stop([&] { gateway->Stop(kGenerous); });
  // The client has been told once its next call fails to connect.
  const auto is_told = [&] {
    grpc::ClientContext other;
    Patient(other);
    RawCall next(channel, other);
    next.Write("x");
    next.WritesDone();  // one that still came in ends by itself
    next.Read();
    return next.Finish().error_code() == grpc::UNAVAILABLE;
  };
  Await(is_told, "a call that the gateway does not take");
  ASSERT_TRUE(call.Write("after"));
  EXPECT_EQ(call.Read(), "after");
  call.WritesDone();
  EXPECT_TRUE(call.Finish().ok());
  stop.join();
}

// --- JSON over HTTP/2, as curl asks

struct Curled {
  std::string body;
  std::string version;
  int status = 0;
};

Curled Curl(const std::string& arguments) {
  const std::string command =
      "curl -s -m " + std::to_string(Scaled(60)) + " -w '\\n%{http_version} %{http_code}' " + arguments;
  FILE* const pipe = popen(command.c_str(), "r");
  std::string output;
  std::array<char, 4096> piece;
  while (const size_t size = fread(piece.data(), 1, piece.size(), pipe)) output.append(piece.data(), size);
  pclose(pipe);
  Curled answer;
  const size_t line = output.rfind('\n');
  answer.body = output.substr(0, line);
  answer.version = output.substr(line + 1, output.find(' ', line) - line - 1);
  answer.status = std::atoi(output.substr(output.rfind(' ')).c_str());
  return answer;
}

constexpr const char* kCurledHi = R"('{"messages": [{"role": "user", "content": "hi"}]}')";
constexpr const char* kCurledHiStreamed =
    R"('{"messages": [{"role": "user", "content": "hi"}], "stream": true}')";

TEST(EdgeTest, JsonOverHttp2IsWhatItIsOverHttp1) {
  FakeInference router;
  const auto gateway = Serve(router.address());
  const std::string base = "http://" + gateway->address();
  for (const std::string wish : {"--http1.1", "--http2-prior-knowledge"}) {
    const std::string version = wish == "--http1.1" ? "1.1" : "2";
    const Curled whole = Curl(wish + " -d " + kCurledHi + " " + base + "/v1/chat/completions");
    EXPECT_EQ(whole.status, 200);
    EXPECT_EQ(whole.version, version);
    EXPECT_THAT(whole.body, HasSubstr("you said: hi"));
    const Curled stream = Curl(wish + " -d " + kCurledHiStreamed + " " + base + "/v1/chat/completions?q");
    EXPECT_EQ(stream.status, 200);
    EXPECT_THAT(stream.body, HasSubstr("you said: hi"));
    EXPECT_THAT(stream.body, HasSubstr("data: [DONE]\n\n"));
    EXPECT_EQ(Curl(wish + " " + base + "/nothing").status, 404);
    EXPECT_EQ(Curl(wish + " -I " + base + "/health").status, 200);
    EXPECT_EQ(Curl(wish + " -X PUT " + base + "/v1/models").status, 405);
  }
}

TEST(EdgeTest, BodiesAndAllThatIsHeldHaveAnEnd) {
  FakeInference router;
  const auto gateway =
      Serve(router.address(), {.http = {.max_body_bytes = 100000, .max_held_bytes = 400000}});
  const std::string file = testing::TempDir() + "/edge_body";
  for (const std::string wish : {"--http1.1", "--http2-prior-knowledge"}) {
    for (const auto& [size, status] :
         {std::pair{200000, 413}, std::pair{60000, 503}, std::pair{40000, 400}}) {
      std::ofstream(file) << std::string(size, ' ');
      const Curled answer = Curl(wish + " -H 'Expect:' --data-binary @" + file + " http://" +
                                 gateway->address() + "/v1/chat/completions");
      // A curl of 2023 that is told to stop sending drops the answer that came before.
      const bool cut = wish != "--http1.1" && status != 400 && answer.status == 0;
      EXPECT_TRUE(cut || answer.status == status) << size << wish << answer.status << answer.body;
    }
  }
}

TEST(EdgeTest, UnderTlsBothAreOnOnePort) {
  rpc::Authority authority("authority");
  const rpc::PairFiles pair = authority.Issue("server");
  FakeInference router;
  const auto gateway = Serve(router.address(), {.security = {.cert = pair.cert, .key = pair.key}});
  const auto stub = v1::Inference::NewStub(Dial(gateway->address(), authority.ca()));
  grpc::ClientContext context;
  Patient(context);
  v1::ListModelsResponse models;
  const grpc::Status status = stub->ListModels(&context, {}, &models);
  EXPECT_TRUE(status.ok()) << status.error_message();
  for (const std::string wish : {"--http1.1", "--http2"}) {
    const Curled answer = Curl(wish + " --cacert " + authority.ca() + " -d " + kCurledHiStreamed +
                               " https://" + gateway->address() + "/v1/chat/completions");
    EXPECT_EQ(answer.version, wish == "--http2" ? "2" : "1.1");
    EXPECT_THAT(answer.body, HasSubstr("data: [DONE]\n\n"));
  }
}

}  // namespace
}  // namespace baton::gateway
