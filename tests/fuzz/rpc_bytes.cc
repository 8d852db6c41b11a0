#include "tests/fuzz/rpc_bytes.h"

#include <fmt/format.h>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/dynamic_message.h>
#include <grpcpp/completion_queue.h>
#include <grpcpp/generic/generic_stub.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "baton/fleet/v1/blocks.pb.h"
#include "baton/fleet/v1/decode.pb.h"
#include "baton/fleet/v1/prefill.pb.h"
#include "baton/fleet/v1/worker.grpc.pb.h"
#include "baton/v1/inference.pb.h"
#include "common/base/check.h"
#include "common/rpc/channel.h"
#include "common/rpc/status.h"
#include "decode_service/server.h"
#include "prefill_service/server.h"
#include "router/router.h"
#include "tests/fuzz/log_nothing.h"
#include "tests/fuzz/source_folder.h"
#include "tests/patience.h"

namespace baton::fuzz {
namespace {

constexpr char kModel[] = "models/baton-tiny";
constexpr auto kGenerous = Scaled(std::chrono::seconds(120));

// A caller that may be killed by its deadline does not wait for it.
constexpr auto kDeadline = std::chrono::milliseconds(300);

enum class At { kRouter, kPrefill, kDecode, kSpare };

struct Method {
  std::string path;
  const google::protobuf::Descriptor* request;
  At at;
};

struct Servers {
  Servers() {
    LogNothing();
    worker::Options worker;
    worker.engine = {.model_folder = InSource(kModel), .threads = 1, .kv_bytes = 16 << 20};
    worker.process.log_level = "off";
    prefill = prefill_service::PrefillServer::Start({.worker = worker}).value();
    decode_service::ServerOptions decodes;
    decodes.worker = worker;
    decode = decode_service::DecodeServer::Start(decodes).value();
    spare = decode_service::DecodeServer::Start(decodes).value();
    router::RouterOptions options;
    options.models = {{.folder = InSource(kModel)}};
    options.prefill = {prefill->address()};
    options.decode = {decode->address()};
    router = router::Router::Start(options).value();
    for (const std::string& address :
         {router->address(), prefill->address(), decode->address(), spare->address()}) {
      channels.push_back(rpc::MakeChannel(address, {Scaled(absl::Seconds(60)), Scaled(absl::Seconds(60))}));
      stubs.push_back(std::make_unique<grpc::GenericStub>(channels.back()));
    }
    // Every method. Drain goes to a worker that is not needed.
    const auto add = [this](const google::protobuf::FileDescriptor* file, At at,
                            const std::string& only = "") {
      for (int i = 0; i < file->service_count(); ++i) {
        for (int m = 0; m < file->service(i)->method_count(); ++m) {
          const auto* method = file->service(i)->method(m);
          const bool drain = method->name() == "Drain";
          if (drain != (only == "Drain")) continue;
          methods.push_back(
              {fmt::format("/{}/{}", std::string(file->service(i)->full_name()), std::string(method->name())),
               method->input_type(), at});
        }
      }
    };
    add(v1::GenerateRequest::descriptor()->file(), At::kRouter);
    add(fleet::v1::DecodeRequest::descriptor()->file(), At::kDecode);
    add(fleet::v1::PrefillRequest::descriptor()->file(), At::kPrefill);
    add(fleet::v1::WatchRequest::descriptor()->file(), At::kDecode);
    add(fleet::v1::WatchRequest::descriptor()->file(), At::kPrefill);
    add(fleet::v1::DrainRequest::descriptor()->file(), At::kSpare, "Drain");
    add(fleet::v1::FetchRequest::descriptor()->file(), At::kDecode);
    add(fleet::v1::FetchRequest::descriptor()->file(), At::kPrefill);
  }

  std::unique_ptr<prefill_service::PrefillServer> prefill;
  std::unique_ptr<decode_service::DecodeServer> decode, spare;
  std::unique_ptr<router::Router> router;
  std::vector<std::shared_ptr<grpc::Channel>> channels;
  std::vector<std::unique_ptr<grpc::GenericStub>> stubs;
  std::vector<Method> methods;
  int calls = 0;
};

// Sends the bytes, reads `max` messages, and leaves.
absl::Status Call(grpc::GenericStub& stub, const std::string& path, std::span<const uint8_t> bytes, int max) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kDeadline);
  grpc::CompletionQueue queue;
  const auto stream = stub.PrepareCall(&context, path, &queue);
  const auto wait = [&queue] {
    void* tag = nullptr;
    bool ok = false;
    BATON_CHECK(queue.Next(&tag, &ok));
    return ok;
  };
  stream->StartCall(nullptr);
  if (wait()) {
    grpc::Slice slice(bytes.data(), bytes.size());
    stream->WriteLast(grpc::ByteBuffer(&slice, 1), grpc::WriteOptions(), nullptr);
    bool more = wait();
    for (int read = 0; more && read < max; ++read) {
      grpc::ByteBuffer message;
      stream->Read(&message, nullptr);
      more = wait();
    }
    if (more) context.TryCancel();
  }
  grpc::Status status;
  stream->Finish(&status, nullptr);
  wait();
  queue.Shutdown();
  void* tag = nullptr;
  bool ok = false;
  while (queue.Next(&tag, &ok)) {
  }
  return rpc::FromGrpc(status);
}

// Until the worker's own watch stream says that it holds nothing.
absl::Status AwaitNothingHeld(const std::shared_ptr<grpc::Channel>& channel) {
  const auto stub = fleet::v1::Worker::NewStub(channel);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kGenerous);
  const auto reader = stub->Watch(&context, fleet::v1::WatchRequest());
  fleet::v1::Load load;
  for (fleet::v1::WatchEvent event; reader->Read(&event);) {
    load = event.has_snapshot() ? event.snapshot().load() : event.delta().load();
    if (load.held_blocks() == 0 && load.running() == 0 && load.queued() == 0) {
      context.TryCancel();
      return absl::OkStatus();
    }
  }
  return absl::InternalError(
      fmt::format("still held: {} ({})", load.ShortDebugString(), reader->Finish().error_message()));
}

}  // namespace

absl::Status RunRpcBytes(std::span<const uint8_t> bytes) {
  if (bytes.size() < 2) return absl::OkStatus();
  static auto* servers = new Servers;  // as long as the process
  const Method& method = servers->methods[bytes[0] % servers->methods.size()];
  const int max = bytes[1] % 8;
  bytes = bytes.subspan(2);
  const absl::Status status = Call(*servers->stubs[static_cast<int>(method.at)], method.path, bytes, max);
  switch (status.code()) {
    case absl::StatusCode::kUnknown:
    case absl::StatusCode::kUnimplemented:
    case absl::StatusCode::kDataLoss:
    case absl::StatusCode::kInternal: {
      // gRPC's own words for a message that is none.
      google::protobuf::DynamicMessageFactory factory;
      const std::unique_ptr<google::protobuf::Message> message(factory.GetPrototype(method.request)->New());
      const bool checked =
          absl::IsDataLoss(status) && method.request == fleet::v1::PrefillRequest::descriptor();
      if (checked) break;  // a checksum of its own
      if (!absl::IsUnknown(status) && !message->ParseFromArray(bytes.data(), static_cast<int>(bytes.size())))
        break;
      return absl::InternalError(fmt::format("{}: {}", method.path, status.ToString()));
    }
    default:
      break;
  }
  if (++servers->calls % 16 != 0) return absl::OkStatus();
  const absl::Status prefill = AwaitNothingHeld(servers->channels[static_cast<int>(At::kPrefill)]);
  return prefill.ok() ? AwaitNothingHeld(servers->channels[static_cast<int>(At::kDecode)]) : prefill;
}

}  // namespace baton::fuzz
