// Channels to peers, all made alike: keepalive that notices a dead peer within 2 s, message limits set on
// purpose, no hidden retries (Baton decides what is tried again). Any thread.
#pragma once

#include <grpcpp/channel.h>

#include <memory>
#include <string>

#include "absl/time/time.h"

namespace baton::rpc {

class Security;

// What one message may hold. Requests are token ids or text; KV chunks are cut to fit.
inline constexpr int kMaxMessageBytes = 16 << 20;
// Payload of one KV chunk message, well under the limit.
inline constexpr int kMaxChunkBytes = 4 << 20;

struct Keepalive {
  // A ping after this much silence, and how long its answer may take. Their sum bounds the time in which a
  // dead peer is noticed.
  absl::Duration interval = absl::Seconds(1);
  absl::Duration timeout = absl::Milliseconds(800);
};

// A channel of its own (no sharing of subchannels with others of the same address, so that one caller's
// quarantine is not another's). With `security`, over TLS if that has certificates to check peers by, and
// with its keys in every call; without, plain.
std::shared_ptr<grpc::Channel> MakeChannel(const std::string& address, const Keepalive& keepalive = {},
                                           const Security* security = nullptr);

}  // namespace baton::rpc
