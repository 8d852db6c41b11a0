#include "tests/integration/gateway/echo_router.h"

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/match.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/base/check.h"
#include "tests/patience.h"

namespace baton::gateway {
namespace {

struct Seen {
  absl::Mutex mutex;
  int written ABSL_GUARDED_BY(mutex) = 0;
  int cancelled ABSL_GUARDED_BY(mutex) = 0;
  absl::Time deadline ABSL_GUARDED_BY(mutex);
};

class Echo final : public grpc::ServerGenericBidiReactor {
 public:
  Echo(grpc::GenericCallbackServerContext* context, Seen& seen) : context_(context), seen_(seen) {
    for (const auto& [key, value] : context->client_metadata()) {
      const std::string name(key.data(), key.size()), text(value.data(), value.size());
      if (!name.starts_with("x-")) continue;
      if (Asked("x-ask")) context->AddInitialMetadata(name, text);
      context->AddTrailingMetadata(name, text);
    }
    {
      absl::MutexLock lock(&seen_.mutex);
      seen_.deadline = absl::FromChrono(context->deadline());
    }
    flood_ = std::atoi(Asked("x-flood").value_or("0").c_str());
    if (Asked("x-ask")) StartSendInitialMetadata();
    StartRead(&message_);
  }

  void OnReadDone(bool ok) override {
    if (Asked("x-silent")) return;
    if (!ok) return End();
    Write();
  }
  void OnWriteDone(bool ok) override {
    if (!ok) return End();
    if (--flood_ > 0) return Write();
    StartRead(&message_);
  }
  void OnCancel() override {
    {
      absl::MutexLock lock(&seen_.mutex);
      ++seen_.cancelled;
    }
    if (Asked("x-silent")) Finish(grpc::Status::CANCELLED);
  }
  void OnDone() override { delete this; }

 private:
  std::optional<std::string> Asked(const std::string& name) const {
    const auto found = context_->client_metadata().find(name);
    if (found == context_->client_metadata().end()) return std::nullopt;
    return std::string(found->second.data(), found->second.size());
  }
  void Write() {
    {
      absl::MutexLock lock(&seen_.mutex);
      ++seen_.written;
    }
    StartWrite(&message_);
  }
  void End() {
    const int code = std::atoi(Asked("x-code").value_or("0").c_str());
    if (code == 0) return Finish(grpc::Status::OK);
    Finish(grpc::Status(static_cast<grpc::StatusCode>(code), "as asked: 100% \xC3\xA4\n",
                        Asked("x-code-details-bin").value_or("")));
  }

  grpc::GenericCallbackServerContext* const context_;
  Seen& seen_;
  grpc::ByteBuffer message_;
  int flood_ = 0;
};

}  // namespace

class EchoRouter::Service final : public grpc::CallbackGenericService {
 public:
  Service() {
    grpc::ServerBuilder builder;
    builder.SetMaxReceiveMessageSize(64 << 20);
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterCallbackGenericService(this);
    server_ = builder.BuildAndStart();
    BATON_CHECK(server_ != nullptr);
  }
  ~Service() override { server_->Shutdown(std::chrono::system_clock::now()); }

  grpc::ServerGenericBidiReactor* CreateReactor(grpc::GenericCallbackServerContext* context) override {
    // The gateway's own question, which is no client's call.
    if (context->method() == "/grpc.health.v1.Health/Watch")
      return CallbackGenericService::CreateReactor(context);
    return new Echo(context, seen_);
  }

  Seen seen_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

EchoRouter::EchoRouter() : service_(std::make_unique<Service>()) {}
EchoRouter::~EchoRouter() = default;

std::string EchoRouter::address() const { return "127.0.0.1:" + std::to_string(service_->port_); }

int EchoRouter::written() const {
  absl::MutexLock lock(&service_->seen_.mutex);
  return service_->seen_.written;
}

absl::Time EchoRouter::deadline() const {
  absl::MutexLock lock(&service_->seen_.mutex);
  return service_->seen_.deadline;
}

bool EchoRouter::WaitForCancelled(int count) const {
  Seen& seen = service_->seen_;
  absl::MutexLock lock(&seen.mutex);
  const auto reached = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(seen.mutex) { return seen.cancelled >= count; };
  return seen.mutex.AwaitWithTimeout(absl::Condition(&reached), Scaled(absl::Seconds(60)));
}

}  // namespace baton::gateway
