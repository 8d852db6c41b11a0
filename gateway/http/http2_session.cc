#include "gateway/http/http2_session.h"

#include <cstring>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"

namespace baton::gateway::http {
namespace {

constexpr int32_t kConnectionWindow = 1 << 20;
constexpr uint32_t kStreamWindow = 64 << 10;
constexpr size_t kOutgoingBytes = 32 << 10;
constexpr size_t kMaxContinuations = 8;
constexpr size_t kMaxSettings = 32;
constexpr size_t kMaxUnsentAcks = 1000;
// Control frames that a client earns with each DATA frame sent to it.
constexpr double kControlsForData = 3;
// A client that is told that the server leaves answers this.
constexpr uint8_t kLeavingPing[8] = {'l', 'e', 'a', 'v', 'i', 'n', 'g', 0};
constexpr absl::Duration kLeavingAnswer = absl::Seconds(1);

nghttp2_nv Field(const std::string& name, const std::string& value) {
  return {reinterpret_cast<uint8_t*>(const_cast<char*>(name.data())),
          reinterpret_cast<uint8_t*>(const_cast<char*>(value.data())), name.size(), value.size(),
          NGHTTP2_NV_FLAG_NONE};
}

std::vector<nghttp2_nv> Fields(const Headers& headers) {
  std::vector<nghttp2_nv> fields;
  for (const auto& [name, value] : headers) fields.push_back(Field(name, value));
  return fields;
}

std::string_view View(const uint8_t* bytes, size_t size) {
  return {reinterpret_cast<const char*>(bytes), size};
}

// A stream's place among those that there may be, as long as anything is done for it.
class Slot {
 public:
  Slot(Site& site, std::string address, std::shared_ptr<std::atomic<size_t>> busy)
      : loop_(site.loop), site_(site), address_(std::move(address)), busy_(std::move(busy)) {
    ++*busy_;
  }
  ~Slot() {
    --*busy_;
    // Once the loop has stopped the site may be gone, and this is dropped.
    loop_->Post([&site = site_, address = address_] { site.CloseStream(address); });
  }

 private:
  const std::shared_ptr<Loop> loop_;
  Site& site_;
  const std::string address_;
  const std::shared_ptr<std::atomic<size_t>> busy_;
};

}  // namespace

struct Http2Session::Callbacks {
  static Http2Session& Of(void* self) { return *static_cast<Http2Session*>(self); }
  static int Go(const Http2Session& self) { return self.flooded_ ? NGHTTP2_ERR_CALLBACK_FAILURE : 0; }

  static int BeginFrame(nghttp2_session*, const nghttp2_frame_hd* head, void* user) {
    if (!Of(user).OnFrame(*head)) Of(user).Flooded();
    return Go(Of(user));
  }
  static int BeginHeaders(nghttp2_session*, const nghttp2_frame* frame, void* user) {
    if (frame->hd.type == NGHTTP2_HEADERS && frame->headers.cat == NGHTTP2_HCAT_REQUEST) {
      Of(user).BeginStream(frame->hd.stream_id);
    }
    return Go(Of(user));
  }
  static int Header(nghttp2_session*, const nghttp2_frame* frame, const uint8_t* name, size_t name_size,
                    const uint8_t* value, size_t value_size, uint8_t, void* user) {
    if (Http2Stream* const stream = Of(user).Find(frame->hd.stream_id)) {
      stream->OnHeader(View(name, name_size), View(value, value_size));
    }
    return 0;
  }
  static int Frame(nghttp2_session*, const nghttp2_frame* frame, void* user) {
    Http2Session& self = Of(user);
    if (frame->hd.type == NGHTTP2_SETTINGS) self.introduced_ = true;
    if (frame->hd.type == NGHTTP2_PING && (frame->hd.flags & NGHTTP2_FLAG_ACK) != 0 &&
        std::memcmp(frame->ping.opaque_data, kLeavingPing, sizeof kLeavingPing) == 0) {
      self.TurnAway();
    }
    if (frame->hd.type == NGHTTP2_HEADERS) self.header_since_ = absl::InfiniteFuture();
    if (frame->hd.type != NGHTTP2_HEADERS && frame->hd.type != NGHTTP2_DATA) return Go(self);
    Http2Stream* const stream = self.Find(frame->hd.stream_id);
    if (stream == nullptr) return Go(self);
    if (frame->hd.type == NGHTTP2_HEADERS) stream->OnHead();
    if ((frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0) stream->OnLast();
    return Go(self);
  }
  static int Data(nghttp2_session* session, uint8_t, int32_t id, const uint8_t* data, size_t size,
                  void* user) {
    if (Http2Stream* const stream = Of(user).Find(id)) {
      stream->OnData(View(data, size));
    } else {
      nghttp2_session_consume(session, id, size);
    }
    return 0;
  }
  static int Invalid(nghttp2_session*, const nghttp2_frame* frame, int error, void* user) {
    // For each of these the server is about to send a reset, or to end the connection.
    Http2Session& self = Of(user);
    if (frame->hd.type == NGHTTP2_HEADERS) self.header_since_ = absl::InfiniteFuture();
    Allowance& allowance = error == NGHTTP2_ERR_REFUSED_STREAM ? self.controls_ : self.resets_;
    if (!allowance.Spend(self.now_)) self.Flooded();
    return Go(self);
  }
  static int Sent(nghttp2_session*, const nghttp2_frame* frame, void* user) {
    Of(user).OnSent(*frame);
    return 0;
  }
  static int Close(nghttp2_session*, int32_t id, uint32_t, void* user) {
    Of(user).EndStream(id);
    return 0;
  }
  static ssize_t Fill(nghttp2_session*, int32_t id, uint8_t* into, size_t room, uint32_t* flags,
                      nghttp2_data_source*, void* user) {
    Http2Stream* const stream = Of(user).Find(id);
    if (stream == nullptr) return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    size_t bytes = 0;
    switch (stream->Fill(reinterpret_cast<char*>(into), room, &bytes)) {
      case Http2Stream::Filled::kWait:
        return NGHTTP2_ERR_DEFERRED;
      case Http2Stream::Filled::kEnd:
        *flags |= NGHTTP2_DATA_FLAG_EOF;
        break;
      case Http2Stream::Filled::kEndWithTrailers:
        *flags |= NGHTTP2_DATA_FLAG_EOF | NGHTTP2_DATA_FLAG_NO_END_STREAM;
        break;
      case Http2Stream::Filled::kMore:
        break;
    }
    return static_cast<ssize_t>(bytes);
  }
};

Http2Session::Http2Session(Site& site, std::string address, absl::Time now, std::function<void()> wake)
    : site_(site),
      address_(std::move(address)),
      wake_(std::move(wake)),
      now_(now),
      begun_(now),
      heard_(now),
      idle_since_(now),
      resets_(site.options.reset_burst, site.options.resets_per_second, now),
      controls_(site.options.control_burst, site.options.controls_per_second, now) {
  nghttp2_session_callbacks* callbacks = nullptr;
  BATON_CHECK(nghttp2_session_callbacks_new(&callbacks) == 0);
  nghttp2_session_callbacks_set_on_begin_frame_callback(callbacks, Callbacks::BeginFrame);
  nghttp2_session_callbacks_set_on_begin_headers_callback(callbacks, Callbacks::BeginHeaders);
  nghttp2_session_callbacks_set_on_header_callback(callbacks, Callbacks::Header);
  nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, Callbacks::Frame);
  nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, Callbacks::Data);
  nghttp2_session_callbacks_set_on_invalid_frame_recv_callback(callbacks, Callbacks::Invalid);
  nghttp2_session_callbacks_set_on_frame_send_callback(callbacks, Callbacks::Sent);
  nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, Callbacks::Close);
  nghttp2_option* option = nullptr;
  BATON_CHECK(nghttp2_option_new(&option) == 0);
  nghttp2_option_set_no_auto_window_update(option, 1);
  nghttp2_option_set_no_closed_streams(option, 1);
  nghttp2_option_set_max_outbound_ack(option, kMaxUnsentAcks);
  nghttp2_option_set_max_settings(option, kMaxSettings);
  nghttp2_option_set_max_continuations(option, kMaxContinuations);
  // Its own limit of resets stands behind ours.
  nghttp2_option_set_stream_reset_rate_limit(option, 2 * site.options.reset_burst,
                                             2 * site.options.resets_per_second);
  BATON_CHECK(nghttp2_session_server_new2(&session_, callbacks, this, option) == 0);
  nghttp2_option_del(option);
  nghttp2_session_callbacks_del(callbacks);
  const nghttp2_settings_entry settings[] = {
      {NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS,
       static_cast<uint32_t>(site.options.max_streams_per_connection)},
      {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, kStreamWindow},
      {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, static_cast<uint32_t>(site.options.max_header_bytes)}};
  nghttp2_submit_settings(session_, NGHTTP2_FLAG_NONE, settings, std::size(settings));
  nghttp2_session_set_local_window_size(session_, NGHTTP2_FLAG_NONE, 0, kConnectionWindow);
}

Http2Session::~Http2Session() {
  Close();
  nghttp2_session_del(session_);
}

bool Http2Session::Receive(std::string_view bytes, absl::Time now) {
  now_ = heard_ = now;
  pinged_ = false;
  if (flooded_) return false;
  const ssize_t taken =
      nghttp2_session_mem_recv(session_, reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
  if (taken == NGHTTP2_ERR_FLOODED || taken == NGHTTP2_ERR_TOO_MANY_CONTINUATIONS) Flooded();
  return taken == static_cast<ssize_t>(bytes.size()) && !flooded_;
}

std::string Http2Session::Outgoing(absl::Time now) {
  now_ = now;
  std::string bytes;
  while (bytes.size() < kOutgoingBytes) {
    const uint8_t* more = nullptr;
    const ssize_t size = nghttp2_session_mem_send(session_, &more);
    if (size <= 0) break;
    bytes += View(more, static_cast<size_t>(size));
  }
  return bytes;
}

void Http2Session::Written() {
  for (const auto& taken : std::exchange(taken_, {})) taken();
}

bool Http2Session::Tick(absl::Time now) {
  now_ = now;
  const ServerOptions& options = site_.options;
  if (!introduced_ && now > begun_ + options.header_timeout) return false;
  if (now > header_since_ + options.header_timeout && !leaving_) return false;
  if (leaving_ && now > turns_away_at_) TurnAway();
  if (streams_.empty()) {
    if (now > idle_since_ + options.idle_timeout) Leave(now);
    return true;
  }
  if (now > heard_ + 2 * options.ping_after) return false;
  if (now > heard_ + options.ping_after && !std::exchange(pinged_, true)) {
    nghttp2_submit_ping(session_, NGHTTP2_FLAG_NONE, nullptr);
  }
  for (const auto& [id, stream] : streams_) {
    if (!stream->Tick(now)) Reset(id, NGHTTP2_CANCEL);
  }
  return true;
}

void Http2Session::Leave(absl::Time now) {
  if (std::exchange(leaving_, true)) return;
  turns_away_at_ = now + kLeavingAnswer;
  nghttp2_submit_shutdown_notice(session_);
}

void Http2Session::TurnAway() {
  if (!leaving_ || std::exchange(turned_away_, true)) return;
  nghttp2_submit_goaway(session_, NGHTTP2_FLAG_NONE, nghttp2_session_get_last_proc_stream_id(session_),
                        NGHTTP2_NO_ERROR, nullptr, 0);
}

void Http2Session::Close() {
  const auto streams = std::exchange(streams_, {});
  for (const auto& [unused, stream] : streams) stream->OnClosed();
  taken_.clear();
}

bool Http2Session::over() const {
  return flooded_ || (turned_away_ && streams_.empty()) ||
         (nghttp2_session_want_read(session_) == 0 && nghttp2_session_want_write(session_) == 0);
}

void Http2Session::SubmitHead(int32_t id, int status, const Headers& headers, bool end) {
  const std::string name = ":status", value = absl::StrCat(status);
  std::vector<nghttp2_nv> fields = Fields(headers);
  fields.insert(fields.begin(), Field(name, value));
  const nghttp2_data_provider data = {.source = {.ptr = nullptr}, .read_callback = Callbacks::Fill};
  nghttp2_submit_response(session_, id, fields.data(), fields.size(), end ? nullptr : &data);
}

void Http2Session::SubmitTrailers(int32_t id, const Headers& trailers) {
  const std::vector<nghttp2_nv> fields = Fields(trailers);
  nghttp2_submit_trailer(session_, id, fields.data(), fields.size());
}

void Http2Session::Resume(int32_t id) { nghttp2_session_resume_data(session_, id); }

void Http2Session::Reset(int32_t id, uint32_t code) {
  nghttp2_submit_rst_stream(session_, NGHTTP2_FLAG_NONE, id, code);
}

void Http2Session::Consume(int32_t id, size_t bytes) { nghttp2_session_consume(session_, id, bytes); }

Http2Stream* Http2Session::Find(int32_t id) {
  const auto found = streams_.find(id);
  return found == streams_.end() ? nullptr : found->second.get();
}

void Http2Session::BeginStream(int32_t id) {
  const bool room = *busy_ < 2 * site_.options.max_streams_per_connection;
  if (!room || !site_.OpenStream(address_)) {
    if (!room) site_.Count(site_.refused_streams);
    if (!controls_.Spend(now_)) Flooded();
    return Reset(id, NGHTTP2_REFUSED_STREAM);
  }
  const auto slot = std::make_shared<Slot>(site_, address_, busy_);
  streams_.emplace(id, std::make_shared<Http2Stream>(site_, *this, id, address_, slot));
}

void Http2Session::EndStream(int32_t id) {
  const auto found = streams_.find(id);
  if (found == streams_.end()) return;
  const std::shared_ptr<Http2Stream> stream = std::move(found->second);
  streams_.erase(found);
  if (streams_.empty()) idle_since_ = now_;
  stream->OnClosed();
}

bool Http2Session::OnFrame(const nghttp2_frame_hd& head) {
  if (head.type != NGHTTP2_CONTINUATION) header_since_ = absl::InfiniteFuture();
  switch (head.type) {
    case NGHTTP2_HEADERS:
      header_since_ = now_;
      return true;
    case NGHTTP2_DATA:
      return head.length > 0 || (head.flags & NGHTTP2_FLAG_END_STREAM) != 0 || controls_.Spend(now_);
    case NGHTTP2_RST_STREAM:
      return resets_.Spend(now_);
    default:
      return controls_.Spend(now_);
  }
}

void Http2Session::OnSent(const nghttp2_frame& frame) {
  // Pings pass all that waits to be sent, so this one comes behind the notice.
  if (frame.hd.type == NGHTTP2_GOAWAY && leaving_ && !turned_away_) {
    nghttp2_submit_ping(session_, NGHTTP2_FLAG_NONE, kLeavingPing);
  }
  if (frame.hd.type == NGHTTP2_DATA) controls_.Earn(kControlsForData);
  if (frame.hd.type != NGHTTP2_DATA && frame.hd.type != NGHTTP2_HEADERS) return;
  if ((frame.hd.flags & NGHTTP2_FLAG_END_STREAM) == 0) return;
  // The client's further data would be read for nothing (RFC 9113, 8.1).
  Http2Stream* const stream = Find(frame.hd.stream_id);
  if (stream != nullptr && stream->OnEndSent()) Reset(frame.hd.stream_id, NGHTTP2_NO_ERROR);
}

void Http2Session::Flooded() {
  if (std::exchange(flooded_, true)) return;
  site_.Count(site_.floods);
  nghttp2_session_terminate_session(session_, NGHTTP2_ENHANCE_YOUR_CALM);
}

}  // namespace baton::gateway::http
