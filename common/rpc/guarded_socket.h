// Guarded sockets: connections whose bytes a FrameGuard follows on their way from the socket into gRPC, and
// whose end is reported. gRPC 1.51 has no hook between its sockets and its parser. So the three functions by
// which it reads and closes, recvmsg, close and SSL_read, are defined here and take precedence over those of
// the C library and OpenSSL; they call the originals, and act on guarded sockets only. A connection for which
// the guard reports an error reads as broken from then on, and gRPC closes it. Any thread.
#pragma once

#include <functional>

namespace baton::rpc {

// The highest descriptor that can be guarded, and one more.
inline constexpr int kMaxGuardedDescriptor = 1 << 16;

struct SocketEvents {
  // Called once, on the reading thread: the connection is cut, and why.
  std::function<void(const char* why)> cut;
  // Called once, on the thread that closed it, after `cut`.
  std::function<void()> closed;
};

// Guards the connected socket `fd` until it is closed. For one that carries TLS, only the end is reported
// here: its frames are followed where they are decrypted, as those of every TLS server that agreed on "h2".
// Returns false, and guards nothing, from kMaxGuardedDescriptor on.
bool GuardSocket(int fd, bool tls, SocketEvents events);

// Sets what is called when a connection over TLS is cut; its address is not known there. For the whole
// process.
void OnTlsCut(void (*cut)(const char* why));

}  // namespace baton::rpc
