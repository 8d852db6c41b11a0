#include "gateway/answer_call.h"

#include <algorithm>
#include <type_traits>
#include <utility>

#include "common/rpc/client_stream.h"
#include "gateway/mapping/http_status.h"
#include "gateway/mapping/sse.h"

namespace baton::gateway {
namespace {

// The trailer in which the router tells what a request used (generation.proto, RequestUsage).
constexpr char kUsageTrailer[] = "baton-usage-bin";

std::optional<v1::RequestUsage> UsageIn(const grpc::ClientContext& context) {
  const auto& trailers = context.GetServerTrailingMetadata();
  const auto found = trailers.find(kUsageTrailer);
  v1::RequestUsage usage;
  if (found == trailers.end() ||
      !usage.ParseFromArray(found->second.data(), static_cast<int>(found->second.size()))) {
    return std::nullopt;
  }
  return usage;
}

template <typename Request>
class AnswerCall : public std::enable_shared_from_this<AnswerCall<Request>> {
 public:
  AnswerCall(std::shared_ptr<http::Exchange> exchange, AnswerFormat format, const CallTimes& times,
             Probe& probe)
      : exchange_(std::move(exchange)), format_(std::move(format)), times_(times), probe_(probe) {
    probe_.Streams(1);
  }
  ~AnswerCall() { probe_.Streams(-1); }

  void Start(v1::Inference::Stub& router, Request request) {
    const auto self = this->shared_from_this();
    auto context = std::make_unique<grpc::ClientContext>();
    PassOn(exchange_->request(), context.get());
    typename Stream::Callbacks callbacks{
        .event =
            [self](v1::GenerateResponse event) {
              self->exchange_->Post([self, event = std::move(event)] { self->OnEvent(event); });
            },
        .done =
            [self](const absl::Status& status) {
              self->exchange_->Post([self, status] { self->OnDone(status); });
            },
        .ending = [self](const grpc::ClientContext& ended) { self->told_ = UsageIn(ended); }};
    stream_ = Stream::Call(std::move(request), std::move(context), std::move(callbacks),
                           [&router](auto* ctx, auto* message, auto* reactor) {
                             if constexpr (std::is_same_v<Request, v1::ChatRequest>) {
                               router.async()->Chat(ctx, message, reactor);
                             } else {
                               router.async()->Generate(ctx, message, reactor);
                             }
                           });
    exchange_->OnGone([self] {
      self->gone_ = true;
      self->stream_->Cancel();
    });
    if (!format_.whole) {
      exchange_->After(Milliseconds(times_.head_after), [self] { self->BeginStream(); });
    }
  }

 private:
  using Stream = rpc::ClientStream<Request, v1::GenerateResponse>;

  static int Milliseconds(absl::Duration duration) {
    return static_cast<int>(absl::ToInt64Milliseconds(duration));
  }

  void OnEvent(const v1::GenerateResponse& event) {
    if (format_.whole) {
      answer_.Add(event);
      stream_->Next();
      return;
    }
    // Of the text only the client has a copy.
    if (!event.has_delta()) answer_.Add(event);
    BeginStream();
    std::string bytes = format_.piece(event);
    if (bytes.empty()) {
      stream_->Next();
      return;
    }
    quiet_ = false;
    exchange_->Write(std::move(bytes), [self = this->shared_from_this()] { self->stream_->Next(); });
  }

  void OnDone(absl::Status status) {
    if (gone_) return;
    if (status.ok()) status = answer_.CheckWhole();
    const v1::Usage usage = UsageOf(told_, answer_.choices());
    if (!began_ && (format_.whole || !status.ok())) {
      exchange_->Answer(status.ok() ? Whole(usage) : ErrorResponse(status, format_));
      return;
    }
    exchange_->Write(status.ok() ? format_.last(usage) : format_.error_event(status), nullptr);
    exchange_->End();
  }

  http::Response Whole(const v1::Usage& usage) const {
    http::Response response{.headers = format_.headers, .body = format_.whole(answer_, usage)};
    // OpenAI's name, and Anthropic's.
    for (const char* const name : {"x-request-id", "request-id"}) {
      response.headers.emplace_back(name, answer_.started().request_id());
    }
    return response;
  }

  void BeginStream() {
    if (std::exchange(began_, true)) return;
    http::Response head{.headers = format_.headers, .content_type = kEventStream};
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
  const AnswerFormat format_;
  const CallTimes times_;
  Probe& probe_;
  std::shared_ptr<Stream> stream_;
  std::optional<v1::RequestUsage> told_;
  Answer answer_;  // of a stream: without its texts
  bool began_ = false;
  bool gone_ = false;
  bool quiet_ = true;  // nothing was written since the last look
};

}  // namespace

template <typename Request>
void StartAnswer(std::shared_ptr<http::Exchange> exchange, v1::Inference::Stub& router, Request request,
                 AnswerFormat format, const CallTimes& times, Probe& probe) {
  std::make_shared<AnswerCall<Request>>(std::move(exchange), std::move(format), times, probe)
      ->Start(router, std::move(request));
}

template void StartAnswer(std::shared_ptr<http::Exchange>, v1::Inference::Stub&, v1::ChatRequest,
                          AnswerFormat, const CallTimes&, Probe&);
template void StartAnswer(std::shared_ptr<http::Exchange>, v1::Inference::Stub&, v1::GenerateRequest,
                          AnswerFormat, const CallTimes&, Probe&);

void PassOn(const http::Request& request, grpc::ClientContext* context) {
  for (const char* const name : {"authorization", "x-api-key", "traceparent", "tracestate"}) {
    const std::string_view value = request.Header(name);
    // gRPC ends the process over metadata that is not printable ASCII. No key and no context is.
    const bool printable = std::ranges::all_of(value, [](char c) { return c >= ' ' && c <= '~'; });
    if (!value.empty() && printable) context->AddMetadata(name, std::string(value));
  }
}

http::Response ErrorResponse(const absl::Status& status, const AnswerFormat& format) {
  http::Response response{
      .status = HttpStatusOf(status.code()), .headers = format.headers, .body = format.error(status)};
  if (const auto retry = RetryAfterOf(status); retry.has_value()) {
    response.headers.emplace_back("Retry-After", std::to_string(retry->seconds));
    response.headers.emplace_back("retry-after-ms", std::to_string(retry->milliseconds));
  }
  return response;
}

}  // namespace baton::gateway
