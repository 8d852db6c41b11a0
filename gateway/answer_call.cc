#include "gateway/answer_call.h"

#include <algorithm>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "common/rpc/client_stream.h"
#include "common/rpc/status.h"
#include "gateway/answer_leg.h"
#include "gateway/mapping/sse.h"
#include "gateway/mapping/usage.h"
#include "gateway/passed_on.h"
#include "protocol/client/answer_event.h"
#include "protocol/client/answer_fold.h"
#include "protocol/client/limits.h"
#include "protocol/client/metadata.h"

namespace baton::gateway {
namespace {

// Bytes of an answer that are asked for before the client has taken them.
constexpr size_t kAhead = 64 << 10;

constexpr char kProgressHeader[] = "x-baton-progress";

// An answer in one piece of more bytes is not written on the server's thread.
constexpr size_t kLargeAnswer = 64 << 10;
// And one of more is not made: clients take it as a stream.
constexpr size_t kLargestAnswer = 64 << 20;

// When an answer that has no room may be asked for again.
constexpr absl::Duration kRoomIn = absl::Seconds(2);

// Calls of one answer at a time: a request with many prompts takes no more of the service than so many
// clients.
constexpr size_t kCallsAtATime = 8;

std::optional<v1::RequestUsage> UsageIn(const grpc::ClientContext& context) {
  const auto& trailers = context.GetServerTrailingMetadata();
  const auto found = trailers.find(protocol::kUsageTrailer);
  v1::RequestUsage usage;
  if (found == trailers.end() ||
      !usage.ParseFromArray(found->second.data(), static_cast<int>(found->second.size()))) {
    return std::nullopt;
  }
  return usage;
}

// Which of several prompts it is about.
absl::Status OfPrompt(size_t which, const absl::Status& status) {
  absl::Status named(status.code(), absl::StrCat("prompt[", which, "]: ", status.message()));
  status.ForEachPayload(
      [&named](absl::string_view type, const absl::Cord& payload) { named.SetPayload(type, payload); });
  return named;
}

template <typename Request>
class AnswerCall : public std::enable_shared_from_this<AnswerCall<Request>> {
 public:
  AnswerCall(std::shared_ptr<http::Exchange> exchange, Routers& routers, std::vector<Request> requests,
             AnswerFormat format, const CallTimes& times, Probe& probe, SideThread& side_thread)
      : exchange_(std::move(exchange)),
        routers_(routers),
        choices_(std::clamp<uint32_t>(requests.front().options().n(), 1, protocol::kMaxChoices)),
        format_(std::move(format)),
        times_(times),
        probe_(probe),
        side_thread_(side_thread),
        calls_(requests.size()),
        told_(requests.size()),
        answer_(static_cast<uint32_t>(requests.size()) * choices_) {
    probe_.Streams(1);
    const http::Request& request = exchange_->request();
    const std::string key(request.Header(kIdempotencyHeader)), build(request.Header(kBuildHeader));
    const bool progress = !format_.whole && request.Header(kProgressHeader) == "true";
    const bool alone = requests.size() == 1;
    for (size_t i = 0; i < requests.size(); ++i) {
      v1::RequestOptions& options = *requests[i].mutable_options();
      if (!key.empty()) options.set_idempotency_key(alone ? key : absl::StrCat(key, "/", i));
      if (!build.empty()) options.set_build(build);
      // Each of several prompts would tell of itself.
      if (progress && alone) requests[i].mutable_output()->set_progress(true);
      legs_.emplace_back(std::move(requests[i]), choices_);
    }
  }
  ~AnswerCall() { probe_.Streams(-1); }

  void Start() {
    StartCalls();
    const auto self = this->shared_from_this();
    exchange_->OnGone([self] {
      self->gone_ = true;
      self->CancelCalls();
    });
    if (!format_.whole) {
      exchange_->After(Milliseconds(times_.head_after), [self] { self->BeginStream(); });
    }
  }

 private:
  static constexpr bool kChat = std::is_same_v<Request, v1::ChatRequest>;
  using Leg = AnswerLeg<Request>;  // of one prompt
  using Response = std::conditional_t<kChat, v1::ChatResponse, v1::GenerateResponse>;

  // A call that is under way at a router.
  struct Call {
    std::function<void()> next, cancel;  // its stream's; empty: there is none
    bool waits = false;                  // the next event has not been asked for
  };

  struct Event {
    size_t which;  // of legs_
    v1::GenerateResponse event;
  };

  static int Milliseconds(absl::Duration duration) {
    return static_cast<int>(absl::ToInt64Milliseconds(duration));
  }

  bool several() const { return legs_.size() > 1; }

  void StartCalls() {
    for (; running_ < kCallsAtATime && next_ < legs_.size(); ++next_, ++running_) StartCall(next_);
  }

  // At a router, from the beginning or behind what has come.
  void StartCall(size_t which) {
    Leg& leg = legs_[which];
    Router* const router = leg.PickRouter(routers_);
    if (router == nullptr) {
      return exchange_->Post(
          [self = this->shared_from_this(), which] { self->OnDone(which, self->routers_.NoneKnown()); });
    }
    v1::Inference::Stub* const stub = &router->inference;
    if (!leg.began()) {
      return Open<Response>(which, leg.request(), [stub](auto* context, auto* request, auto* reactor) {
        if constexpr (kChat) {
          stub->async()->Chat(context, request->get(), reactor);
        } else {
          stub->async()->Generate(context, request->get(), reactor);
        }
      });
    }
    Open<v1::ResumeResponse>(which, leg.Rest(), [stub](auto* context, auto* request, auto* reactor) {
      stub->async()->Resume(context, request->get(), reactor);
    });
  }

  template <typename Got, typename Asked, typename Start>
  void Open(size_t which, std::shared_ptr<const Asked> request, Start start) {
    using Stream = rpc::ClientStream<std::shared_ptr<const Asked>, Got>;
    const auto self = this->shared_from_this();
    auto context = std::make_unique<grpc::ClientContext>();
    PassOn(exchange_->request(), context.get());
    {
      absl::MutexLock lock(&mutex_);
      calls_[which] = {};
    }
    typename Stream::Callbacks callbacks{
        .event = [self, which](Got event) { self->Keep(which, protocol::AnswerEvent(std::move(event))); },
        .done =
            [self, which](const absl::Status& status) {
              self->exchange_->Post([self, which, status] { self->OnDone(which, status); });
            },
        .ending = [self, which](const grpc::ClientContext& ended) { self->told_[which] = UsageIn(ended); }};
    const auto stream =
        Stream::Call(std::move(request), std::move(context), std::move(callbacks), std::move(start));
    {
      absl::MutexLock lock(&mutex_);
      calls_[which].next = [stream] { stream->Next(); };
      calls_[which].cancel = [stream] { stream->Cancel(); };
    }
    Took(0);  // the first event may have come already
  }

  void CancelCalls() {
    std::vector<std::function<void()>> cancels;
    {
      absl::MutexLock lock(&mutex_);
      for (const Call& call : calls_) {
        if (call.cancel) cancels.push_back(call.cancel);
      }
    }
    for (const auto& cancel : cancels) cancel();
  }

  // Its choices come after those of the prompts before.
  void Renumber(size_t which, v1::GenerateResponse* event) const {
    const auto number = [&](uint32_t choice) {
      return static_cast<uint32_t>(which) * choices_ + std::min(choice, choices_ - 1);
    };
    if (event->has_delta()) event->mutable_delta()->set_choice(number(event->delta().choice()));
    if (event->has_finished()) event->mutable_finished()->set_choice(number(event->finished().choice()));
  }

  // On a thread of gRPC's. Events that come while the server's thread has others to see to are seen to
  // together, and leave in one piece.
  void Keep(size_t which, v1::GenerateResponse event) {
    std::function<void()> next;
    bool first = false;
    {
      absl::MutexLock lock(&mutex_);
      ahead_ += event.ByteSizeLong();
      first = events_.empty();
      events_.push_back({which, std::move(event)});
      Call& call = calls_[which];
      call.waits = ahead_ > kAhead || !call.next;
      if (!call.waits) next = call.next;
    }
    if (first) exchange_->Post([self = this->shared_from_this()] { self->OnEvents(); });
    if (next) next();
  }

  // So many bytes of events are dealt with.
  void Took(size_t bytes) {
    std::vector<std::function<void()>> nexts;
    {
      absl::MutexLock lock(&mutex_);
      ahead_ -= bytes;
      if (ahead_ > kAhead) return;
      for (Call& call : calls_) {
        if (call.next && std::exchange(call.waits, false)) nexts.push_back(call.next);
      }
    }
    for (const auto& next : nexts) next();
  }

  void OnEvents() {
    std::vector<Event> events;
    {
      absl::MutexLock lock(&mutex_);
      events.swap(events_);
    }
    if (ended_) return;
    size_t size = 0;
    std::string bytes;
    for (Event& one : events) {
      v1::GenerateResponse& event = one.event;
      size += event.ByteSizeLong();
      if (!legs_[one.which].Count(event)) continue;
      if (several()) Renumber(one.which, &event);
      // The first of several calls to begin names the request.
      if (event.has_started() && !answer_.started().request_id().empty()) continue;
      if (event.has_progress()) {
        bytes += ProgressComment(event.progress());
        continue;
      }
      if (event.has_delta() && !std::exchange(answering_, true)) probe_.FirstPart(absl::Now() - begun_at_);
      // A stream's text is not kept here.
      if (format_.whole || !event.has_delta()) {
        answer_.Add(event);
        answer_bytes_ += event.ByteSizeLong();
        held_bytes_ += event.SpaceUsedLong();
        if (!exchange_->Hold(held_bytes_)) {
          return Fail(rpc::WithRetryDelay(
              absl::UnavailableError("so much is held for clients that there is no room for an answer in one "
                                     "piece: ask for it as a stream, or try again"),
              kRoomIn));
        }
        if (answer_bytes_ > kLargestAnswer) {
          return Fail(absl::InvalidArgumentError(
              "the answer has more than 64 MiB: ask for it as a stream, or for fewer log probabilities or "
              "prompts"));
        }
      }
      if (!format_.whole) bytes += format_.piece(event);
    }
    if (!format_.whole) BeginStream();
    if (bytes.empty()) return Took(size);
    quiet_ = false;
    exchange_->Write(std::move(bytes), [self = this->shared_from_this(), size] { self->Took(size); });
  }

  // The call broke off, and is made again. False: its end is the answer's.
  bool TryAgain(size_t which, const absl::Status& status) {
    Leg& leg = legs_[which];
    const std::optional<absl::Duration> pause = leg.TryAgain(status);
    if (!pause.has_value()) return false;
    probe_.GoesOn(/*resumed=*/leg.began());
    // Held by the exchange meanwhile.
    leg.After(*pause, [weak = this->weak_from_this(), which] {
      const auto self = weak.lock();
      if (self == nullptr) return;
      self->exchange_->Post([self, which] {
        if (!self->gone_ && !self->ended_) self->StartCall(which);
      });
    });
    return true;
  }

  void OnDone(size_t which, const absl::Status& status) {
    legs_[which].CallEnded();
    if (!gone_ && !ended_ && !status.ok() && TryAgain(which, status)) return;
    --running_;
    if (gone_ || ended_) return;
    if (!status.ok()) {
      const absl::Status told = InWordsOf(format_.api, legs_[which].Told(status));
      return Fail(several() ? OfPrompt(which, told) : told);
    }
    StartCalls();
    if (running_ > 0) return;
    const absl::Status whole = answer_.CheckWhole(several() ? static_cast<int>(legs_.size() * choices_) : 1);
    if (!whole.ok()) return Fail(whole);
    ended_ = true;
    const v1::Usage usage = Used();
    if (format_.whole) return AnswerWhole(usage);
    exchange_->Write(format_.last(usage), nullptr);
    exchange_->End();
  }

  void Fail(const absl::Status& status) {
    ended_ = true;
    CancelCalls();
    exchange_->Hold(0);  // its room is others' at once
    if (!began_) return exchange_->Answer(Failed(status));
    exchange_->Write(format_.error_event(status, RequestId()), nullptr);
    exchange_->End();
  }

  v1::Usage Used() const {
    if (!several()) return UsageOf(told_.front(), answer_.choices());
    v1::Usage sum;
    const int count = static_cast<int>(choices_);
    for (size_t i = 0; i < told_.size(); ++i) {
      AddUsage(UsageOf(told_[i], answer_.choices(), static_cast<int>(i) * count, count), &sum);
    }
    return sum;
  }

  http::Response Failed(const absl::Status& status) const {
    AnswerFormat format = format_;
    format.request_id = RequestId();
    return ErrorResponse(status, format);
  }

  // Nothing changes the answer any more.
  void AnswerWhole(const v1::Usage& usage) {
    const auto answer = [self = this->shared_from_this(), usage] {
      http::Response response{.headers = self->format_.headers,
                              .body = self->format_.whole(self->answer_, usage)};
      self->NameAnswer(&response);
      self->exchange_->Answer(std::move(response));
    };
    if (answer_bytes_ <= kLargeAnswer) return answer();
    side_thread_.Run(exchange_->request().address, answer);
  }

  // As the router's logs name it, if the router has seen it.
  const std::string& RequestId() const {
    const std::string& id = answer_.started().request_id();
    return id.empty() ? format_.request_id : id;
  }

  // The request, and, if it is known by then, what answers it.
  void NameAnswer(http::Response* response) const {
    for (const char* const name : kRequestIdHeaders) response->headers.emplace_back(name, RequestId());
    const std::string& build = answer_.started().build();
    if (!build.empty()) response->headers.emplace_back(kBuildHeader, build);
  }

  void BeginStream() {
    if (std::exchange(began_, true)) return;
    http::Response head{.headers = format_.headers, .content_type = kEventStream};
    NameAnswer(&head);
    head.headers.emplace_back("Cache-Control", "no-cache");
    // Proxies that collect an answer first would hold it back.
    head.headers.emplace_back("X-Accel-Buffering", "no");
    exchange_->Begin(std::move(head));
    KeepOpen();
  }

  // Proxies and clients close a connection on which nothing comes.
  void KeepOpen() {
    exchange_->After(Milliseconds(times_.comment_after), [self = this->shared_from_this()] {
      if (self->quiet_) self->exchange_->Write(kComment, nullptr);
      self->quiet_ = true;
      self->KeepOpen();
    });
  }

  const std::shared_ptr<http::Exchange> exchange_;
  Routers& routers_;
  const uint32_t choices_;  // of each prompt
  const AnswerFormat format_;
  const CallTimes times_;
  Probe& probe_;
  SideThread& side_thread_;
  absl::Mutex mutex_;
  std::vector<Leg> legs_;                            // of each prompt; the server's thread's
  std::vector<Call> calls_ ABSL_GUARDED_BY(mutex_);  // as legs_
  // That came, and were not seen to.
  std::vector<Event> events_ ABSL_GUARDED_BY(mutex_);
  size_t ahead_ ABSL_GUARDED_BY(mutex_) = 0;  // bytes of events that the client has not taken
  // As legs_. Each is written by its last call, before that is done.
  std::vector<std::optional<v1::RequestUsage>> told_;
  size_t next_ = 0;              // the first that has not been started
  size_t running_ = 0;           // calls
  protocol::AnswerFold answer_;  // of a stream: without its texts
  size_t answer_bytes_ = 0;      // of messages
  size_t held_bytes_ = 0;        // of the same in memory, about
  const absl::Time begun_at_ = absl::Now();
  bool answering_ = false;  // the first part has come
  bool began_ = false;
  bool gone_ = false;
  bool ended_ = false;  // all is said
  bool quiet_ = true;   // nothing was written since the last look
};

}  // namespace

template <typename Request>
void StartAnswer(std::shared_ptr<http::Exchange> exchange, Routers& routers, std::vector<Request> requests,
                 AnswerFormat format, const CallTimes& times, Probe& probe, SideThread& side_thread) {
  const auto posted = exchange;
  const auto call = std::make_shared<AnswerCall<Request>>(std::move(exchange), routers, std::move(requests),
                                                          std::move(format), times, probe, side_thread);
  // The request may have been read on another thread than the server's, which the call belongs to.
  posted->Post([call] { call->Start(); });
}

template void StartAnswer(std::shared_ptr<http::Exchange>, Routers&, std::vector<v1::ChatRequest>,
                          AnswerFormat, const CallTimes&, Probe&, SideThread&);
template void StartAnswer(std::shared_ptr<http::Exchange>, Routers&, std::vector<v1::GenerateRequest>,
                          AnswerFormat, const CallTimes&, Probe&, SideThread&);

}  // namespace baton::gateway
