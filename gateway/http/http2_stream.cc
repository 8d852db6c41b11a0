#include "gateway/http/http2_stream.h"

#include <nghttp2/nghttp2.h>

#include <algorithm>
#include <cstring>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace baton::gateway::http {
namespace {

// Overhead in bytes of a field (RFC 9113, 6.5.2), and of a message that waits.
constexpr size_t kFieldBytes = 32;
constexpr size_t kMessageBytes = 64;

constexpr int kUnavailable = 14, kResourceExhausted = 8, kUnimplemented = 12, kInternal = 13,
              kInvalidArgument = 3, kDeadlineExceeded = 4;

bool IsConnectionHeader(std::string_view name) {
  return name == "connection" || name == "transfer-encoding" || name == "keep-alive";
}

Headers HeadersOf(const Response& response) {
  Headers headers = {{"content-type", response.content_type}};
  for (const auto& [name, value] : response.headers) {
    std::string small = absl::AsciiStrToLower(name);
    if (!IsConnectionHeader(small)) headers.emplace_back(std::move(small), value);
  }
  return headers;
}

}  // namespace

// The handler's side of a call. It may outlive the stream.
class Http2Stream::GrpcCall final : public Call {
 public:
  GrpcCall(Http2Stream& stream, std::shared_ptr<void> slot)
      : loop_(stream.site_.loop),
        stream_(stream.weak_from_this()),
        slot_(std::move(slot)),
        method_(stream.request_.path),
        metadata_(std::move(stream.metadata_)),
        address_(stream.request_.address),
        deadline_(stream.deadline_) {}
  ~GrpcCall() override {
    loop_->Post([weak = stream_] {
      const auto stream = weak.lock();
      if (stream != nullptr && !stream->ended_ && !stream->closed_) {
        stream->port_.Reset(stream->id_, NGHTTP2_INTERNAL_ERROR);
        stream->port_.Wake();
      }
    });
  }

  const std::string& method() const override { return method_; }
  const Headers& metadata() const override { return metadata_; }
  const std::string& address() const override { return address_; }
  absl::Time deadline() const override { return deadline_; }

  void Listen(CallEvents events) override {
    loop_->Post([weak = stream_, events = std::move(events)]() mutable {
      const auto stream = weak.lock();
      if (stream == nullptr || stream->closed_) return events.cancelled();
      stream->Listen(std::move(events));
    });
  }
  void Took() override {
    Run([](Http2Stream& stream) { stream.Took(); });
  }
  void Begin(Headers metadata) override {
    Run([metadata = std::move(metadata)](Http2Stream& stream) mutable {
      if (stream.head_sent_) return;
      metadata.insert(metadata.begin(), {"content-type", "application/grpc"});
      stream.Head(200, metadata, false);
    });
  }
  void Send(std::string message, std::function<void()> taken) override {
    Run([message = std::move(message), taken = std::move(taken)](Http2Stream& stream) mutable {
      if (!stream.head_sent_) stream.Head(200, {{"content-type", "application/grpc"}}, false);
      stream.Queue(MessagePrefix(message.size()) + message, std::move(taken));
    });
  }
  void Finish(CallEnd end) override {
    Run([end = std::move(end)](Http2Stream& stream) mutable { stream.Finish(std::move(end)); });
  }
  void Post(std::function<void()> what) override { loop_->Post(std::move(what)); }

 private:
  template <typename Do>
  void Run(Do what) {
    loop_->Post([weak = stream_, what = std::move(what)]() mutable {
      const auto stream = weak.lock();
      if (stream == nullptr || stream->closed_ || stream->ended_) return;
      what(*stream);
    });
  }

  const std::shared_ptr<Loop> loop_;
  const std::weak_ptr<Http2Stream> stream_;
  const std::shared_ptr<void> slot_;
  const std::string method_;
  const Headers metadata_;
  const std::string address_;
  const absl::Time deadline_;
};

Http2Stream::Http2Stream(Site& site, StreamPort& port, int32_t id, std::string address,
                         std::shared_ptr<void> slot)
    : site_(site),
      port_(port),
      id_(id),
      slot_(std::move(slot)),
      begun_(port.now()),
      held_(site.UnfinishedOf(address)),
      held_out_(site.budget),
      reader_(site.options.max_message_bytes) {
  request_.address = std::move(address);
}

void Http2Stream::OnHeader(std::string_view name, std::string_view value) {
  header_bytes_ += name.size() + value.size() + kFieldBytes;
  // Fields beyond the limit, and trailers, are dropped.
  if (headed_ || header_bytes_ > site_.options.max_header_bytes) return;
  if (name == ":method") {
    request_.method = value;
  } else if (name == ":path") {
    request_.path = value;
  } else if (name == ":authority") {
    request_.headers.emplace_back("host", value);
  } else if (!name.starts_with(':')) {
    request_.headers.emplace_back(name, value);
  }
}

void Http2Stream::OnHead() {
  if (std::exchange(headed_, true)) return;
  const std::string_view type = request_.Header("content-type");
  grpc_ = IsGrpc(type);
  if (header_bytes_ > site_.options.max_header_bytes) {
    constexpr const char* kTooLong = "the header is too long";
    return grpc_ ? RefuseCall(kResourceExhausted, kTooLong) : Refuse(431, kTooLong);
  }
  if (!grpc_) {
    request_.path = request_.path.substr(0, request_.path.find('?'));
    size_t length = 0;
    const std::string told(request_.Header("content-length"));
    if (absl::SimpleAtoi(told, &length) && length > site_.options.max_body_bytes) TooLarge();
    return;
  }
  if (site_.call_handler == nullptr) return Refuse(415, "there is no gRPC here");
  if (request_.method != "POST") return Refuse(405, "gRPC calls are POST");
  const std::string_view encoding = request_.Header("grpc-encoding");
  if (!encoding.empty() && encoding != "identity") {
    return RefuseCall(kUnimplemented, "compressed messages are not taken: use grpc-encoding identity");
  }
  if (const std::string_view timeout = request_.Header("grpc-timeout"); !timeout.empty()) {
    const auto duration = ParseTimeout(timeout);
    if (!duration.ok()) return RefuseCall(kInvalidArgument, std::string(duration.status().message()));
    deadline_ = absl::Now() + *duration;
  }
  auto metadata = MetadataOf(request_.headers);
  if (!metadata.ok()) return RefuseCall(kInvalidArgument, std::string(metadata.status().message()));
  metadata_ = *std::move(metadata);
  request_.headers.clear();
  message_since_ = port_.now();
}

void Http2Stream::OnData(std::string_view bytes) {
  if (refused_ || ended_) return port_.Consume(id_, bytes.size());
  if (grpc_) return OnMessages(bytes);
  port_.Consume(id_, bytes.size());
  if (request_.body.size() + bytes.size() > site_.options.max_body_bytes) {
    return TooLarge();
  }
  if (!held_.Become(request_.body.size() + bytes.size())) return Refuse(503, kNoRoom);
  request_.body += bytes;
}

void Http2Stream::OnLast() {
  last_ = true;
  if (refused_ || ended_) return;
  if (grpc_) {
    if (!reader_.between()) return RefuseCall(kInternal, "the last message is cut");
    return Deliver();
  }
  Asked();
  turn_ = std::make_shared<Turn>(site_.loop, weak_from_this(), std::move(request_), std::move(held_),
                                 Held(site_.budget));
  site_.handler(Turn::Handle(turn_, slot_));
}

void Http2Stream::OnClosed() {
  if (std::exchange(closed_, true)) return;
  const auto self = shared_from_this();
  if (turn_ != nullptr) end_sent_ ? turn_->Over() : turn_->Gone();
  turn_ = nullptr;
  const CallEvents events = std::exchange(events_, {});
  if (events.cancelled != nullptr && !end_sent_) events.cancelled();
  out_.clear();
  messages_.clear();
  // The connection's window is others' as well.
  if (unconsumed_ > 0) port_.Consume(id_, std::exchange(unconsumed_, 0));
  held_out_.Be(0);
  held_.Be(0);
  slot_ = nullptr;
  if (asked_) port_.Asked(-1);
}

bool Http2Stream::OnEndSent() {
  end_sent_ = true;
  return !last_;
}

Http2Stream::Filled Http2Stream::Fill(char* into, size_t room, size_t* bytes) {
  *bytes = 0;
  while (!out_.empty()) {
    Piece& piece = out_.front();
    const size_t size = std::min(room - *bytes, piece.bytes.size() - out_offset_);
    if (size > 0) std::memcpy(into + *bytes, piece.bytes.data() + out_offset_, size);
    *bytes += size;
    out_offset_ += size;
    if (out_offset_ < piece.bytes.size()) break;
    if (piece.taken) port_.Left(std::move(piece.taken));
    out_bytes_ -= piece.bytes.size();
    out_offset_ = 0;
    out_.pop_front();
  }
  if (*bytes > 0) progress_ = port_.now();
  held_out_.Be(out_bytes_);
  if (!out_.empty()) return Filled::kMore;
  if (ended_) {
    if (!has_trailers_) return Filled::kEnd;
    port_.SubmitTrailers(id_, trailers_);
    return Filled::kEndWithTrailers;
  }
  if (*bytes > 0) return Filled::kMore;
  waiting_ = true;
  return Filled::kWait;
}

bool Http2Stream::Tick(absl::Time now) {
  if (!out_.empty() && now > progress_ + site_.options.send_timeout) return false;
  if (!headed_ || last_ || ended_) return true;
  if (!grpc_) return now <= begun_ + site_.options.body_timeout;
  if (!call_begun_ && absl::Now() > deadline_) return false;
  if (now <= message_since_ + site_.options.body_timeout) return true;
  // The router has not heard of it.
  if (call_begun_ || !reader_.between()) return false;
  RefuseCall(kDeadlineExceeded,
             absl::StrCat("no message came within ", absl::FormatDuration(site_.options.body_timeout),
                          " of the call's headers: open it when there is one to send"));
  return true;
}

// --- A request and its turn

void Http2Stream::Refuse(int status, const std::string& why) {
  refused_ = true;
  const Response response = site_.Refusal(status, request_.path, why);
  request_ = {};
  held_.Become(0);
  site_.Count(site_.bad);
  ended_ = true;
  Head(status, HeadersOf(response), false);
  out_bytes_ += response.body.size();
  out_.push_back({response.body, nullptr});
}

void Http2Stream::TooLarge() {
  Refuse(413, absl::StrCat("the body is longer than ", site_.options.max_body_bytes, " bytes"));
}

void Http2Stream::SendAnswer(Turn& turn, Response response) {
  Headers headers = HeadersOf(response);
  headers.emplace_back("content-length", absl::StrCat(response.body.size()));
  const bool no_body = response.body.empty() || turn.request().method == "HEAD";
  ended_ = true;
  Head(response.status, headers, no_body);
  if (!no_body) Queue(std::move(response.body), nullptr);
  port_.Wake();
}

void Http2Stream::SendHead(Turn&, Response response) {
  Head(response.status, HeadersOf(response), false);
  if (!response.body.empty()) Queue(std::move(response.body), nullptr);
  port_.Wake();
}

void Http2Stream::SendPiece(Turn&, std::string piece, std::function<void()> taken) {
  Queue(std::move(piece), std::move(taken));
}

void Http2Stream::SendEnd(Turn&) {
  ended_ = true;
  if (std::exchange(waiting_, false)) port_.Resume(id_);
  port_.Wake();
}

void Http2Stream::Cut(Turn&) {
  port_.Reset(id_, NGHTTP2_INTERNAL_ERROR);
  port_.Wake();
}

// --- A call

void Http2Stream::RefuseCall(int code, const std::string& why) {
  refused_ = true;
  site_.Count(site_.bad);
  messages_.clear();
  message_since_ = absl::InfiniteFuture();
  if (const auto cancelled = std::exchange(events_, {}).cancelled) cancelled();
  Finish({.code = code, .message = why});
  if (unconsumed_ > 0) port_.Consume(id_, std::exchange(unconsumed_, 0));
}

void Http2Stream::OnMessages(std::string_view bytes) {
  unconsumed_ += bytes.size();
  while (!bytes.empty()) {
    switch (reader_.Read(&bytes)) {
      case MessageReader::Found::kCompressed:
        return RefuseCall(kUnimplemented, "compressed messages are not taken: use grpc-encoding identity");
      case MessageReader::Found::kTooLong:
        return RefuseCall(kResourceExhausted, absl::StrCat("the message is longer than ",
                                                           site_.options.max_message_bytes, " bytes"));
      case MessageReader::Found::kMessage:
        messages_.push_back(reader_.Take());
        message_bytes_ += messages_.back().size() + kMessageBytes;
        message_since_ = absl::InfiniteFuture();
        break;
      case MessageReader::Found::kNothing:
        break;
    }
  }
  if (!held_.Become(message_bytes_ + reader_.held())) {
    return RefuseCall(kUnavailable, kNoRoom);
  }
  if (!reader_.between() && message_since_ == absl::InfiniteFuture()) message_since_ = port_.now();
  Deliver();
  if (messages_.empty() && unconsumed_ > 0) port_.Consume(id_, std::exchange(unconsumed_, 0));
}

void Http2Stream::Deliver() {
  if (!call_begun_) {
    if (!messages_.empty() || last_) BeginCall();
    return;
  }
  if (!listening_ || passing_ || ended_ || closed_) return;
  if (!messages_.empty()) {
    passing_ = true;
    std::string message = std::move(messages_.front());
    messages_.pop_front();
    under_way_ = message.size() + kMessageBytes;
    return events_.message(std::move(message));
  }
  if (last_ && !std::exchange(told_last_, true)) events_.last();
}

void Http2Stream::Asked() {
  asked_ = true;
  port_.Asked(1);
  held_.MoveTo(site_.budget);
}

void Http2Stream::BeginCall() {
  call_begun_ = true;
  Asked();
  site_.call_handler(std::make_shared<GrpcCall>(*this, slot_));
}

void Http2Stream::Listen(CallEvents events) {
  if (ended_) return events.cancelled();
  events_ = std::move(events);
  listening_ = true;
  Took();
}

void Http2Stream::Took() {
  passing_ = false;
  message_bytes_ -= std::exchange(under_way_, 0);
  Deliver();
  held_.Be(message_bytes_ + reader_.held());
  if (messages_.empty() && unconsumed_ > 0) {
    port_.Consume(id_, std::exchange(unconsumed_, 0));
    port_.Wake();
  }
}

// --- The answer

void Http2Stream::Head(int status, const Headers& headers, bool end) {
  head_sent_ = true;
  progress_ = port_.now();
  port_.SubmitHead(id_, status, headers, end);
}

void Http2Stream::Queue(std::string bytes, std::function<void()> taken) {
  if (out_.empty()) progress_ = port_.now();
  out_bytes_ += bytes.size();
  held_out_.Be(out_bytes_);
  out_.push_back({std::move(bytes), std::move(taken)});
  if (std::exchange(waiting_, false)) port_.Resume(id_);
  port_.Wake();
}

void Http2Stream::Finish(CallEnd end) {
  if (std::exchange(ended_, true)) return;
  Headers trailers = {{"grpc-status", absl::StrCat(end.code)}};
  if (!end.message.empty()) trailers.emplace_back("grpc-message", PercentEncoded(end.message));
  trailers.insert(trailers.end(), std::make_move_iterator(end.trailers.begin()),
                  std::make_move_iterator(end.trailers.end()));
  if (!head_sent_) {
    trailers.insert(trailers.begin(), {"content-type", "application/grpc"});
    Head(200, trailers, true);
  } else {
    has_trailers_ = true;
    trailers_ = std::move(trailers);
    if (std::exchange(waiting_, false)) port_.Resume(id_);
  }
  if (!refused_) port_.Wake();
}

}  // namespace baton::gateway::http
