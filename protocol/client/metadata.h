// Keys of gRPC metadata between a router and its clients.
#pragma once

namespace baton::protocol {

// Trailing: a v1::RequestUsage, serialized: what the request used.
inline constexpr char kUsageTrailer[] = "baton-usage-bin";
// Trailing: milliseconds after which gRPC's own retries may ask again (proposal A6); -1: never.
inline constexpr char kPushbackTrailer[] = "grpc-retry-pushback-ms";
// Initial, or trailing of a call that was refused at once: the request as the router's logs name it.
inline constexpr char kRequestIdMetadata[] = "baton-request-id";
// The client's own name for the call, in both directions; printable ASCII.
inline constexpr char kClientIdMetadata[] = "x-request-id";

}  // namespace baton::protocol
