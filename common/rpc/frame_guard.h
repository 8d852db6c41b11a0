// FrameGuard: follows the HTTP/2 frames (RFC 9113, section 4.1) that a client sends, by their headers alone,
// and reports the two things that no gRPC client does and that gRPC 1.51 keeps in memory without a limit: a
// header block that does not end (its size limit counts one frame at a time), and any number of calls while
// our SETTINGS are not acknowledged (until then gRPC enforces none of them). All else is left to gRPC's
// parser. One per connection, owned by its reader; one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace baton::rpc {

class FrameGuard {
 public:
  // Bytes of one header block, all its frames together: as many as metadata may have (kTakenMetadataBytes),
  // for a block is no larger than its fields.
  static constexpr size_t kMaxHeaderBlock = 64 << 10;
  // Frames of one: a client fills each with up to 16 KiB.
  static constexpr int kMaxHeaderFrames = 8;
  // Calls before our SETTINGS are acknowledged; afterwards gRPC keeps to the same number at a time.
  static constexpr int kMaxCalls = 4096;

  // Follows the next bytes of the connection. Returns a message about what is wrong with them, or null. After
  // an error it returns the same message for ever.
  const char* Follow(std::string_view bytes);

 private:
  static constexpr size_t kFrameHeader = 9;

  // A frame header is complete.
  void Begin();

  // Bytes to skip: first the connection preface (24 bytes), then each frame's payload.
  size_t skip_ = 24;
  unsigned char header_[kFrameHeader] = {};
  size_t header_bytes_ = 0;
  size_t block_bytes_ = 0;
  int block_frames_ = 0;
  int calls_ = 0;
  bool acknowledged_ = false;
  const char* wrong_ = nullptr;
};

}  // namespace baton::rpc
