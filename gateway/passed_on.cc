#include "gateway/passed_on.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "protocol/client/limits.h"
#include "protocol/client/metadata.h"

namespace baton::gateway {
namespace {

// Far below the limits at which a router refuses a call for its metadata (Authenticator), or gRPC ends the
// connection that all clients share (common/rpc/limits.h).
constexpr const char* kKeyHeaders[] = {"authorization", "x-api-key"};
// With the number of a prompt behind it, the router takes it.
constexpr size_t kMaxIdempotencyBytes = protocol::kMaxIdempotencyKeyBytes - 8;
constexpr size_t kMaxBuildBytes = 64;
constexpr size_t kMaxKeyBytes = 1024, kMaxTraceBytes = 512;

bool IsPrintable(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return c >= ' ' && c <= '~'; });
}

}  // namespace

std::string WhyNotPassedOn(const http::Request& request) {
  for (const char* const name : kKeyHeaders) {
    if (const size_t size = request.Header(name).size(); size > kMaxKeyBytes)
      return fmt::format("{} has {} bytes, and no key more than {}", name, size, kMaxKeyBytes);
  }
  const std::string_view key = request.Header(kIdempotencyHeader);
  if (key.size() > kMaxIdempotencyBytes || !IsPrintable(key)) {
    return fmt::format("{}: at most {} printable ASCII characters are taken", kIdempotencyHeader,
                       kMaxIdempotencyBytes);
  }
  const std::string_view build = request.Header(kBuildHeader);
  if (build.size() > kMaxBuildBytes || !IsPrintable(build))
    return fmt::format("{}: not a build", kBuildHeader);
  return "";
}

void PassOn(const http::Request& request, grpc::ClientContext* context) {
  const auto pass_on = [&](const char* name, size_t most) {
    const std::string_view value = request.Header(name);
    // gRPC ends the process over metadata that is not printable ASCII. No key and no context is.
    if (!value.empty() && value.size() <= most && IsPrintable(value))
      context->AddMetadata(name, std::string(value));
  };
  for (const char* const name : kKeyHeaders) pass_on(name, kMaxKeyBytes);
  // A longer trace context may be left out (W3C Trace Context, 3.3.1.5).
  for (const char* const name : {"traceparent", "tracestate"}) pass_on(name, kMaxTraceBytes);
  pass_on(protocol::kClientIdMetadata, protocol::kMaxClientIdBytes);
}

}  // namespace baton::gateway
