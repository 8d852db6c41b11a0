// Guarded sockets: connections whose bytes are followed by a FrameGuard on their way from the socket into
// gRPC, and whose end is heard. gRPC 1.51 has no place for that between its sockets and its parser, so the
// three functions by which it reads and closes, recvmsg, close and SSL_read, are defined here and stand
// before the C library's and OpenSSL's; they call these, and look at guarded sockets alone. A connection that
// does what the guard names reads as broken from then on, and gRPC closes it. Any thread.
#pragma once

#include <functional>

namespace baton::rpc {

// The highest descriptor that can be guarded, and one more.
inline constexpr int kMaxGuardedDescriptor = 1 << 16;

struct SocketEvents {
  // Said once, on the thread that reads: the connection is cut, and why.
  std::function<void(const char* why)> cut;
  // Said once, on the thread that closed it, after `cut`.
  std::function<void()> closed;
};

// Guards the connected socket `fd` until it is closed. Of one that carries TLS only the end is heard here:
// its frames are followed where they are decrypted, as those of every TLS server that agreed on "h2". False,
// and nothing is guarded, from kMaxGuardedDescriptor on.
bool GuardSocket(int fd, bool tls, SocketEvents events);

// Hears of connections over TLS that were cut, which have no address there. Null: nobody. For the process.
void OnTlsCut(void (*cut)(const char* why));

}  // namespace baton::rpc
