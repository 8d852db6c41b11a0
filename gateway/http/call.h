// Call: one gRPC call over HTTP/2, between the server, which owns the connection, and a handler, which passes
// it on. Messages are without their five bytes of framing, and never compressed. Any thread may speak to it;
// what it tells (CallEvents) comes on the server's thread. A handler that lets go of it without Finish has
// the stream reset.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "gateway/http/exchange.h"

namespace baton::gateway::http {

// Status and trailers of a call.
struct CallEnd {
  int code = 0;  // of grpc::StatusCode
  std::string message;
  // Names in small letters, values as they are on the wire.
  Headers trailers;
};

struct CallEvents {
  // The client's next message; the one after it comes after Call::Took.
  std::function<void(std::string)> message;
  // No more messages.
  std::function<void()> last;
  // The client has reset the stream, or is gone.
  std::function<void()> cancelled;
};

class Call {
 public:
  virtual ~Call() = default;

  // "/package.Service/Method".
  virtual const std::string& method() const = 0;
  // The client's metadata without what belongs to the transport; names in small letters, values as they are
  // on the wire, all of them such that gRPC takes them.
  virtual const Headers& metadata() const = 0;
  virtual const std::string& address() const = 0;
  // When the client's patience ends.
  virtual absl::Time deadline() const = 0;

  // Once. Events that came before are told at once.
  virtual void Listen(CallEvents events) = 0;
  // A message has been passed on.
  virtual void Took() = 0;

  virtual void Begin(Headers metadata) = 0;
  // `taken`: it has left. It does not come if the client is gone.
  virtual void Send(std::string message, std::function<void()> taken) = 0;
  virtual void Finish(CallEnd end) = 0;

  // Runs `what` on the server's thread.
  virtual void Post(std::function<void()> what) = 0;
};

// Is called with the call's first message, or with its end if it has none: headers alone cost nobody
// anything.
using CallHandler = std::function<void(std::shared_ptr<Call>)>;

}  // namespace baton::gateway::http
