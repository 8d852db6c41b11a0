#include "common/rpc/guarded_socket.h"

#include <dlfcn.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <memory>
#include <string_view>
#include <utility>

#include "absl/synchronization/mutex.h"
#include "common/base/check.h"
#include "common/rpc/frame_guard.h"

namespace baton::rpc {
namespace {

// The library's own function of this name, which ours stands before.
template <typename Function>
Function* Next(const char* name, Function*) {
  auto* const next = reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
  BATON_CHECK(next != nullptr) << name;
  return next;
}

// Checks the bytes of one connection. gRPC reads from one thread at a time, and orders them by means of its
// own.
class Followed {
 public:
  // Null if all is well; `first` is set if it was until now.
  const char* Follow(std::string_view bytes, bool& first) {
    absl::MutexLock lock(&mutex_);
    const char* const why = guard_.Follow(bytes);
    first = why != nullptr && !cut_;
    cut_ = why != nullptr;
    return why;
  }

 private:
  absl::Mutex mutex_;
  FrameGuard guard_ ABSL_GUARDED_BY(mutex_);
  bool cut_ ABSL_GUARDED_BY(mutex_) = false;
};

struct Guarded {
  Guarded(bool over_tls, SocketEvents heard_by) : tls(over_tls), events(std::move(heard_by)) {}
  const bool tls;
  const SocketEvents events;
  Followed followed;
};

// By descriptor. One that is closed leaves it before its number can be given to another.
std::atomic<Guarded*> guarded[kMaxGuardedDescriptor];

std::atomic<void (*)(const char* why)> on_tls_cut{nullptr};

Guarded* Find(int fd) {
  return fd < 0 || fd >= kMaxGuardedDescriptor ? nullptr : guarded[fd].load(std::memory_order_acquire);
}

bool MayPass(Guarded& socket, const msghdr& message, size_t bytes) {
  for (size_t i = 0; i < message.msg_iovlen && bytes > 0; ++i) {
    const iovec& part = message.msg_iov[i];
    const size_t filled = part.iov_len < bytes ? part.iov_len : bytes;
    bytes -= filled;
    bool first = false;
    const char* const why = socket.followed.Follow({static_cast<const char*>(part.iov_base), filled}, first);
    if (why == nullptr) continue;
    if (first && socket.events.cut != nullptr) socket.events.cut(why);
    return false;
  }
  return true;
}

// Where a TLS connection keeps what is followed of it.
int FollowedIndex() {
  static const int index = SSL_get_ex_new_index(0, nullptr, nullptr, nullptr,
                                                [](void*, void* followed, CRYPTO_EX_DATA*, int, long, void*) {
                                                  delete static_cast<Followed*>(followed);
                                                });
  return index;
}

// Null for what does not speak HTTP/2, or is a client.
Followed* FollowedOf(SSL* ssl) {
  if (SSL_is_server(ssl) == 0) return nullptr;
  if (auto* const followed = static_cast<Followed*>(SSL_get_ex_data(ssl, FollowedIndex()))) return followed;
  const unsigned char* protocol = nullptr;
  unsigned size = 0;
  SSL_get0_alpn_selected(ssl, &protocol, &size);
  if (std::string_view(reinterpret_cast<const char*>(protocol), size) != "h2") return nullptr;
  auto followed = std::make_unique<Followed>();
  if (SSL_set_ex_data(ssl, FollowedIndex(), followed.get()) != 1) return nullptr;
  return followed.release();
}

}  // namespace

bool GuardSocket(int fd, bool tls, SocketEvents events) {
  if (fd < 0 || fd >= kMaxGuardedDescriptor) return false;
  Guarded* const before =
      guarded[fd].exchange(new Guarded(tls, std::move(events)), std::memory_order_acq_rel);
  BATON_CHECK(before == nullptr) << "descriptor " << fd << " is guarded already";
  return true;
}

void OnTlsCut(void (*cut)(const char* why)) { on_tls_cut.store(cut); }

}  // namespace baton::rpc

extern "C" {

__attribute__((visibility("default"))) ssize_t recvmsg(int fd, msghdr* message, int flags) {
  static auto* const next = baton::rpc::Next("recvmsg", &recvmsg);
  const ssize_t got = next(fd, message, flags);
  if (got <= 0 || (flags & (MSG_PEEK | MSG_ERRQUEUE)) != 0) return got;
  baton::rpc::Guarded* const socket = baton::rpc::Find(fd);
  if (socket == nullptr || socket->tls || MayPass(*socket, *message, static_cast<size_t>(got))) return got;
  errno = ECONNRESET;
  return -1;
}

__attribute__((visibility("default"))) int close(int fd) {
  static auto* const next = baton::rpc::Next("close", &close);
  if (baton::rpc::Find(fd) == nullptr) return next(fd);
  const std::unique_ptr<baton::rpc::Guarded> socket(
      baton::rpc::guarded[fd].exchange(nullptr, std::memory_order_acq_rel));
  const int result = next(fd);
  const int error = errno;
  if (socket != nullptr && socket->events.closed != nullptr) socket->events.closed();
  errno = error;
  return result;
}

__attribute__((visibility("default"))) int SSL_read(SSL* ssl, void* buffer, int size) {
  static auto* const next = baton::rpc::Next("SSL_read", &SSL_read);
  const int got = next(ssl, buffer, size);
  if (got <= 0) return got;
  baton::rpc::Followed* const followed = baton::rpc::FollowedOf(ssl);
  if (followed == nullptr) return got;
  bool first = false;
  const char* const why =
      followed->Follow({static_cast<const char*>(buffer), static_cast<size_t>(got)}, first);
  if (why == nullptr) return got;
  if (first) {
    if (auto* const cut = baton::rpc::on_tls_cut.load()) cut(why);
  }
  // No reason in OpenSSL's queue: SSL_get_error says SSL_ERROR_SYSCALL, and gRPC that the connection is
  // broken.
  ERR_clear_error();
  return -1;
}

}  // extern "C"
