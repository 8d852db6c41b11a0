// ModerateCall: a client's call of Moderate as gRPC sees it: the reactor of a unary call. Its texts are
// judged side by side, each piece by piece where it is longer than a verdict may take. Keeps itself alive
// until gRPC is done with it and the last verdict has come.
#pragma once

#include <grpcpp/server_context.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <memory>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "router/api/request_driver.h"
#include "router/moderation/gate.h"

namespace baton::router {

inline constexpr int kMaxModeratedTexts = 32;
inline constexpr size_t kMaxModeratedBytes = 64 << 10;

// INVALID_ARGUMENT names the field.
absl::Status CheckModerate(const v1::ModerateRequest& request);

class ModerateCall final : public grpc::ServerUnaryReactor,
                           public LiveCall,
                           public std::enable_shared_from_this<ModerateCall> {
 public:
  // Handles `bytes`, a ModerateRequest of `caller`, or of a stranger, who is told why. `response` lives until
  // the call was finished.
  static grpc::ServerUnaryReactor* Start(const CallContext& context,
                                         grpc::CallbackServerContext* server_context,
                                         absl::StatusOr<Caller> caller, const grpc::ByteBuffer& bytes,
                                         grpc::ByteBuffer* response);

  std::function<void()> IfStalled(absl::Time) override { return nullptr; }
  std::function<void()> AtDeadline() override;
  std::function<void()> AtDrain() override;

 private:
  struct Text {
    std::unique_ptr<moderation::Gate> gate;
    std::shared_ptr<moderation::Judgement> judgement;
  };

  ModerateCall(const CallContext& context, grpc::CallbackServerContext& server_context, Caller caller,
               grpc::ByteBuffer& response);
  absl::Status Begin(const grpc::ByteBuffer& bytes);
  // Asks for the text's next verdict; or it is done.
  void Next(size_t text);
  void OnVerdict(size_t text, absl::StatusOr<moderation::Verdict> verdict);
  // Leaves the call's line in the audit log: none of its texts. `failed`: a verdict did.
  void Record(absl::StatusCode code, const v1::ModerateResponse& answer, bool failed) const;
  // The first end counts.
  void End(const absl::Status& status);
  void OnCancel() override { End(absl::CancelledError("the client went away")); }
  void OnDone() override { const std::shared_ptr<ModerateCall> self = std::move(self_); }

  const CallContext& context_;
  const absl::Time arrival_;
  const absl::Time deadline_;
  const telemetry::TraceContext trace_;
  std::optional<LiveCalls::Guard> alive_;  // once it can be asked
  // Both live until the call was finished.
  grpc::CallbackServerContext& server_context_;
  const CallName name_;
  grpc::ByteBuffer& response_;
  std::shared_ptr<ModerateCall> self_;  // until OnDone
  const Caller caller_;                 // no tenant: a stranger
  // Set by Begin, before the first verdict.
  moderation::Moderator* moderator_ = nullptr;
  absl::Duration timeout_;  // each verdict's

  absl::Mutex mutex_;
  std::vector<Text> texts_ ABSL_GUARDED_BY(mutex_);
  v1::ModerateResponse answer_ ABSL_GUARDED_BY(mutex_);
  size_t left_ ABSL_GUARDED_BY(mutex_) = 0;
  bool failed_ ABSL_GUARDED_BY(mutex_) = false;  // a verdict
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace baton::router
