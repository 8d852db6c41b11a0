// gRPC's additions to HTTP/2: messages behind five bytes, timeouts, messages of errors, and which headers are
// a call's metadata. Pure; everything that a client sends is bounded and checked here.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "gateway/http/exchange.h"

namespace baton::gateway::http {

// "application/grpc", with a "+format" or parameters behind it; not gRPC-Web.
bool IsGrpc(std::string_view content_type);

// Cuts a stream of bytes into messages.
class MessageReader {
 public:
  enum class Found { kNothing, kMessage, kCompressed, kTooLong };

  explicit MessageReader(size_t max_bytes) : max_bytes_(max_bytes) {}

  // Takes bytes from the front of `bytes` up to the end of a message, which Take() then gives, once. After
  // kCompressed and kTooLong it must not be called again.
  Found Read(std::string_view* bytes);
  std::string Take();
  // No part of a message is here.
  bool between() const { return prefix_.empty() && message_.empty(); }
  // Bytes of the one that is not complete. No more than has come: a length that is only announced costs
  // nothing.
  size_t held() const { return message_.size(); }

 private:
  const size_t max_bytes_;
  std::string prefix_;
  size_t length_ = 0;
  std::string message_;
};

// The five bytes before a message.
std::string MessagePrefix(size_t bytes);

// The value of grpc-timeout: at most eight digits and a unit. INVALID_ARGUMENT otherwise.
absl::StatusOr<absl::Duration> ParseTimeout(std::string_view text);

// The value of grpc-message.
std::string PercentEncoded(std::string_view message);

// Returns the headers that are the caller's own: neither the transport's nor gRPC's. INVALID_ARGUMENT: a name
// or value that gRPC would end a process over.
absl::StatusOr<Headers> MetadataOf(const Headers& headers);

}  // namespace baton::gateway::http
