// Reflection and health as a client finds them that has no proto files: it asks which services there are,
// fetches their descriptions, and calls by these alone. Every server offers this, whatever else it serves.
#include "common/rpc/reflection.h"

#include <gmock/gmock.h>
#include <google/protobuf/descriptor.pb.h>
#include <google/protobuf/dynamic_message.h>
#include <grpcpp/generic/generic_stub.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "baton/fleet/v1/worker.grpc.pb.h"
#include "baton/v1/inference.grpc.pb.h"
#include "common/rpc/channel.h"
#include "common/rpc/server.h"
#include "grpc/reflection/v1/reflection.pb.h"
#include "tests/patience.h"

namespace baton::rpc {
namespace {

namespace pb = google::protobuf;
using grpc::reflection::v1::ServerReflectionRequest;
using grpc::reflection::v1::ServerReflectionResponse;
using testing::Contains;
using testing::UnorderedElementsAre;

grpc::ByteBuffer Packed(const pb::Message& message) {
  const grpc::Slice slice(message.SerializeAsString());
  return {&slice, 1};
}

void Unpack(const grpc::ByteBuffer& bytes, pb::Message& message) {
  grpc::Slice whole;
  ASSERT_TRUE(bytes.DumpToSingleSlice(&whole).ok());
  ASSERT_TRUE(message.ParseFromArray(whole.begin(), static_cast<int>(whole.size())));
}

// A call by name, one step at a time.
class Call {
 public:
  Call(grpc::GenericStub& stub, const std::string& method) {
    context_.set_deadline(std::chrono::system_clock::now() + Scaled(std::chrono::seconds(30)));
    call_ = stub.PrepareCall(&context_, method, &queue_);
    call_->StartCall(this);
    Next();
  }

  // False if the call has ended.
  bool Send(const pb::Message& message) {
    call_->Write(Packed(message), this);
    return Next();
  }
  bool Receive(pb::Message& message) {
    grpc::ByteBuffer bytes;
    call_->Read(&bytes, this);
    if (!Next()) return false;
    Unpack(bytes, message);
    return true;
  }
  grpc::Status Finish() {
    grpc::Status status;
    call_->Finish(&status, this);
    Next();
    return status;
  }
  void HalfClose() {
    call_->WritesDone(this);
    Next();
  }

 private:
  bool Next() {
    void* tag = nullptr;
    bool ok = false;
    return queue_.Next(&tag, &ok) && ok;
  }

  grpc::CompletionQueue queue_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> call_;
};

// A client like grpcurl, by one version of reflection.
class Explorer {
 public:
  Explorer(const std::string& address, const std::string& version)
      : stub_(MakeChannel(address)),
        call_(stub_, "/grpc.reflection." + version + ".ServerReflection/ServerReflectionInfo") {}

  ServerReflectionResponse Ask(const ServerReflectionRequest& request) {
    ServerReflectionResponse response;
    EXPECT_TRUE(call_.Send(request) && call_.Receive(response)) << request.ShortDebugString();
    EXPECT_EQ(response.original_request().SerializeAsString(), request.SerializeAsString());
    return response;
  }

  std::vector<std::string> Services() {
    ServerReflectionRequest request;
    request.set_list_services("*");
    std::vector<std::string> names;
    const ServerReflectionResponse response = Ask(request);
    for (const auto& service : response.list_services_response().service()) names.push_back(service.name());
    return names;
  }

  // From what the server says alone; null if that does not describe it.
  const pb::ServiceDescriptor* Describe(const std::string& service) {
    ServerReflectionRequest request;
    request.set_file_containing_symbol(service);
    const ServerReflectionResponse response = Ask(request);
    for (const std::string& file : response.file_descriptor_response().file_descriptor_proto()) {
      pb::FileDescriptorProto proto;
      EXPECT_TRUE(proto.ParseFromString(file));
      pb::FileDescriptorProto known;
      if (!database_.FindFileByName(proto.name(), &known)) {
        EXPECT_TRUE(database_.Add(proto));
      }
    }
    return pool_.FindServiceByName(service);
  }

  // grpc.health.v1.Health/Check by its description: the name of the status, or the error.
  std::string Check(const std::string& service) {
    const pb::ServiceDescriptor* health = Describe(kHealthService);
    if (health == nullptr) return "health is not described";
    const pb::MethodDescriptor* check = health->FindMethodByName("Check");
    pb::DynamicMessageFactory factory(&pool_);
    const std::unique_ptr<pb::Message> request(factory.GetPrototype(check->input_type())->New());
    request->GetReflection()->SetString(request.get(), check->input_type()->FindFieldByName("service"),
                                        service);
    const std::unique_ptr<pb::Message> response(factory.GetPrototype(check->output_type())->New());
    Call call(stub_, "/" + health->full_name() + "/" + check->name());
    call.Send(*request);
    call.HalfClose();
    if (!call.Receive(*response)) return "error " + std::to_string(call.Finish().error_code());
    return response->GetReflection()
        ->GetEnum(*response, check->output_type()->FindFieldByName("status"))
        ->name();
  }

  Call& call() { return call_; }

 private:
  grpc::GenericStub stub_;
  Call call_;
  pb::SimpleDescriptorDatabase database_;
  pb::DescriptorPool pool_{&database_};
};

class ReflectionTest : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    auto started = Server::Start({.health_listen = "127.0.0.1:0"}, {&inference_, &worker_});
    ASSERT_TRUE(started.ok()) << started.status();
    server_ = *std::move(started);
  }

  v1::Inference::CallbackService inference_;
  fleet::v1::Worker::CallbackService worker_;
  std::unique_ptr<Server> server_;
};

INSTANTIATE_TEST_SUITE_P(Versions, ReflectionTest, testing::Values("v1", "v1alpha"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(ReflectionTest, EveryServiceIsListedAndDescribedToItsLastMessage) {
  Explorer explorer(server_->address(), GetParam());
  const std::vector<std::string> services = explorer.Services();
  EXPECT_THAT(services, UnorderedElementsAre("baton.v1.Inference", "baton.fleet.v1.Worker",
                                             "grpc.health.v1.Health", "grpc.reflection.v1.ServerReflection",
                                             "grpc.reflection.v1alpha.ServerReflection"));
  for (const std::string& service : services) {
    const pb::ServiceDescriptor* described = explorer.Describe(service);
    ASSERT_NE(described, nullptr) << service;
    EXPECT_GT(described->method_count(), 0) << service;
  }
  EXPECT_NE(explorer.Describe("baton.v1.Inference")->FindMethodByName("Chat"), nullptr);
}

TEST_P(ReflectionTest, HealthAnswersForTheServerAndForEachService) {
  for (const std::string& address : {server_->address(), server_->health_address()}) {
    SCOPED_TRACE(address);
    Explorer explorer(address, GetParam());
    std::vector<std::string> names = Explorer(server_->address(), GetParam()).Services();
    ASSERT_EQ(names.size(), 5u);
    names.insert(names.end(), {"", "live"});
    for (const std::string& name : names) EXPECT_EQ(explorer.Check(name), "SERVING") << name;
    EXPECT_EQ(explorer.Check("baton.fleet.v1.Decode"), "error 5") << "NOT_FOUND: it is not served here";
    server_->SetServing(false);
    for (const char* name : {"", "baton.v1.Inference", "baton.fleet.v1.Worker"}) {
      EXPECT_EQ(explorer.Check(name), "NOT_SERVING") << name;
    }
    for (const char* name : {"live", "grpc.health.v1.Health", "grpc.reflection.v1.ServerReflection"}) {
      EXPECT_EQ(explorer.Check(name), "SERVING") << name;
    }
    server_->SetServing(true);
    EXPECT_EQ(explorer.Check("baton.v1.Inference"), "SERVING");
    server_->SetLive(false);
    EXPECT_EQ(explorer.Check("live"), "NOT_SERVING");
    EXPECT_EQ(explorer.Check("baton.v1.Inference"), "SERVING");
    server_->SetLive(true);
    EXPECT_EQ(explorer.Check("live"), "SERVING");
  }
}

TEST_P(ReflectionTest, TheDoorForHealthOffersNothingElse) {
  Explorer explorer(server_->health_address(), GetParam());
  EXPECT_THAT(explorer.Services(),
              UnorderedElementsAre("grpc.health.v1.Health", "grpc.reflection.v1.ServerReflection",
                                   "grpc.reflection.v1alpha.ServerReflection"));
}

TEST_P(ReflectionTest, AnswersEachQuestionOfAStreamByItself) {
  Explorer explorer(server_->address(), GetParam());
  const auto files = [&](const char* symbol) {
    ServerReflectionRequest request;
    request.set_file_containing_symbol(symbol);
    std::vector<std::string> names;
    const ServerReflectionResponse response = explorer.Ask(request);
    for (const auto& file : response.file_descriptor_response().file_descriptor_proto()) {
      pb::FileDescriptorProto proto;
      EXPECT_TRUE(proto.ParseFromString(file));
      names.push_back(proto.name());
    }
    return names;
  };
  const auto inference = files("baton.v1.Inference.Generate");
  EXPECT_THAT(inference, Contains("baton/v1/inference.proto"));
  EXPECT_THAT(inference, Contains("google/protobuf/struct.proto"));
  EXPECT_THAT(files("google.rpc.ErrorInfo"), Contains("google/rpc/error_details.proto"))
      << "details of errors";
  EXPECT_THAT(files("grpc.health.v1.HealthCheckResponse.SERVING"),
              UnorderedElementsAre("grpc/health/v1/health.proto"));
  const auto refused = [&](auto set) {
    ServerReflectionRequest request;
    set(request);
    const ServerReflectionResponse response = explorer.Ask(request);
    EXPECT_TRUE(response.has_error_response()) << response.ShortDebugString();
    return response.error_response().error_code();
  };
  EXPECT_EQ(refused([](auto& r) { r.set_file_containing_symbol("nobody.Knows"); }), grpc::NOT_FOUND);
  EXPECT_EQ(refused([](auto& r) { r.set_file_containing_symbol(""); }), grpc::NOT_FOUND);
  EXPECT_EQ(refused([](auto& r) { r.set_file_by_filename("../baton/v1/inference.proto"); }), grpc::NOT_FOUND);
  EXPECT_EQ(refused([](auto& r) { r.set_all_extension_numbers_of_type("baton.v1.Nothing"); }),
            grpc::NOT_FOUND);
  EXPECT_EQ(refused([](auto& r) {
              r.mutable_file_containing_extension()->set_containing_type("baton.v1.TokenIds");
              r.mutable_file_containing_extension()->set_extension_number(1);
            }),
            grpc::NOT_FOUND);
  EXPECT_EQ(refused([](auto&) {}), grpc::INVALID_ARGUMENT);
  ServerReflectionRequest request;
  request.set_all_extension_numbers_of_type("google.protobuf.FileOptions");
  EXPECT_EQ(explorer.Ask(request).all_extension_numbers_response().base_type_name(),
            "google.protobuf.FileOptions");
  request.set_file_by_filename("baton/v1/generation.proto");
  EXPECT_GT(explorer.Ask(request).file_descriptor_response().file_descriptor_proto_size(), 0);
  EXPECT_EQ(files("baton.v1.Inference.Generate"), inference) << "and nothing of the answers between";
  explorer.call().HalfClose();
  EXPECT_TRUE(explorer.call().Finish().ok());
}

TEST_P(ReflectionTest, EndsAStreamThatAsksTooMuchAtOnce) {
  Explorer explorer(server_->address(), GetParam());
  ServerReflectionRequest request;
  request.set_file_containing_symbol(std::string(5000, 'x'));
  ServerReflectionResponse response;
  EXPECT_TRUE(explorer.call().Send(request));
  EXPECT_FALSE(explorer.call().Receive(response));
  EXPECT_EQ(explorer.call().Finish().error_code(), grpc::INVALID_ARGUMENT);
}

TEST_P(ReflectionTest, OpenStreamsHoldNoThreads) {
  const auto threads = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/task"), {});
  };
  std::vector<std::unique_ptr<Explorer>> open;
  const auto one_more = [&] {
    open.push_back(std::make_unique<Explorer>(server_->address(), GetParam()));
    EXPECT_EQ(open.back()->Services().size(), 5u);
  };
  for (int i = 0; i < 4; ++i) one_more();  // what both libraries start for their first connections
  const auto few = threads();
  for (int i = 0; i < 60; ++i) one_more();
  EXPECT_LT(threads() - few, 20);
}

// The generators for other languages need these options to put the code into a package.
TEST(ProtoOptionsTest, EveryFileNamesItsGoAndJavaPackage) {
  const std::filesystem::path root = std::filesystem::path(BATON_SOURCE_DIR) / "proto";
  int files = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(root)) {
    if (entry.path().extension() != ".proto") continue;
    ++files;
    std::ifstream in(entry.path());
    const std::string text((std::istreambuf_iterator<char>(in)), {});
    EXPECT_THAT(text,
                testing::ContainsRegex("\noption go_package = \"[a-z0-9_.]+/[a-z0-9_./]+(;[a-z0-9]+)?\";\n"))
        << entry.path();
    EXPECT_THAT(text, testing::ContainsRegex("\noption java_package = \"[a-z0-9.]+\";\n")) << entry.path();
    EXPECT_THAT(text, testing::HasSubstr("\noption java_multiple_files = true;\n")) << entry.path();
  }
  EXPECT_GE(files, 10);
}

}  // namespace
}  // namespace baton::rpc
