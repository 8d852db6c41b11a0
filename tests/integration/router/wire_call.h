// WireCall: a call over a bare HTTP/2 connection (nghttp2), which shows what gRPC's own library keeps from
// the programs that use it, and sends what it does not.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

namespace baton::router {

struct WireCall {
  // Header fields of the answer, trailers included, as they stand on the wire; empty: the connection broke.
  std::map<std::string, std::string> fields;
  // Header blocks that it came in: one, if the call has nothing but trailers.
  int blocks = 0;

  // The value of a field whose name ends in -bin.
  std::string Binary(const std::string& name) const;

  using Fields = std::vector<std::pair<std::string, std::string>>;
  // Sends `body` (of messages with their frames, see Framed) by `method`, "/baton.v1.Inference/Generate",
  // with `more` header fields, and waits for the end of the call.
  static WireCall Make(const std::string& address, const std::string& method, const std::string& body,
                       const Fields& more = {});
  // The message with gRPC's five bytes before it.
  static std::string Framed(const std::string& message, bool compressed = false);
};

}  // namespace baton::router
