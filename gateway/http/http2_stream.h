// Http2Stream: one stream of HTTP/2: a request as HTTP/1.1 has it, whose answer goes out through a Turn, or a
// gRPC call. It holds no more of a call's messages than one window beyond the one that is passed on, and
// gives the client new windows only when they are. On the server's thread.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/time/time.h"
#include "gateway/http/budget.h"
#include "gateway/http/call.h"
#include "gateway/http/grpc_framing.h"
#include "gateway/http/site.h"
#include "gateway/http/turn.h"

namespace baton::gateway::http {

// A stream's interface to its connection.
class StreamPort {
 public:
  // `end`: nothing follows. Otherwise the stream is asked for its data (Http2Stream::Fill).
  virtual void SubmitHead(int32_t id, int status, const Headers& headers, bool end) = 0;
  virtual void SubmitTrailers(int32_t id, const Headers& trailers) = 0;
  // There is data again.
  virtual void Resume(int32_t id) = 0;
  virtual void Reset(int32_t id, uint32_t code) = 0;
  // The client may send so many bytes more.
  virtual void Consume(int32_t id, size_t bytes) = 0;
  // To be called when what was given to Fill has left.
  virtual void Left(std::function<void()> taken) = 0;
  // So many more streams wait for an answer.
  virtual void Asked(int change) = 0;
  virtual void Wake() = 0;
  virtual absl::Time now() const = 0;

 protected:
  ~StreamPort() = default;
};

class Http2Stream final : public Outlet, public std::enable_shared_from_this<Http2Stream> {
 public:
  // `slot` is held as long as anything is done for this stream.
  Http2Stream(Site& site, StreamPort& port, int32_t id, std::string address, std::shared_ptr<void> slot);

  // From the connection.
  void OnHeader(std::string_view name, std::string_view value);
  void OnHead();
  void OnData(std::string_view bytes);
  void OnLast();
  void OnClosed();
  // The answer's end has been sent; true: the client has not ended its part.
  bool OnEndSent();
  // Data of the answer. kWait: none now. kEnd and kEndWithTrailers: that was all.
  enum class Filled { kMore, kWait, kEnd, kEndWithTrailers };
  Filled Fill(char* into, size_t room, size_t* bytes);
  // False: it is to be reset. A call that never said anything is refused.
  bool Tick(absl::Time now);

  // From the turn.
  void SendAnswer(Turn& turn, Response response) override;
  void SendHead(Turn& turn, Response response) override;
  void SendPiece(Turn& turn, std::string piece, std::function<void()> taken) override;
  void SendEnd(Turn& turn) override;
  void Cut(Turn& turn) override;

 private:
  class GrpcCall;
  struct Piece {
    std::string bytes;
    std::function<void()> taken;
  };

  void Refuse(int status, const std::string& why);
  void TooLarge();
  void RefuseCall(int code, const std::string& why);
  void OnMessages(std::string_view bytes);
  void Deliver();
  void Asked();
  void BeginCall();
  void Listen(CallEvents events);
  void Took();
  void Head(int status, const Headers& headers, bool end);
  void Queue(std::string bytes, std::function<void()> taken);
  void Finish(CallEnd end);

  Site& site_;
  StreamPort& port_;
  const int32_t id_;
  std::shared_ptr<void> slot_;
  const absl::Time begun_;
  Request request_;
  size_t header_bytes_ = 0;
  bool headed_ = false;  // the request's head is complete
  bool grpc_ = false;
  bool refused_ = false;  // what still comes is dropped
  bool last_ = false;     // the client has ended its part
  bool closed_ = false;
  bool asked_ = false;  // the request is whole, or the call has begun
  Held held_, held_out_;
  // A request's turn, which holds the stream's slot.
  std::shared_ptr<Turn> turn_;
  // A call.
  Headers metadata_;
  absl::Time deadline_ = absl::InfiniteFuture();
  MessageReader reader_;
  // A part of one is here, or the first is waited for.
  absl::Time message_since_ = absl::InfiniteFuture();
  std::deque<std::string> messages_;  // that wait
  size_t message_bytes_ = 0;          // of those, and of the one under way
  size_t under_way_ = 0;
  bool passing_ = false;  // one is under way
  bool told_last_ = false;
  size_t unconsumed_ = 0;
  bool call_begun_ = false;
  bool listening_ = false;
  CallEvents events_;
  // The answer.
  bool head_sent_ = false, ended_ = false, end_sent_ = false, waiting_ = false;
  std::deque<Piece> out_;
  size_t out_offset_ = 0, out_bytes_ = 0;
  absl::Time progress_;  // when the client last took something
  Headers trailers_;
  bool has_trailers_ = false;
};

}  // namespace baton::gateway::http
