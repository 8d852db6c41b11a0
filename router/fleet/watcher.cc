#include "router/fleet/watcher.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

#include "baton/fleet/v1/worker.grpc.pb.h"
#include "common/rpc/channel.h"
#include "common/rpc/client_stream.h"

namespace baton::router::fleet {
namespace {

constexpr absl::Duration kFirstBackoff = absl::Milliseconds(100);
constexpr absl::Duration kLongestBackoff = absl::Seconds(1);
const absl::Duration kBetweenDials = absl::Seconds(1) / Watcher::kDialsPerSecond;

}  // namespace

// One endpoint's stream, over and over. Guarded by the watcher's mutex, but for what is const.
struct Watcher::Subscription {
  using Stream = rpc::ClientStream<baton::fleet::v1::WatchRequest, baton::fleet::v1::WatchEvent>;

  const std::shared_ptr<grpc::Channel> channel;
  const int endpoint;
  const std::unique_ptr<baton::fleet::v1::Worker::Stub> stub;
  std::shared_ptr<Stream> stream = nullptr;  // null: none is out
  absl::Time due = {};                       // while in one of the watcher's sets
  absl::Duration backoff = kFirstBackoff;
  absl::Status broken =
      {};                // how the stream before this one broke, if the worker was up; OK once it is heard
  bool up = false;       // it has said something since it was last down
  bool heard = false;    // on this stream
  bool dialing = false;  // it is one of kMostDials
  bool again_at_once = false;
  bool stopping = false;
};

bool Watcher::Earlier::operator()(const Subscription* a, const Subscription* b) const {
  return std::pair(a->due, a->endpoint) < std::pair(b->due, b->endpoint);
}

Watcher::Watcher(Fleet& fleet, Keepalive keepalive, const rpc::Security* security,
                 std::function<void()> on_lost)
    : fleet_(fleet),
      keepalive_(keepalive),
      security_(security),
      on_lost_(std::move(on_lost)),
      thread_([this] { AskWhenDue(); }) {}

Watcher::~Watcher() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
    changed_.SignalAll();
  }
  thread_.join();
  for (const auto& [key, subscription] : subscriptions_) Stop(*subscription);
  for (const auto& [key, subscription] : subscriptions_) Join(*subscription);
}

void Watcher::Follow(std::span<const std::string> decode, std::span<const std::string> prefill) {
  // A worker that is up has a stream, and so its channel is never idle. Others are dialed by AskWhenDue
  // alone.
  const rpc::Keepalive keepalive{
      .interval = keepalive_.interval, .timeout = keepalive_.timeout, .idle = absl::Seconds(1)};
  std::map<std::pair<Role, std::string>, std::unique_ptr<Subscription>> gone;
  gone.swap(subscriptions_);
  for (const auto& [role, addresses] : {std::pair(Role::kDecode, decode), {Role::kPrefill, prefill}}) {
    for (const std::string& address : addresses) {
      std::unique_ptr<Subscription>& subscription = subscriptions_[{role, address}];
      if (auto known = gone.extract({role, address}); !known.empty()) {
        subscription = std::move(known.mapped());
      } else if (subscription == nullptr) {
        auto channel = rpc::MakeChannel(address, keepalive, security_);
        const int endpoint = fleet_.AddEndpoint({.address = address, .role = role, .channel = channel});
        subscription.reset(new Subscription{
            .channel = channel, .endpoint = endpoint, .stub = baton::fleet::v1::Worker::NewStub(channel)});
        absl::MutexLock lock(&mutex_);
        subscription->due = clock_.Now();
        down_.insert(subscription.get());
      }
    }
  }
  {
    absl::MutexLock lock(&mutex_);
    changed_.SignalAll();
  }
  for (const auto& [key, subscription] : gone) Stop(*subscription);
  for (const auto& [key, subscription] : gone) {
    Join(*subscription);
    fleet_.RemoveEndpoint(subscription->endpoint);
  }
}

void Watcher::Stop(Subscription& worker) {
  absl::MutexLock lock(&mutex_);
  worker.stopping = true;
  if (worker.stream != nullptr) {
    worker.stream->Cancel();
  } else {
    down_.erase(&worker);
    broken_.erase(&worker);
  }
}

void Watcher::Join(Subscription& worker) {
  const auto ended = [&worker] { return worker.stream == nullptr; };
  absl::MutexLock lock(&mutex_);
  mutex_.Await(absl::Condition(&ended));
}

void Watcher::AskWhenDue() {
  absl::MutexLock lock(&mutex_);
  while (!stopping_) {
    const absl::Time now = clock_.Now();
    while (!unheard_.empty() && (*unheard_.begin())->due <= now) {
      Subscription& silent = **unheard_.begin();
      unheard_.erase(unheard_.begin());
      silent.stream->Cancel();
    }
    const auto due = [now](const ByTime& set) { return !set.empty() && (*set.begin())->due <= now; };
    while (due(broken_)) Ask(*broken_.extract(broken_.begin()).value());
    while (dialing_ < kMostDials && next_dial_ <= now && due(down_)) {
      Subscription& next = *down_.extract(down_.begin()).value();
      next_dial_ = std::max(next_dial_, now - kMostDials * kBetweenDials) + kBetweenDials;
      next.dialing = true;
      ++dialing_;
      Ask(next);
    }
    absl::Time next = absl::InfiniteFuture();
    for (const ByTime* set : {&unheard_, &broken_}) {
      if (!set->empty()) next = std::min(next, (*set->begin())->due);
    }
    if (dialing_ < kMostDials && !down_.empty()) {
      next = std::min(next, std::max(next_dial_, (*down_.begin())->due));
    }
    changed_.WaitWithTimeout(&mutex_, next - now);
  }
}

void Watcher::Ask(Subscription& worker) {
  baton::fleet::v1::WatchRequest request;
  request.set_router_id(fleet_.router_id());
  request.set_blocks(true);
  request.set_template_digest(fleet_.template_digest());
  request.mutable_targets()->set_ttft_seconds(fleet_.targets().ttft);
  request.mutable_targets()->set_tpot_seconds(fleet_.targets().tpot);
  request.mutable_targets()->set_tail_share(fleet_.targets().tail_share);
  worker.heard = worker.again_at_once = false;
  worker.due = clock_.Now() + (worker.up ? kPatience : kDialPatience);
  unheard_.insert(&worker);
  worker.stream = Subscription::Stream::Call(
      std::move(request), std::make_unique<grpc::ClientContext>(),
      {.event = [this, &worker](baton::fleet::v1::WatchEvent event) { OnEvent(worker, event); },
       .done = [this, &worker](absl::Status status) { OnDone(worker, status); }},
      [&worker](auto* context, auto* sent, auto* reactor) {
        worker.stub->async()->Watch(context, sent, reactor);
      });
  changed_.SignalAll();
}

void Watcher::Heard(Subscription& worker) {
  unheard_.erase(&worker);
  if (!std::exchange(worker.dialing, false)) return;
  --dialing_;
  changed_.SignalAll();
}

void Watcher::OnEvent(Subscription& worker, const baton::fleet::v1::WatchEvent& event) {
  const absl::Status status = fleet_.OnEvent(worker.endpoint, event);
  absl::MutexLock lock(&mutex_);
  if (!std::exchange(worker.heard, true)) Heard(worker);
  if (absl::IsDataLoss(status)) {
    spdlog::warn("watching again from a snapshot: {}", std::string(status.message()));
    worker.again_at_once = true;
    worker.stream->Cancel();
    return;
  }
  worker.up = true;
  worker.broken = absl::OkStatus();
  worker.backoff = kFirstBackoff;
  worker.stream->Next();
}

void Watcher::OnDone(Subscription& worker, const absl::Status& status) {
  absl::Status why = status.ok() ? absl::UnavailableError("the worker ended the watch") : status;
  bool down = false, lost = false;
  {
    absl::MutexLock lock(&mutex_);
    Heard(worker);
    if (!worker.stopping) {
      if (worker.again_at_once) {
        Ask(worker);
        return;
      }
      if (worker.up && worker.heard && absl::IsUnavailable(status)) {
        worker.broken = status;
        fleet_.OnBroken(worker.endpoint);
        worker.stream = nullptr;
        AskLater(worker);
        return;
      }
      down = true;
      lost = std::exchange(worker.up, false);
      if (absl::IsCancelled(status)) {  // by us, as it said nothing
        why = worker.broken.ok() ? absl::UnavailableError("it does not answer the watch") : worker.broken;
      }
      worker.broken = absl::OkStatus();
    }
  }
  if (down) fleet_.OnDown(worker.endpoint, why);
  if (lost && on_lost_) on_lost_();
  absl::MutexLock lock(&mutex_);
  worker.stream = nullptr;
  if (worker.stopping) return;
  AskLater(worker);
}

void Watcher::AskLater(Subscription& worker) {
  worker.due = clock_.Now() + worker.backoff;
  (worker.up ? broken_ : down_).insert(&worker);
  worker.backoff = std::min(worker.backoff * 2, kLongestBackoff);
  changed_.SignalAll();
}

}  // namespace baton::router::fleet
