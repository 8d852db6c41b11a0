// Http2Session: one client that speaks HTTP/2: bytes in, bytes out, streams between, without sockets and
// clocks of its own. nghttp2 knows the protocol; what a client may ask of it, how often and for how long, is
// bounded here. On the server's thread.
#pragma once

#include <nghttp2/nghttp2.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "absl/time/time.h"
#include "gateway/http/allowance.h"
#include "gateway/http/http2_stream.h"
#include "gateway/http/site.h"

namespace baton::gateway::http {

class Http2Session final : public StreamPort {
 public:
  // `wake`: there is something to send; never within Receive, Outgoing or Tick.
  Http2Session(Site& site, std::string address, absl::Time now, std::function<void()> wake);
  ~Http2Session();

  // Takes received bytes. False: that was the end; what Outgoing still gives may say why.
  bool Receive(std::string_view bytes, absl::Time now);
  // Returns bytes to send, some ten thousand at most; nothing: there is nothing now.
  std::string Outgoing(absl::Time now);
  // The last of it has left.
  void Written();
  // False: the client's time is over.
  bool Tick(absl::Time now);
  // No new streams; the open ones go on. The client is told first and then asked for an answer (RFC
  // 9113, 6.8): streams that it opened before it knew still begin. A client whose new stream is turned away
  // at once may end the whole connection, as gRPC's does.
  void Leave(absl::Time now);
  // The client is gone.
  void Close();
  // Nothing will come any more and nothing will be sent.
  bool over() const;
  bool leaving() const { return leaving_; }
  // A request has come whole, or a call has begun, and its stream is open.
  bool asked() const { return asked_ > 0; }

  // StreamPort
  void SubmitHead(int32_t id, int status, const Headers& headers, bool end) override;
  void SubmitTrailers(int32_t id, const Headers& trailers) override;
  void Resume(int32_t id) override;
  void Reset(int32_t id, uint32_t code) override;
  void Consume(int32_t id, size_t bytes) override;
  void Left(std::function<void()> taken) override { taken_.push_back(std::move(taken)); }
  void Asked(int change) override { asked_ += change; }
  void Wake() override { wake_(); }
  absl::Time now() const override { return now_; }

 private:
  struct Callbacks;

  Http2Stream* Find(int32_t id);
  void BeginStream(int32_t id);
  void EndStream(int32_t id);
  bool OnFrame(const nghttp2_frame_hd& head);
  // The client knows that it is to open no streams, or has had time enough to.
  void TurnAway();
  void OnSent(const nghttp2_frame& frame);
  // The client did something once too often: the end, with a word about it.
  void Flooded();

  Site& site_;
  const std::string address_;
  const std::function<void()> wake_;
  nghttp2_session* session_ = nullptr;
  std::unordered_map<int32_t, std::shared_ptr<Http2Stream>> streams_;
  // Streams of this client for which something is still done, also those that are closed.
  const std::shared_ptr<std::atomic<size_t>> busy_ = std::make_shared<std::atomic<size_t>>(0);
  std::vector<std::function<void()>> taken_;  // of what the last Outgoing held
  absl::Time now_;
  absl::Time begun_, heard_, idle_since_;
  absl::Time header_since_ = absl::InfiniteFuture();  // a header block has begun and not ended
  Allowance resets_, controls_;
  int asked_ = 0;            // streams
  bool introduced_ = false;  // its SETTINGS have come
  bool pinged_ = false;
  bool leaving_ = false;
  absl::Time turns_away_at_;  // if the client does not answer, once it is told
  bool turned_away_ = false;  // new streams
  bool flooded_ = false;
};

}  // namespace baton::gateway::http
