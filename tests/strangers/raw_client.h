// RawClient: a bare socket, over TLS if asked, that speaks just enough HTTP/2 (RFC 9113) to attack a server:
// no limit of a library is in its way. One thread.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/time/time.h"
#include "tests/http2_frames.h"

namespace baton::strangers {

inline constexpr uint8_t kData = 0, kHeaders = 1, kReset = 3, kSettings = 4, kPing = 6, kGoAway = 7,
                         kContinuation = 9;
inline constexpr uint8_t kAck = 1, kEndStream = 1, kEndHeaders = 4;

using http2::Frame;
using http2::Indexed;
using http2::Literal;
// Headers of a gRPC call.
std::string CallHeaders(const std::string& path);

class RawClient {
 public:
  // From the loopback address that ends in `from`. CHECK-fails if no server listens.
  explicit RawClient(const std::string& address, bool tls = false, uint32_t from = 2);
  RawClient(RawClient&&) noexcept;
  ~RawClient();

  // Sends all of it. False if the server has hung up.
  bool Send(std::string_view bytes);
  // The preface and empty SETTINGS.
  bool Open();
  struct Received {
    uint8_t type = 0;
    uint8_t flags = 0;
    uint32_t stream = 0;
    std::string payload;
  };
  // The next frame; nothing if the server hangs up or the time is over.
  std::optional<Received> Receive(absl::Time deadline = absl::InfiniteFuture());
  // True once the server has hung up; waits for that until `deadline`, and drops what it says.
  bool AwaitClose(absl::Time deadline);
  // The same, for as long as a test waits.
  bool AwaitClose();

 private:
  struct Tls;
  // Bytes read; 0 at the end; negative: not now.
  int Read(char* bytes, int size);

  int socket_ = -1;
  std::unique_ptr<Tls> tls_;
  std::string buffer_;
};

}  // namespace baton::strangers
