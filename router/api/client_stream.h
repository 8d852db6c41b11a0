// ClientStream: the way back to one client. RequestDriver writes to it and knows no transport; gRPC is one
// implementation (generate_call.h), a test's fake another. The implementation reports to the driver what
// became of each message: OnWritten once after each Write, OnCancelled when the client went away.
//
// One call at a time, from any thread; no call waits.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "baton/v1/inference.pb.h"

namespace baton::router {

class ClientStream {
 public:
  virtual ~ClientStream() = default;

  // The most bytes of the whole answer, which goes out in one message; 0: it is a stream. Once the request
  // was parsed.
  virtual uint32_t max_answer_bytes() const { return 0; }

  // The request, which is named `request_id`, is admitted; `waits`: for its turn, so that the first Write may
  // be long in coming. At most once, before the first Write. A client may hear of it at once, so that nobody
  // between takes a call that waits for one that is dead; a call that is refused before has but its end,
  // which is what gRPC's own retries need (proposal A6).
  virtual void Admitted(const std::string& /*request_id*/, bool /*waits*/) {}
  // Sends a message; OnWritten follows, and only then the next call to Write or Finish. `more`: another
  // message follows at once, so both may leave in one packet.
  virtual void Write(const v1::GenerateResponse& response, bool more) = 0;
  // Ends the stream: OK with the `last` message, or `status` without one (null). `usage`: what the request
  // used; null: no worker accepted it. Nothing follows, not even OnWritten.
  virtual void Finish(const absl::Status& status, const v1::GenerateResponse* last,
                      const v1::RequestUsage* usage) = 0;
  // Ends the stream now, without waiting for a message that the client does not take. OnWritten(false) and
  // then Finish follow if a Write was outstanding; nothing does after Finish. Does nothing on an ended
  // stream.
  virtual void Abort(const absl::Status& status) = 0;
};

}  // namespace baton::router
