#include "router/fleet/watcher.h"

#include <grpcpp/alarm.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "baton/v1/worker.grpc.pb.h"
#include "common/rpc/channel.h"
#include "common/rpc/client_stream.h"

namespace baton::router::fleet {
namespace {

constexpr absl::Duration kFirstBackoff = absl::Milliseconds(100);
constexpr absl::Duration kLongestBackoff = absl::Seconds(1);

}  // namespace

// One endpoint's stream, over and over. At any time exactly one of these is pending: the stream's `done`, or
// the alarm.
class Watcher::Subscription {
 public:
  Subscription(Fleet& fleet, Role role, const std::string& address, const rpc::Keepalive& keepalive,
               const rpc::Security* security, const std::function<void()>& on_lost)
      : fleet_(fleet),
        on_lost_(on_lost),
        channel_(rpc::MakeChannel(address, keepalive, security)),
        endpoint_(fleet.AddEndpoint({.address = address, .role = role, .channel = channel_})),
        stub_(v1::Worker::NewStub(channel_)) {
    absl::MutexLock lock(&mutex_);
    Begin();
  }

  void Stop() {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
    if (stream_ != nullptr) stream_->Cancel();
    if (waiting_) alarm_.Cancel();
  }

  // After Stop().
  void Join() {
    absl::MutexLock lock(&mutex_);
    mutex_.Await(absl::Condition(&ended_));
  }

  int endpoint() const { return endpoint_; }

 private:
  using Stream = rpc::ClientStream<v1::WatchRequest, v1::WatchEvent>;

  void Begin() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    v1::WatchRequest request;
    request.set_router_id(fleet_.router_id());
    request.set_blocks(true);
    request.set_template_digest(fleet_.template_digest());
    again_at_once_ = false;
    stream_ = Stream::Call(
        std::move(request), std::make_unique<grpc::ClientContext>(),
        {.event = [this](v1::WatchEvent event) { OnEvent(event); },
         .done = [this](absl::Status status) { OnDone(status); }},
        [this](auto* context, auto* sent, auto* reactor) { stub_->async()->Watch(context, sent, reactor); });
  }

  void OnEvent(const v1::WatchEvent& event) {
    const absl::Status status = fleet_.OnEvent(endpoint_, event);
    absl::MutexLock lock(&mutex_);
    if (absl::IsDataLoss(status)) {
      spdlog::warn("watching again from a snapshot: {}", std::string(status.message()));
      again_at_once_ = true;
      stream_->Cancel();
      return;
    }
    up_ = true;
    backoff_ = kFirstBackoff;
    stream_->Next();
  }

  void OnDone(const absl::Status& status) {
    bool down, lost;
    {
      absl::MutexLock lock(&mutex_);
      down = !stopping_ && !again_at_once_;
      lost = down && std::exchange(up_, false);
    }
    if (down) {
      fleet_.OnDown(endpoint_, status.ok() ? absl::UnavailableError("the worker ended the watch") : status);
    }
    if (lost && on_lost_) on_lost_();
    absl::MutexLock lock(&mutex_);
    stream_ = nullptr;
    if (stopping_) {
      ended_ = true;
    } else if (again_at_once_) {
      Begin();
    } else {
      waiting_ = true;
      alarm_.Set(std::chrono::system_clock::now() + absl::ToChronoNanoseconds(backoff_),
                 [this](bool) { OnAlarm(); });
      backoff_ = std::min(backoff_ * 2, kLongestBackoff);
    }
  }

  void OnAlarm() {
    absl::MutexLock lock(&mutex_);
    waiting_ = false;
    if (stopping_) {
      ended_ = true;
    } else {
      Begin();
    }
  }

  Fleet& fleet_;
  const std::function<void()>& on_lost_;
  const std::shared_ptr<grpc::Channel> channel_;
  const int endpoint_;
  const std::unique_ptr<v1::Worker::Stub> stub_;
  absl::Mutex mutex_;
  std::shared_ptr<Stream> stream_ ABSL_GUARDED_BY(mutex_);
  grpc::Alarm alarm_ ABSL_GUARDED_BY(mutex_);
  absl::Duration backoff_ ABSL_GUARDED_BY(mutex_) = kFirstBackoff;
  bool up_ ABSL_GUARDED_BY(mutex_) = false;  // it has said something since it was last lost
  bool waiting_ ABSL_GUARDED_BY(mutex_) = false;
  bool again_at_once_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
};

Watcher::Watcher(Fleet& fleet, Keepalive keepalive, const rpc::Security* security,
                 std::function<void()> on_lost)
    : fleet_(fleet), keepalive_(keepalive), security_(security), on_lost_(std::move(on_lost)) {}

Watcher::~Watcher() {
  for (const auto& [key, subscription] : subscriptions_) subscription->Stop();
  for (const auto& [key, subscription] : subscriptions_) subscription->Join();
}

void Watcher::Follow(std::span<const std::string> decode, std::span<const std::string> prefill) {
  const rpc::Keepalive both{.interval = keepalive_.interval, .timeout = keepalive_.timeout};
  std::map<std::pair<Role, std::string>, std::unique_ptr<Subscription>> gone;
  gone.swap(subscriptions_);
  for (const auto& [role, addresses] : {std::pair(Role::kDecode, decode), {Role::kPrefill, prefill}}) {
    for (const std::string& address : addresses) {
      std::unique_ptr<Subscription>& subscription = subscriptions_[{role, address}];
      if (auto known = gone.extract({role, address}); !known.empty()) {
        subscription = std::move(known.mapped());
      } else if (subscription == nullptr) {
        subscription = std::make_unique<Subscription>(fleet_, role, address, both, security_, on_lost_);
      }
    }
  }
  for (const auto& [key, subscription] : gone) subscription->Stop();
  for (const auto& [key, subscription] : gone) {
    subscription->Join();
    fleet_.RemoveEndpoint(subscription->endpoint());
  }
}

}  // namespace baton::router::fleet
