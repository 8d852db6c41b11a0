// Channels to peers, all with the same settings: keepalive that notices a dead peer within 2 s, explicit
// message limits, no hidden retries (Baton decides what is tried again). Any thread.
#pragma once

#include <grpcpp/channel.h>

#include <memory>
#include <string>
#include <string_view>

#include "absl/time/time.h"

namespace baton::rpc {

class Security;

// Maximum size of a message. Requests are token ids or text; KV chunks are cut to fit.
inline constexpr int kMaxMessageBytes = 16 << 20;
// Payload of one KV chunk message, well under the limit.
inline constexpr int kMaxChunkBytes = 4 << 20;

// A ping after this much silence, and how long its answer may take. Their sum bounds the time in which a dead
// peer is noticed. The default is for links between routers and workers; gRPC's clients leave a second
// between two pings, whatever the setting.
struct Keepalive {
  absl::Duration interval = absl::Seconds(1);
  absl::Duration timeout = absl::Milliseconds(800);
  // So long after its last call a channel closes its connection, and tries for none by itself. At least 1 s.
  absl::Duration idle = absl::Minutes(30);
};
// The same for a worker's server: it may ping sooner, and the rest of that time is for the answer of
// a peer that lives and is busy.
inline constexpr Keepalive kServerKeepalive = {.interval = absl::Milliseconds(300),
                                               .timeout = absl::Milliseconds(1500)};
// Between clients and routers, where a pause (a laptop's lid, a debugger, a busy machine) costs an answer.
inline constexpr Keepalive kPublicKeepalive = {.interval = absl::Seconds(20), .timeout = absl::Seconds(20)};

// How a process calls others of its fleet. `security` outlives the caller.
struct PeerOptions {
  const Security& security;
  Keepalive keepalive;
};

// A channel of its own (no sharing of subchannels with others of the same address, so that one caller's
// quarantine is not another's). With `security`, over TLS if that has certificates to check peers by, and
// with its keys in every call; without it, neither TLS nor keys.
//
// `name`: the peer's in its certificate, if it is not the host in `address` and `security` has none of its
// own; DNS gave the address for it. Empty: none.
std::shared_ptr<grpc::Channel> MakeChannel(const std::string& address, const Keepalive& keepalive = {},
                                           const Security* security = nullptr, const std::string& name = "");

// A channel for no calls: it is READY (grpc::Channel::GetState) while the server says that `service` is
// SERVING (grpc.health.v1.Health/Watch), or has no such method.
std::shared_ptr<grpc::Channel> MakeHealthChannel(const std::string& address, const Keepalive& keepalive,
                                                 const Security* security, const std::string& name,
                                                 std::string_view service);

}  // namespace baton::rpc
