#include "gateway/pass_through.h"

#include <fmt/format.h>
#include <grpcpp/client_context.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/client_callback.h>

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/escaping.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"

namespace baton::gateway {
namespace {

constexpr std::string_view kBinary = "-bin";
// As HTTP/2 counts a header list (RFC 9113, 6.5.2). A router takes 8 KiB of a call's metadata, some of which
// is gRPC's own; routers of older builds end all calls of the connection beyond that, which all clients
// share.
constexpr size_t kFieldBytes = 32, kMaxMetadataBytes = 7 << 10;

grpc::ByteBuffer Packed(const std::string& message) {
  const grpc::Slice slice(message);
  return grpc::ByteBuffer(&slice, 1);
}

std::string Unpacked(const grpc::ByteBuffer& buffer) {
  std::vector<grpc::Slice> slices;
  std::string message;
  message.reserve(buffer.Length());
  if (!buffer.Dump(&slices).ok()) return message;
  for (const grpc::Slice& slice : slices) {
    message.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  return message;
}

// As it stands on the wire: binary values in base64 without padding.
http::Headers OnWire(const std::multimap<grpc::string_ref, grpc::string_ref>& metadata) {
  http::Headers headers;
  for (const auto& [key, value] : metadata) {
    const std::string name(key.data(), key.size());
    std::string text(value.data(), value.size());
    // Both are made of the status.
    if (name == "grpc-status" || name == "grpc-message") continue;
    if (name.ends_with(kBinary)) {
      text = absl::Base64Escape(text);
      text.erase(text.find_last_not_of('=') + 1);
    }
    headers.emplace_back(name, std::move(text));
  }
  return headers;
}

void AddMetadata(const http::Headers& metadata, grpc::ClientContext* context) {
  for (const auto& [name, value] : metadata) {
    if (!name.ends_with(kBinary)) {
      context->AddMetadata(name, value);
      continue;
    }
    std::string bytes;
    if (absl::Base64Unescape(value, &bytes)) context->AddMetadata(name, bytes);
  }
}

// One call. It keeps itself alive until gRPC is done with it. Its hold on gRPC's call ends once a read has
// failed, or the client is gone and none is under way; nothing is asked of that call afterwards.
class Passing final : public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>,
                      public std::enable_shared_from_this<Passing> {
 public:
  Passing(std::shared_ptr<http::Call> call, std::shared_ptr<Router> router, Probe& probe,
          std::shared_ptr<void> alive)
      : alive_(std::move(alive)), call_(std::move(call)), router_(std::move(router)), probe_(probe) {
    probe_.Streams(1);
  }
  ~Passing() override {
    probe_.Streams(-1);
    probe_.Called(code_, absl::Now() - begun_at_);
  }

  void Start() {
    const auto self = shared_from_this();
    self_ = self;  // OnDone's, from StartCall on
    AddMetadata(call_->metadata(), &context_);
    if (call_->deadline() < absl::InfiniteFuture())
      context_.set_deadline(absl::ToChronoTime(call_->deadline()));
    router_->any.PrepareBidiStreamingCall(&context_, call_->method(), grpc::StubOptions(), this);
    AddHold();
    StartRead(&incoming_);
    StartCall();
    call_->Listen({.message = [self](std::string message) { self->Pass(message); },
                   .last = [self] { self->PassLast(); },
                   .cancelled = [self] { self->Cancel(); }});
  }

  // gRPC's threads.
  void OnReadInitialMetadataDone(bool ok) override {
    if (ok) call_->Begin(OnWire(context_.GetServerInitialMetadata()));
    std::optional<std::string> early;
    {
      absl::MutexLock lock(&mutex_);
      begun_ = true;
      early.swap(early_);
    }
    if (early.has_value()) Send(*std::move(early));
  }
  void OnReadDone(bool ok) override {
    std::string message;
    {
      absl::MutexLock lock(&mutex_);
      reading_ = false;
      if (!ok || cancelled_) return Release();
      message = Unpacked(incoming_);
      // gRPC's threads may tell of the first message before they tell of the metadata that came before it.
      if (!begun_) {
        early_ = std::move(message);
        return;
      }
    }
    Send(std::move(message));
  }
  void OnWriteDone(bool ok) override {
    // A call that has ended takes no more; its end comes.
    if (ok) call_->Took();
  }
  void OnDone(const grpc::Status& status) override {
    code_ = status.error_code();
    call_->Finish({.code = static_cast<int>(status.error_code()),
                   .message = status.error_message(),
                   .trailers = OnWire(context_.GetServerTrailingMetadata())});
    // Not here: the last reference would end the reactor inside its own reaction.
    call_->Post([self = std::exchange(self_, nullptr)] {});
  }

 private:
  void Send(std::string message) {
    call_->Send(std::move(message), [self = shared_from_this()] { self->ReadNext(); });
  }
  // The server's thread.
  void Pass(const std::string& message) {
    absl::MutexLock lock(&mutex_);
    if (released_) return;
    outgoing_ = Packed(message);
    StartWrite(&outgoing_);
  }
  void PassLast() {
    absl::MutexLock lock(&mutex_);
    if (!released_) StartWritesDone();
  }
  void ReadNext() {
    absl::MutexLock lock(&mutex_);
    if (released_) return;
    reading_ = true;
    incoming_.Clear();
    StartRead(&incoming_);
  }
  void Cancel() {
    absl::MutexLock lock(&mutex_);
    cancelled_ = true;
    context_.TryCancel();
    if (!reading_) Release();
  }

  void Release() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (!std::exchange(released_, true)) RemoveHold();
  }

  const std::shared_ptr<void> alive_;  // before, so destroyed after, all others
  const std::shared_ptr<http::Call> call_;
  const std::shared_ptr<Router> router_;
  Probe& probe_;
  const absl::Time begun_at_ = absl::Now();
  grpc::StatusCode code_ = grpc::StatusCode::CANCELLED;
  grpc::ClientContext context_;
  grpc::ByteBuffer incoming_, outgoing_;
  std::shared_ptr<Passing> self_;
  absl::Mutex mutex_;
  bool begun_ ABSL_GUARDED_BY(mutex_) = false;                // the metadata is passed on, if there is any
  std::optional<std::string> early_ ABSL_GUARDED_BY(mutex_);  // a message that waits for that
  bool reading_ ABSL_GUARDED_BY(mutex_) = true;
  bool released_ ABSL_GUARDED_BY(mutex_) = false;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace

void PassThrough::Start(std::shared_ptr<http::Call> call, std::shared_ptr<void> alive) {
  size_t bytes = 0;
  for (const auto& [name, value] : call->metadata()) bytes += name.size() + value.size() + kFieldBytes;
  if (bytes > kMaxMetadataBytes) {
    call->Finish(
        {.code = static_cast<int>(grpc::StatusCode::RESOURCE_EXHAUSTED),
         .message = fmt::format("metadata of {} bytes; at most {} are passed on", bytes, kMaxMetadataBytes),
         .trailers = {}});
    return;
  }
  std::shared_ptr<Router> router = routers_.Pick();
  if (router == nullptr) {
    call->Finish({.code = static_cast<int>(grpc::StatusCode::UNAVAILABLE),
                  .message = std::string(routers_.NoneKnown().message()),
                  .trailers = {}});
    return;
  }
  std::make_shared<Passing>(std::move(call), std::move(router), probe_, std::move(alive))->Start();
}

}  // namespace baton::gateway
