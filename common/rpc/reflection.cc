#include "common/rpc/reflection.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor.pb.h>
#include <google/protobuf/text_format.h>
#include <grpcpp/impl/codegen/proto_utils.h>
#include <grpcpp/impl/codegen/rpc_service_method.h>
#include <grpcpp/impl/codegen/server_callback_handlers.h>
#include <grpcpp/impl/codegen/service_type.h>
#include <grpcpp/impl/server_builder_option.h>
#include <grpcpp/impl/server_builder_plugin.h>
#include <grpcpp/impl/server_initializer.h>
#include <grpcpp/server_builder.h>

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/synchronization/mutex.h"
#include "common/base/check.h"
#include "grpc/health/v1/health.pb.h"
#include "grpc/reflection/v1/reflection.pb.h"

namespace baton::rpc {
namespace {

namespace pb = google::protobuf;
namespace wire = grpc::reflection::v1;
using wire::ServerReflectionRequest;
using wire::ServerReflectionResponse;

// Full names are far shorter.
constexpr size_t kMaxRequestBytes = 4096;

// v1's file under v1alpha's name.
pb::FileDescriptorProto OlderVersion() {
  pb::FileDescriptorProto file;
  ServerReflectionRequest::descriptor()->file()->CopyTo(&file);
  file.clear_options();
  std::string text;
  BATON_CHECK(pb::TextFormat::PrintToString(file, &text));
  text = absl::StrReplaceAll(text, {{"grpc.reflection.v1", "grpc.reflection.v1alpha"},
                                    {"grpc/reflection/v1/", "grpc/reflection/v1alpha/"}});
  BATON_CHECK(pb::TextFormat::ParseFromString(text, &file));
  return file;
}

// `file` and all that it imports, each once.
void AddFiles(const pb::FileDescriptor& file, std::set<const pb::FileDescriptor*>& seen,
              wire::FileDescriptorResponse& out) {
  if (!seen.insert(&file).second) return;
  pb::FileDescriptorProto proto;
  file.CopyTo(&proto);
  out.add_file_descriptor_proto(proto.SerializeAsString());
  for (int i = 0; i < file.dependency_count(); ++i) AddFiles(*file.dependency(i), seen, out);
}

// The source of the answers: all descriptors of this process, and the names of one server's services.
class Catalogue {
 public:
  Catalogue() {
    // Named so that the linker keeps the file, which nothing else refers to.
    BATON_CHECK(grpc::health::v1::HealthCheckRequest::descriptor() != nullptr);
    BATON_CHECK(pool_.BuildFile(OlderVersion()) != nullptr);
  }

  std::vector<std::string>& services() { return services_; }

  void Answer(const ServerReflectionRequest& request, ServerReflectionResponse& response) const {
    response.Clear();
    response.set_valid_host(request.host());
    *response.mutable_original_request() = request;
    switch (request.message_request_case()) {
      case ServerReflectionRequest::kFileByFilename:
        return AnswerFile(pool_.FindFileByName(request.file_by_filename()), response);
      case ServerReflectionRequest::kFileContainingSymbol:
        return AnswerFile(pool_.FindFileContainingSymbol(request.file_containing_symbol()), response);
      case ServerReflectionRequest::kFileContainingExtension: {
        const auto& [type, number] = std::pair(request.file_containing_extension().containing_type(),
                                               request.file_containing_extension().extension_number());
        const pb::Descriptor* extended = pool_.FindMessageTypeByName(type);
        const pb::FieldDescriptor* extension =
            extended == nullptr ? nullptr : pool_.FindExtensionByNumber(extended, number);
        return AnswerFile(extension == nullptr ? nullptr : extension->file(), response);
      }
      case ServerReflectionRequest::kAllExtensionNumbersOfType: {
        const std::string& name = request.all_extension_numbers_of_type();
        const pb::Descriptor* type = pool_.FindMessageTypeByName(name);
        if (type == nullptr) return AnswerFile(nullptr, response);
        std::vector<const pb::FieldDescriptor*> extensions;
        pool_.FindAllExtensions(type, &extensions);
        wire::ExtensionNumberResponse& numbers = *response.mutable_all_extension_numbers_response();
        numbers.set_base_type_name(name);
        for (const pb::FieldDescriptor* extension : extensions) {
          numbers.add_extension_number(extension->number());
        }
        return;
      }
      case ServerReflectionRequest::kListServices:
        for (const std::string& name : services_) {
          response.mutable_list_services_response()->add_service()->set_name(name);
        }
        return;
      case ServerReflectionRequest::MESSAGE_REQUEST_NOT_SET:
        break;
    }
    Refuse(grpc::StatusCode::INVALID_ARGUMENT, "the request has no question that this server knows",
           response);
  }

 private:
  static void AnswerFile(const pb::FileDescriptor* file, ServerReflectionResponse& response) {
    if (file == nullptr)
      return Refuse(grpc::StatusCode::NOT_FOUND, "there is no symbol or file of that name", response);
    std::set<const pb::FileDescriptor*> seen;
    AddFiles(*file, seen, *response.mutable_file_descriptor_response());
  }

  static void Refuse(grpc::StatusCode code, const char* message, ServerReflectionResponse& response) {
    response.mutable_error_response()->set_error_code(code);
    response.mutable_error_response()->set_error_message(message);
  }

  // The compiled-in descriptors, and v1alpha beside them.
  pb::DescriptorPool pool_{pb::DescriptorPool::generated_pool()};
  std::vector<std::string> services_;
};

// One call: an answer is written before the next request is read, so a client that takes no answers is read
// from no more. The library calls one callback at a time, from any of its threads.
class ReflectionStream final
    : public grpc::ServerBidiReactor<ServerReflectionRequest, ServerReflectionResponse> {
 public:
  explicit ReflectionStream(const Catalogue& catalogue) : catalogue_(catalogue) { StartRead(&request_); }

  void OnReadDone(bool ok) override {
    if (!ok) return Finish(grpc::Status::OK);
    const absl::MutexLock lock(&mutex_);
    if (request_.ByteSizeLong() > kMaxRequestBytes) {
      return Finish({grpc::StatusCode::INVALID_ARGUMENT,
                     absl::StrCat("a reflection request takes at most ", kMaxRequestBytes, " bytes")});
    }
    catalogue_.Answer(request_, response_);
    StartWrite(&response_);
  }
  void OnWriteDone(bool ok) override {
    if (!ok) return Finish(grpc::Status::CANCELLED);
    StartRead(&request_);
  }
  void OnDone() override {
    // The messages were last written by a thread that may be another.
    { const absl::MutexLock lock(&mutex_); }
    delete this;
  }

 private:
  const Catalogue& catalogue_;
  absl::Mutex mutex_;
  ServerReflectionRequest request_;
  ServerReflectionResponse response_;
};

// One version's service, as generated code would register it: the versions differ in the method's name alone.
class ReflectionService final : public grpc::Service {
 public:
  ReflectionService(const char* method, const Catalogue& catalogue) {
    AddMethod(
        new grpc::internal::RpcServiceMethod(method, grpc::internal::RpcMethod::BIDI_STREAMING, nullptr));
    MarkMethodCallback(
        0, new grpc::internal::CallbackBidiHandler<ServerReflectionRequest, ServerReflectionResponse>(
               [&catalogue](grpc::CallbackServerContext*) { return new ReflectionStream(catalogue); }));
  }
};

// Asks the server, while it is being built, for the names of its services.
class Listing final : public grpc::ServerBuilderPlugin {
 public:
  explicit Listing(std::vector<std::string>& names) : names_(names) {}
  std::string name() override { return "reflection_names"; }
  void InitServer(grpc::ServerInitializer* server) override {
    names_ = *server->GetServiceList();
    // The library adds it later; of its methods, List is there already (health_list.h).
    if (std::ranges::find(names_, kHealthService) == names_.end()) names_.push_back(kHealthService);
  }
  void Finish(grpc::ServerInitializer*) override {}
  void ChangeArguments(const std::string&, void*) override {}

 private:
  std::vector<std::string>& names_;
};

class AddListing final : public grpc::ServerBuilderOption {
 public:
  explicit AddListing(std::vector<std::string>& names) : names_(names) {}
  void UpdateArguments(grpc::ChannelArguments*) override {}
  void UpdatePlugins(std::vector<std::unique_ptr<grpc::ServerBuilderPlugin>>* plugins) override {
    plugins->push_back(std::make_unique<Listing>(names_));
  }

 private:
  std::vector<std::string>& names_;
};

}  // namespace

class Reflection::Impl {
 public:
  Catalogue catalogue;
  ReflectionService current{"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", catalogue};
  ReflectionService older{"/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", catalogue};
};

Reflection::Reflection() : impl_(std::make_unique<Impl>()) {}
Reflection::~Reflection() = default;

void Reflection::AddTo(grpc::ServerBuilder& builder) {
  builder.RegisterService(&impl_->current);
  builder.RegisterService(&impl_->older);
  builder.SetOption(std::make_unique<AddListing>(impl_->catalogue.services()));
}

const std::vector<std::string>& Reflection::services() const { return impl_->catalogue.services(); }

}  // namespace baton::rpc
