#include "common/telemetry/otlp_exporter.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/http/write.hpp>
#include <chrono>
#include <deque>
#include <functional>
#include <iterator>
#include <optional>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"

namespace baton::telemetry {
namespace {

namespace otlp_asio = boost::asio;
namespace otlp_http = boost::beast::http;
using OtlpError = boost::system::error_code;
using OtlpTcp = boost::asio::ip::tcp;

constexpr char kScheme[] = "http://";
constexpr char kDefaultPort[] = "4318";
constexpr char kTracesPath[] = "/v1/traces";
constexpr size_t kMaxResponseBytes = 64 << 10;
constexpr absl::Duration kLongestRetryDelay = absl::Seconds(5);

// How often a wait for the network looks whether it should end.
constexpr std::chrono::milliseconds kOtlpLook(50);

// One connection to a collector, opened when it is needed and kept for the next batch. One thread.
class OtlpConnection {
 public:
  // A wait ends early once `give_up` is true.
  OtlpConnection(const OtlpEndpoint& endpoint, std::function<bool()> give_up)
      : endpoint_(endpoint), give_up_(std::move(give_up)) {}

  struct Response {
    OtlpError error;  // no response came
    unsigned status = 0;
    std::string body;
  };
  // Within `limit` for each step.
  Response Post(const std::string& body, absl::Duration limit) {
    const bool reused = stream_.has_value();
    Response response = TryPost(body, limit);
    // The collector may have closed a connection that was idle.
    if (response.error && reused) response = TryPost(body, limit);
    return response;
  }

 private:
  Response TryPost(const std::string& body, absl::Duration limit) {
    Response response;
    if (!stream_.has_value()) response.error = Connect(limit);
    if (!response.error) Exchange(body, limit, &response);
    if (response.error) stream_.reset();
    return response;
  }

  // Runs the operation that sets `done`. It ends in any case: a closed stream ends what it waits for.
  OtlpError Run(const std::optional<OtlpError>& done) {
    io_.restart();
    while (!done.has_value()) {
      if (io_.run_one_for(kOtlpLook) == 0 && give_up_()) stream_->close();
    }
    return *done;
  }

  OtlpError Connect(absl::Duration limit) {
    OtlpError error;
    OtlpTcp::resolver resolver(io_);
    const auto found = resolver.resolve(endpoint_.host, endpoint_.port, error);
    if (error) return error;
    stream_.emplace(io_);
    stream_->expires_after(absl::ToChronoNanoseconds(limit));
    std::optional<OtlpError> done;
    stream_->async_connect(found, [&done](OtlpError failed, const OtlpTcp::endpoint&) { done = failed; });
    return Run(done);
  }

  void Exchange(const std::string& body, absl::Duration limit, Response* response) {
    otlp_http::request<otlp_http::string_body> request(otlp_http::verb::post, endpoint_.path, 11);
    request.set(otlp_http::field::host, absl::StrCat(endpoint_.host, ":", endpoint_.port));
    request.set(otlp_http::field::content_type, "application/json");
    request.set(otlp_http::field::user_agent, "baton");
    request.keep_alive(true);
    request.body() = body;
    request.prepare_payload();
    stream_->expires_after(absl::ToChronoNanoseconds(limit));
    std::optional<OtlpError> done;
    otlp_http::async_write(*stream_, request, [&done](OtlpError failed, size_t) { done = failed; });
    response->error = Run(done);
    if (response->error) return;
    otlp_http::response_parser<otlp_http::string_body> parser;
    parser.body_limit(kMaxResponseBytes);
    boost::beast::flat_buffer buffer;
    done.reset();
    otlp_http::async_read(*stream_, buffer, parser, [&done](OtlpError failed, size_t) { done = failed; });
    response->error = Run(done);
    if (response->error) return;
    response->status = parser.get().result_int();
    response->body = std::move(parser.get().body());
    if (!parser.get().keep_alive()) stream_.reset();
  }

  const OtlpEndpoint endpoint_;
  const std::function<bool()> give_up_;
  otlp_asio::io_context io_{1};
  std::optional<boost::beast::tcp_stream> stream_;  // none: not connected
};

// OTLP's list of answers after which a batch may be sent again.
bool OtlpRetryable(unsigned status) {
  return status == 429 || status == 502 || status == 503 || status == 504;
}

}  // namespace

absl::StatusOr<OtlpEndpoint> ParseOtlpEndpoint(std::string_view url) {
  const auto wrong = [url](std::string_view why) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", std::string(url), "\" ", std::string(why), ": use http://HOST:PORT"));
  };
  if (url.rfind("https://", 0) == 0) return wrong("speaks TLS, which is not supported here");
  if (url.rfind(kScheme, 0) != 0) return wrong("does not begin with http://");
  std::string_view rest = url.substr(sizeof(kScheme) - 1);
  OtlpEndpoint endpoint;
  const size_t slash = rest.find('/');
  if (slash != std::string_view::npos) endpoint.path = rest.substr(slash);
  while (!endpoint.path.empty() && endpoint.path.back() == '/') endpoint.path.pop_back();
  endpoint.path += kTracesPath;
  rest = rest.substr(0, slash);
  const size_t colon = rest.rfind(':');
  // The colons of an IPv6 address are inside brackets.
  const bool has_port = colon != std::string_view::npos && rest.find(']', colon) == std::string_view::npos;
  endpoint.host = rest.substr(0, has_port ? colon : rest.size());
  endpoint.port = has_port ? rest.substr(colon + 1) : kDefaultPort;
  if (endpoint.host.size() >= 2 && endpoint.host.front() == '[' && endpoint.host.back() == ']') {
    endpoint.host = endpoint.host.substr(1, endpoint.host.size() - 2);
  }
  if (endpoint.host.empty()) return wrong("names no host");
  for (const char c : url) {
    if (c <= ' ' || c == 0x7f || c == '@' || c == '?' || c == '#') {
      return wrong("has a character that is not allowed");
    }
  }
  uint32_t port = 0;
  if (!absl::SimpleAtoi(endpoint.port, &port) || port == 0 || port > 65535) return wrong("has no valid port");
  return endpoint;
}

class OtlpExporter::Impl {
 public:
  Impl(OtlpExporterOptions options, const OtlpEndpoint& endpoint, Metrics& metrics)
      : options_(std::move(options)),
        exported_(metrics.Counter("baton_trace_spans_exported_total", "Spans that the collector took")),
        overflowed_(Dropped(metrics, "queue")),
        unsent_(Dropped(metrics, "collector")),
        rejected_(Dropped(metrics, "rejected")),
        connection_(endpoint, [this] { return Limit() == absl::ZeroDuration(); }),
        thread_([this] { Run(); }) {}

  ~Impl() {
    {
      absl::MutexLock lock(&mutex_);
      stop_by_ = absl::Now() + options_.flush;
    }
    thread_.join();
  }

  void Add(std::vector<Span> spans) {
    absl::MutexLock lock(&mutex_);
    const size_t room = options_.max_queued - std::min(options_.max_queued, queue_.size());
    const size_t taken = std::min(room, spans.size());
    if (queue_.empty() && taken > 0) oldest_ = absl::Now();
    queue_.insert(queue_.end(), std::make_move_iterator(spans.begin()),
                  std::make_move_iterator(spans.begin() + static_cast<std::ptrdiff_t>(taken)));
    if (taken < spans.size()) overflowed_.Increment(static_cast<double>(spans.size() - taken));
  }

 private:
  static prometheus::Counter& Dropped(Metrics& metrics, const std::string& reason) {
    return metrics.Counter("baton_trace_spans_dropped_total",
                           "Spans that no collector took: the queue was full, the collector was away or "
                           "refused the batch, or it rejected them",
                           {{"reason", reason}});
  }

  bool stopping() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return stop_by_ != absl::InfiniteFuture(); }

  // The next batch; empty: it is over.
  std::vector<Span> Next() {
    absl::MutexLock lock(&mutex_);
    const auto any = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return !queue_.empty() || stopping(); };
    mutex_.Await(absl::Condition(&any));
    const auto due = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return queue_.size() >= options_.max_batch || stopping();
    };
    mutex_.AwaitWithDeadline(absl::Condition(&due), oldest_ + options_.delay);
    const auto end =
        queue_.begin() + static_cast<std::ptrdiff_t>(std::min(queue_.size(), options_.max_batch));
    std::vector<Span> batch(std::make_move_iterator(queue_.begin()), std::make_move_iterator(end));
    queue_.erase(queue_.begin(), end);
    return batch;
  }

  // Time that a step may take now; zero: the destructor waits no longer.
  absl::Duration Limit() {
    absl::MutexLock lock(&mutex_);
    return std::clamp(stop_by_ - absl::Now(), absl::ZeroDuration(), options_.timeout);
  }

  void Run() {
    while (true) {
      const std::vector<Span> batch = Next();
      if (batch.empty()) return;
      Send(batch);
    }
  }

  void Send(const std::vector<Span>& batch) {
    const std::string body = TracesToJson(options_.resource, batch);
    const auto spans = static_cast<double>(batch.size());
    absl::Duration pause = options_.retry_delay;
    std::string trouble = "the process is leaving";
    for (int i = 0; i < options_.tries; ++i) {
      const absl::Duration limit = Limit();
      if (limit == absl::ZeroDuration()) break;
      const OtlpConnection::Response response = connection_.Post(body, limit);
      if (!response.error && response.status / 100 == 2) {
        const double rejected = std::min(spans, static_cast<double>(RejectedSpans(response.body)));
        exported_.Increment(spans - rejected);
        if (rejected > 0) rejected_.Increment(rejected);
        if (std::exchange(away_, false)) spdlog::info("the collector at {} takes spans again", options_.url);
        return;
      }
      trouble = response.error ? response.error.message() : absl::StrCat("it answered ", response.status);
      if (!response.error && !OtlpRetryable(response.status)) break;
      if (i + 1 < options_.tries) Pause(pause);
      pause = std::min(2 * pause, kLongestRetryDelay);
    }
    unsent_.Increment(spans);
    if (!std::exchange(away_, true)) {
      spdlog::warn("spans are dropped, because the collector at {} does not take them: {}", options_.url,
                   trouble);
    }
  }

  // Not when the process is leaving.
  void Pause(absl::Duration pause) {
    absl::MutexLock lock(&mutex_);
    const auto leaving = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return stopping(); };
    mutex_.AwaitWithTimeout(absl::Condition(&leaving), pause);
  }

  const OtlpExporterOptions options_;
  prometheus::Counter& exported_;
  prometheus::Counter& overflowed_;
  prometheus::Counter& unsent_;
  prometheus::Counter& rejected_;
  absl::Mutex mutex_;
  std::deque<Span> queue_ ABSL_GUARDED_BY(mutex_);
  absl::Time oldest_ ABSL_GUARDED_BY(mutex_);  // since when the first of them waits
  absl::Time stop_by_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteFuture();
  // The thread's.
  OtlpConnection connection_;
  bool away_ = false;
  std::thread thread_;
};

absl::StatusOr<std::unique_ptr<OtlpExporter>> OtlpExporter::Start(OtlpExporterOptions options,
                                                                  Metrics& metrics) {
  absl::StatusOr<OtlpEndpoint> endpoint = ParseOtlpEndpoint(options.url);
  if (!endpoint.ok()) return endpoint.status();
  return std::unique_ptr<OtlpExporter>(
      new OtlpExporter(std::make_unique<Impl>(std::move(options), *endpoint, metrics)));
}

OtlpExporter::OtlpExporter(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

OtlpExporter::~OtlpExporter() = default;

void OtlpExporter::Add(std::vector<Span> spans) { impl_->Add(std::move(spans)); }

}  // namespace baton::telemetry
