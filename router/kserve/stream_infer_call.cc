#include "router/kserve/stream_infer_call.h"

#include <grpc/grpc.h>

#include <utility>

#include "common/base/status.h"
#include "common/rpc/status.h"
#include "common/rpc/trace_metadata.h"
#include "router/api/grpc_credentials.h"
#include "router/api/inflate.h"
#include "router/api/usage.h"
#include "router/api/wire.h"

namespace baton::router::kserve {

using grpc::ByteBuffer;

// One request of the stream, as its driver sees it.
class StreamInferCall::Turn final : public ClientStream {
 public:
  explicit Turn(std::shared_ptr<StreamInferCall> call) : call_(std::move(call)) {}

  // Once, before Start of the driver.
  void SetDriver(std::shared_ptr<RequestDriver> driver) {
    absl::MutexLock lock(&mutex_);
    driver_ = std::move(driver);
  }
  std::shared_ptr<RequestDriver> driver() {
    absl::MutexLock lock(&mutex_);
    return driver_;
  }
  // The driver has written its last: the two let go of each other.
  void Forget() {
    std::shared_ptr<RequestDriver> driver;  // goes after the lock
    absl::MutexLock lock(&mutex_);
    driver.swap(driver_);
  }

  // On the thread that prepares the request.
  absl::Status Read(const ByteBuffer& bytes, v1::GenerateRequest* request) {
    inference::ModelInferRequest infer;
    BATON_RETURN_IF_ERROR(ParseMessage(bytes, &infer));
    {
      absl::MutexLock lock(&mutex_);
      id_ = infer.id();
    }
    BATON_ASSIGN_OR_RETURN(InferRequest read, ReadInferRequest(infer, /*streams=*/true));
    answer_.emplace(std::move(read.reply));
    *request = std::move(read.request);
    return absl::OkStatus();
  }

 private:
  void Write(const v1::GenerateResponse& response, bool) override {
    auto message = answer_->Add(response);
    if (!message.has_value()) return driver()->OnWritten(true);
    inference::ModelStreamInferResponse out;
    *out.mutable_infer_response() = *std::move(message);
    call_->Send(self(), out);
  }
  void Finish(const absl::Status& status, const v1::GenerateResponse* last,
              const v1::RequestUsage*) override {
    if (!status.ok()) {
      std::string id;
      {
        absl::MutexLock lock(&mutex_);
        id = id_;
      }
      return call_->End(self(), FailureMessage(id, status), status);
    }
    answer_->Add(*last);  // why it ended: no text
    inference::ModelStreamInferResponse out;
    *out.mutable_infer_response() = answer_->Last();
    call_->End(self(), out, status);
  }
  void Abort(const absl::Status& status) override { call_->Break(status); }

  std::shared_ptr<Turn> self() { return std::static_pointer_cast<Turn>(weak_.lock()); }

  friend class StreamInferCall;
  std::weak_ptr<Turn> weak_;  // set where it is made
  const std::shared_ptr<StreamInferCall> call_;
  std::optional<InferAnswer> answer_;  // the driver's; none before the request was read
  absl::Mutex mutex_;
  std::shared_ptr<RequestDriver> driver_ ABSL_GUARDED_BY(mutex_);  // null before and after
  std::string id_ ABSL_GUARDED_BY(mutex_);
};

grpc::ServerBidiReactor<ByteBuffer, ByteBuffer>* StreamInferCall::Start(
    const CallContext& context, grpc::CallbackServerContext* server_context) {
  auto call = std::shared_ptr<StreamInferCall>(new StreamInferCall(context, server_context));
  call->self_ = call;
  call->StartRead(&call->incoming_);
  return call.get();
}

StreamInferCall::StreamInferCall(const CallContext& context, grpc::CallbackServerContext* server_context)
    : context_(context),
      fails_as_status_([&] {
        const auto found = server_context->client_metadata().find("triton_grpc_error");
        return found != server_context->client_metadata().end() && found->second == "true";
      }()),
      server_context_(server_context) {}

void StreamInferCall::OnReadDone(bool ok) {
  ByteBuffer bytes;
  {
    absl::MutexLock lock(&mutex_);
    reading_ = false;
    if (!ok) {
      no_more_ = true;
      return FinishIfOver();
    }
    bytes.Swap(&incoming_);
  }
  Begin(std::move(bytes));
}

void StreamInferCall::Begin(ByteBuffer bytes) {
  const auto turn = std::make_shared<Turn>(shared_from_this());
  turn->weak_ = turn;
  std::shared_ptr<RequestDriver> driver;
  Credentials credentials;
  {
    absl::MutexLock lock(&mutex_);
    if (no_more_) return;  // the call is over
    credentials = CredentialsOf(*server_context_);
    driver = RequestDriver::Create(context_, turn, DeadlineOf(*server_context_, *context_.clock),
                                   "ModelStreamInfer", rpc::TraceOf(*server_context_));
    turn->SetDriver(driver);
    turns_.insert(turn);
  }
  const size_t size = RequestBytes(bytes);
  driver->Start<v1::GenerateRequest>(
      credentials, size,
      [turn = turn.get(),
       held = std::make_shared<ByteBuffer>(std::move(bytes))](v1::GenerateRequest* request) {
        absl::Status status = turn->Read(*held, request);
        held->Clear();
        return status;
      });
  absl::MutexLock lock(&mutex_);
  ReadOn();
}

void StreamInferCall::ReadOn() {
  if (reading_ || no_more_ || finished_ || turns_.size() >= kMaxTurns) return;
  reading_ = true;
  StartRead(&incoming_);
}

void StreamInferCall::Push(Outgoing outgoing) {
  outbox_.push_back(std::move(outgoing));
  if (outbox_.size() == 1) StartWrite(&outbox_.front().bytes);
}

void StreamInferCall::Send(std::shared_ptr<Turn> turn, const inference::ModelStreamInferResponse& message) {
  ByteBuffer bytes = SerializeMessage(message);
  absl::MutexLock lock(&mutex_);
  Push({.bytes = std::move(bytes), .turn = std::move(turn)});
}

void StreamInferCall::End(std::shared_ptr<Turn> turn, const inference::ModelStreamInferResponse& message,
                          const absl::Status& status) {
  std::vector<std::shared_ptr<RequestDriver>> others;
  {
    absl::MutexLock lock(&mutex_);
    turns_.erase(turn);
    const bool silent = !status.ok() && (fails_as_status_ || !status_.ok());
    if (!silent) {
      Push({.bytes = SerializeMessage(message), .turn = turn, .last = true});
    } else {
      // It ends the stream, and what else runs ends with it.
      if (status_.ok()) {
        status_ = status;
        others = Drivers();
      }
      no_more_ = true;
    }
    ReadOn();
    FinishIfOver();
    if (!silent) return;
  }
  for (const auto& driver : others) driver->OnCancelled();
  turn->Forget();
}

void StreamInferCall::Break(const absl::Status& status) {
  absl::MutexLock lock(&mutex_);
  if (server_context_ == nullptr) return;
  grpc_call_cancel_with_status(server_context_->c_call(), static_cast<grpc_status_code>(status.code()),
                               std::string(status.message()).c_str(), nullptr);
}

std::vector<std::shared_ptr<RequestDriver>> StreamInferCall::Drivers() {
  std::vector<std::shared_ptr<RequestDriver>> drivers;
  for (const auto& turn : turns_) drivers.push_back(turn->driver());
  return drivers;
}

void StreamInferCall::OnWriteDone(bool ok) {
  Outgoing left;
  {
    absl::MutexLock lock(&mutex_);
    left = std::move(outbox_.front());
    outbox_.pop_front();
    if (!outbox_.empty()) StartWrite(&outbox_.front().bytes);
    FinishIfOver();
  }
  if (left.last) {
    left.turn->Forget();
  } else {
    left.turn->driver()->OnWritten(ok);
  }
}

void StreamInferCall::OnCancel() {
  std::vector<std::shared_ptr<RequestDriver>> drivers;
  {
    absl::MutexLock lock(&mutex_);
    no_more_ = true;
    drivers = Drivers();
    FinishIfOver();
  }
  for (const auto& driver : drivers) driver->OnCancelled();
}

void StreamInferCall::FinishIfOver() {
  if (finished_ || !no_more_ || !turns_.empty() || !outbox_.empty()) return;
  finished_ = true;
  Finish(server_context_ == nullptr ? rpc::ToGrpc(status_) : EndOf(status_, server_context_));
}

void StreamInferCall::OnDone() {
  {
    absl::MutexLock lock(&mutex_);
    server_context_ = nullptr;
  }
  const std::shared_ptr<StreamInferCall> self = std::move(self_);
}

}  // namespace baton::router::kserve
