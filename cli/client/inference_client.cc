#include "cli/client/inference_client.h"

#include <fmt/format.h>
#include <grpcpp/generic/generic_stub.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "baton/v1/inference.grpc.pb.h"
#include "common/base/check.h"
#include "common/base/status.h"
#include "common/rpc/channel.h"
#include "common/rpc/client_stream.h"
#include "common/rpc/security.h"
#include "protocol/client/answer_event.h"

namespace baton::cli {
namespace {

// Unary calls answer from memory; one that takes this long is stuck.
constexpr absl::Duration kUnaryTimeout = absl::Seconds(30);
// How long a connection attempt may take when there is no patience: a host that drops packets never refuses.
constexpr absl::Duration kFirstAttempt = absl::Seconds(5);
// How long gRPC may take to say why it has no connection.
constexpr absl::Duration kProbe = absl::Seconds(1);
// A cancel is noticed this soon while connecting.
constexpr absl::Duration kCancelCheck = absl::Milliseconds(100);

std::chrono::system_clock::time_point Deadline(absl::Duration from_now) {
  return std::chrono::system_clock::now() + absl::ToChronoMilliseconds(from_now);
}

// Events from gRPC's threads for the caller's, and the eventfd that wakes it.
class Inbox {
 public:
  Inbox() : event_fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) { BATON_CHECK(event_fd_ >= 0); }
  ~Inbox() { close(event_fd_); }

  void Put(v1::GenerateResponse event) {
    {
      absl::MutexLock lock(&mutex_);
      events_.push_back(std::move(event));
    }
    Wake();
  }
  void End(absl::Status status) {
    {
      absl::MutexLock lock(&mutex_);
      end_ = std::move(status);
    }
    Wake();
  }
  // Waits until something can be taken, or `cancel_fd` is readable: true. -1: it never is.
  bool AwaitOrCancel(int cancel_fd) const {
    pollfd fds[2] = {{event_fd_, POLLIN, 0}, {cancel_fd, POLLIN, 0}};
    while (poll(fds, 2, -1) < 0) BATON_CHECK(errno == EINTR) << "poll: " << errno;
    return fds[1].revents != 0;
  }
  std::vector<v1::GenerateResponse> Take(std::optional<absl::Status>* end) {
    uint64_t drop;
    [[maybe_unused]] const ssize_t got = read(event_fd_, &drop, sizeof(drop));
    absl::MutexLock lock(&mutex_);
    *end = end_;
    return std::exchange(events_, {});
  }

 private:
  void Wake() {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = write(event_fd_, &one, sizeof(one));
  }

  const int event_fd_;
  absl::Mutex mutex_;
  std::vector<v1::GenerateResponse> events_ ABSL_GUARDED_BY(mutex_);
  std::optional<absl::Status> end_ ABSL_GUARDED_BY(mutex_);
};

absl::Status Cancelled() { return absl::CancelledError("cancelled"); }

template <typename Response, typename Request, typename Start>
absl::Status RunStream(const Request& request, const std::string& address, const StreamOptions& options,
                       const InferenceClient::OnEvent& on_event, Start start) {
  using Stream = rpc::ClientStream<Request, Response>;
  auto context = std::make_unique<grpc::ClientContext>();
  if (options.timeout != absl::InfiniteDuration()) context->set_deadline(Deadline(options.timeout));
  // Shared: the last wake-up may still be on its way when the end has been read.
  auto inbox = std::make_shared<Inbox>();
  const std::shared_ptr<Stream> stream =
      Stream::Call(request, std::move(context),
                   {.event = [inbox](Response event) { inbox->Put(protocol::AnswerEvent(std::move(event))); },
                    .done = [inbox](absl::Status status) { inbox->End(std::move(status)); }},
                   start);
  bool cancelled = false;
  absl::Status why = Cancelled();
  while (true) {
    if (inbox->AwaitOrCancel(cancelled ? -1 : options.cancel_fd)) {
      cancelled = true;
      stream->Cancel();
    }
    std::optional<absl::Status> end;
    for (const v1::GenerateResponse& event : inbox->Take(&end)) {
      if (!cancelled) {
        if (absl::Status refused = on_event(event); !refused.ok()) {
          cancelled = true;
          why = std::move(refused);
          stream->Cancel();
        }
      }
      stream->Next();
    }
    // An answer that was complete before the cancel arrived is still cancelled for the caller: events were
    // dropped.
    if (end.has_value()) return cancelled ? why : Explain(*end, address);
  }
}

// A call that `start` begins with a context, a request, a response and what is told of the end. The error is
// gRPC's own, or Cancelled.
template <typename Response, typename Request, typename Start>
absl::StatusOr<Response> RunUnary(const Request& request, absl::Duration timeout, int cancel_fd,
                                  Start start) {
  // Shared, as above.
  struct Call {
    Request request;
    grpc::ClientContext context;
    Response response;
    Inbox inbox;
  };
  const auto call = std::make_shared<Call>();
  call->request = request;
  call->context.set_deadline(Deadline(timeout));
  start(&call->context, &call->request, &call->response,
        std::function<void(grpc::Status)>(
            [call](const grpc::Status& status) { call->inbox.End(rpc::FromGrpc(status)); }));
  bool cancelled = false;
  std::optional<absl::Status> end;
  while (!end.has_value()) {
    if (call->inbox.AwaitOrCancel(cancelled ? -1 : cancel_fd)) {
      cancelled = true;
      call->context.TryCancel();
    }
    call->inbox.Take(&end);
  }
  if (cancelled) return Cancelled();
  if (!end->ok()) return *end;
  return std::move(call->response);
}

template <typename Answer>
absl::StatusOr<Answer> Explained(absl::StatusOr<Answer> answer, const std::string& address) {
  if (answer.ok() || answer.status() == Cancelled()) return answer;
  return Explain(answer.status(), address);
}

// Asks grpc.health.v1 whether `service` is SERVING.
absl::StatusOr<bool> CheckHealth(const std::shared_ptr<grpc::Channel>& channel, const std::string& service,
                                 absl::Duration timeout, int cancel_fd) {
  // HealthCheckRequest is {string service = 1}, HealthCheckResponse {enum status = 1} with SERVING = 1: too
  // little for a generated file.
  BATON_CHECK(service.size() < 128) << "one byte of length";
  std::string asked;
  if (!service.empty()) asked = fmt::format("\x0a{}{}", static_cast<char>(service.size()), service);
  const grpc::Slice slice(asked);
  grpc::GenericStub stub(channel);
  BATON_ASSIGN_OR_RETURN(
      const grpc::ByteBuffer response,
      RunUnary<grpc::ByteBuffer>(grpc::ByteBuffer(&slice, 1), timeout, cancel_fd,
                                 [&stub](auto* context, auto* request, auto* response, auto done) {
                                   stub.UnaryCall(context, "/grpc.health.v1.Health/Check",
                                                  grpc::StubOptions(), request, response, std::move(done));
                                 }));
  std::vector<grpc::Slice> slices;
  std::string answer;
  if (response.Dump(&slices).ok()) {
    for (const grpc::Slice& part : slices) {
      answer.append(reinterpret_cast<const char*>(part.begin()), part.size());
    }
  }
  return answer == "\x08\x01";
}

// Says why no connection came about, and what to do. Only a call tells gRPC's reason.
absl::Status CantReach(const std::string& address, const std::shared_ptr<grpc::Channel>& channel, bool tls) {
  const absl::Status why = CheckHealth(channel, "", kProbe, -1).status();
  const bool dialed = !absl::IsUnavailable(why) ||
                      absl::StrContains(why.message(), "Failed to connect to remote host") ||
                      absl::StrContains(why.message(), "DNS");
  if (dialed) {
    return absl::UnavailableError(
        fmt::format("can't reach a server at {}: is it running? `baton serve --model DIR` starts one on {}",
                    address, kDefaultServer));
  }
  return absl::UnavailableError(
      fmt::format("can't reach a server at {}: a process listens there, but {} ({})", address,
                  tls ? "there is no TLS connection with it: is its port without TLS, its certificate from "
                        "another authority "
                        "(--tls-ca) or for another name (--tls-server-name), or does it ask for one "
                        "(--tls-cert, --tls-key)?"
                      : "it does not speak gRPC without TLS: does its port want TLS (--tls-ca FILE)?",
                  std::string(why.message())));
}

}  // namespace

struct InferenceClient::Wire {
  std::shared_ptr<grpc::Channel> channel;
  std::unique_ptr<v1::Inference::Stub> stub;
};

absl::StatusOr<std::string> ParseServer(std::string_view text) {
  const auto error = [&] {
    return absl::InvalidArgumentError(
        fmt::format("\"{}\" is not a server: use host:port, for example {}", text, kDefaultServer));
  };
  std::string_view host = text;
  std::string_view port;
  const size_t colon = text.rfind(':');
  const size_t bracket = text.rfind(']');
  if (colon != std::string_view::npos && (bracket == std::string_view::npos || colon > bracket)) {
    host = text.substr(0, colon);
    port = text.substr(colon + 1);
    int number;
    if (!absl::SimpleAtoi(absl::string_view(port.data(), port.size()), &number) || number < 1 ||
        number > 65535) {
      return error();
    }
    if (host.empty()) host = "127.0.0.1";
  }
  // A v6 address without brackets can't be told from host:port.
  if (host.empty() || host.find_first_of(" /\t") != std::string_view::npos ||
      (host.find(':') != std::string_view::npos && host.front() != '[')) {
    return error();
  }
  return port.empty() ? fmt::format("{}:{}", host, kDefaultPort) : fmt::format("{}:{}", host, port);
}

absl::Status Explain(const absl::Status& status, const std::string& address) {
  std::string message(status.message());
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return status;
    case absl::StatusCode::kUnavailable:
      message = fmt::format("{} is unavailable: {}", address, message);
      break;
    case absl::StatusCode::kUnimplemented:
      message = fmt::format("{} does not offer this: is it a Baton router? ({})", address, message);
      break;
    case absl::StatusCode::kDeadlineExceeded:
      message = fmt::format("no answer from {} in time ({})", address, message);
      break;
    case absl::StatusCode::kResourceExhausted:
      message = fmt::format("{} is full: {}", address, message);
      break;
    default:
      message = fmt::format("{} ({})", message, absl::StatusCodeToString(status.code()));
      break;
  }
  if (const std::optional<absl::Duration> delay = rpc::RetryDelay(status)) {
    message += fmt::format("; try again in {}", absl::FormatDuration(*delay));
  }
  return absl::Status(status.code(), message);
}

InferenceClient::InferenceClient(std::string address, int cancel_fd, std::unique_ptr<Wire> wire)
    : address_(std::move(address)), cancel_fd_(cancel_fd), wire_(std::move(wire)) {}
InferenceClient::~InferenceClient() = default;

absl::StatusOr<std::unique_ptr<InferenceClient>> InferenceClient::Connect(const std::string& address,
                                                                          absl::Duration patience,
                                                                          int cancel_fd,
                                                                          const rpc::Security* security) {
  auto wire = std::make_unique<Wire>();
  wire->channel = rpc::MakeChannel(address, rpc::kPublicKeepalive, security);
  const absl::Time deadline = absl::Now() + std::max(patience, kFirstAttempt);
  while (true) {
    const grpc_connectivity_state state = wire->channel->GetState(/*try_to_connect=*/true);
    if (state == GRPC_CHANNEL_READY) break;
    const bool refused = state == GRPC_CHANNEL_TRANSIENT_FAILURE && patience == absl::ZeroDuration();
    if (refused || absl::Now() >= deadline) {
      return CantReach(address, wire->channel, security != nullptr && security->has_tls_channels());
    }
    pollfd cancel = {cancel_fd, POLLIN, 0};
    if (cancel_fd >= 0 && poll(&cancel, 1, 0) > 0) return Cancelled();
    wire->channel->WaitForStateChange(state, Deadline(kCancelCheck));
  }
  wire->stub = v1::Inference::NewStub(wire->channel);
  return std::unique_ptr<InferenceClient>(new InferenceClient(address, cancel_fd, std::move(wire)));
}

absl::Status InferenceClient::Generate(const v1::GenerateRequest& request, const StreamOptions& options,
                                       const OnEvent& on_event) {
  return RunStream<v1::GenerateResponse>(request, address_, options, on_event,
                                         [this](auto* context, const auto* sent, auto* reactor) {
                                           wire_->stub->async()->Generate(context, sent, reactor);
                                         });
}

absl::Status InferenceClient::Chat(const v1::ChatRequest& request, const StreamOptions& options,
                                   const OnEvent& on_event) {
  return RunStream<v1::ChatResponse>(request, address_, options, on_event,
                                     [this](auto* context, const auto* sent, auto* reactor) {
                                       wire_->stub->async()->Chat(context, sent, reactor);
                                     });
}

absl::StatusOr<v1::ListModelsResponse> InferenceClient::ListModels() {
  return Explained(
      RunUnary<v1::ListModelsResponse>(v1::ListModelsRequest(), kUnaryTimeout, cancel_fd_,
                                       [this](auto... call) { wire_->stub->async()->ListModels(call...); }),
      address_);
}

absl::Status InferenceClient::AwaitDecodeWorker(const std::string& model, absl::Time deadline) {
  while (absl::Now() < deadline) {
    const absl::StatusOr<v1::ListModelsResponse> listed = ListModels();
    if (listed.status() == Cancelled()) return listed.status();
    if (!listed.ok() && !absl::IsUnavailable(listed.status())) return absl::OkStatus();
    if (listed.ok()) {
      const auto asked =
          std::find_if(listed->models().begin(), listed->models().end(),
                       [&](const auto& info) { return model.empty() || info.name() == model; });
      if (asked == listed->models().end() || asked->ready_decode_workers() > 0) return absl::OkStatus();
    }
    pollfd cancel = {cancel_fd_, POLLIN, 0};
    if (poll(&cancel, 1, static_cast<int>(absl::ToInt64Milliseconds(kCancelCheck))) > 0) {
      return Cancelled();
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> InferenceClient::IsServing(const std::string& service, absl::Duration timeout) {
  return Explained(CheckHealth(wire_->channel, service, timeout, cancel_fd_), address_);
}

absl::StatusOr<v1::CountTokensResponse> InferenceClient::CountTokens(const v1::CountTokensRequest& request) {
  return Explained(
      RunUnary<v1::CountTokensResponse>(request, kUnaryTimeout, cancel_fd_,
                                        [this](auto... call) { wire_->stub->async()->CountTokens(call...); }),
      address_);
}

absl::StatusOr<v1::TokenizeResponse> InferenceClient::Tokenize(const v1::TokenizeRequest& request) {
  return Explained(
      RunUnary<v1::TokenizeResponse>(request, kUnaryTimeout, cancel_fd_,
                                     [this](auto... call) { wire_->stub->async()->Tokenize(call...); }),
      address_);
}

absl::StatusOr<v1::DetokenizeResponse> InferenceClient::Detokenize(const v1::DetokenizeRequest& request) {
  return Explained(
      RunUnary<v1::DetokenizeResponse>(request, kUnaryTimeout, cancel_fd_,
                                       [this](auto... call) { wire_->stub->async()->Detokenize(call...); }),
      address_);
}

}  // namespace baton::cli
