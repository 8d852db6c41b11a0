#include "common/rpc/frame_guard.h"

#include <algorithm>
#include <cstring>

namespace baton::rpc {
namespace {

enum FrameType : unsigned char { kHeaders = 1, kSettings = 4, kContinuation = 9 };
constexpr unsigned char kAck = 1;

}  // namespace

const char* FrameGuard::Follow(std::string_view bytes) {
  while (wrong_ == nullptr && !bytes.empty()) {
    if (skip_ > 0) {
      const size_t passed = std::min(skip_, bytes.size());
      skip_ -= passed;
      bytes.remove_prefix(passed);
      continue;
    }
    const size_t taken = std::min(kFrameHeader - header_bytes_, bytes.size());
    std::memcpy(header_ + header_bytes_, bytes.data(), taken);
    header_bytes_ += taken;
    bytes.remove_prefix(taken);
    if (header_bytes_ == kFrameHeader) Begin();
  }
  return wrong_;
}

void FrameGuard::Begin() {
  header_bytes_ = 0;
  skip_ = size_t{header_[0]} << 16 | size_t{header_[1]} << 8 | header_[2];
  const unsigned char type = header_[3], flags = header_[4];
  if (type == kSettings && (flags & kAck) != 0) acknowledged_ = true;
  if (type != kHeaders && type != kContinuation) return;
  if (type == kHeaders) {
    block_bytes_ = 0;
    block_frames_ = 0;
    if (!acknowledged_ && ++calls_ > kMaxCalls) {
      wrong_ = "thousands of calls before it acknowledged the SETTINGS that limit them";
    }
  }
  block_bytes_ += skip_;
  ++block_frames_;
  if (block_bytes_ > kMaxHeaderBlock || block_frames_ > kMaxHeaderFrames) {
    wrong_ = "a header block of more than 16 KiB or 8 frames";
  }
}

}  // namespace baton::rpc
