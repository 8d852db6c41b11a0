// What a client may send before gRPC sees it: real shapes pass however they are cut, and the two floods
// don't.
#include "common/rpc/frame_guard.h"

#include <gtest/gtest.h>

#include <string>

namespace baton::rpc {
namespace {

constexpr uint8_t kData = 0, kHeaders = 1, kReset = 3, kSettings = 4, kPing = 6, kContinuation = 9;
constexpr uint8_t kAck = 1, kEndHeaders = 4;
const std::string kPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

std::string Frame(uint8_t type, uint8_t flags, size_t payload) {
  std::string frame = {static_cast<char>(payload >> 16),
                       static_cast<char>(payload >> 8),
                       static_cast<char>(payload),
                       static_cast<char>(type),
                       static_cast<char>(flags),
                       0,
                       0,
                       0,
                       1};
  // What would be a flood if it were taken for headers of frames.
  return frame + std::string(payload, kContinuation);
}

TEST(FrameGuardTest, PassesWhatClientsSendHoweverItIsCut) {
  const std::string sent = kPreface + Frame(kSettings, 0, 36) + Frame(kHeaders, kEndHeaders, 300) +
                           Frame(kData, 0, 16384) + Frame(kSettings, kAck, 0) + Frame(kPing, kAck, 8) +
                           Frame(kHeaders, 0, FrameGuard::kMaxHeaderBlock - 100) +
                           Frame(kContinuation, kEndHeaders, 100) + Frame(kData, 1, 100'000);
  for (const size_t piece : {size_t{1}, size_t{7}, size_t{1000}, sent.size()}) {
    FrameGuard guard;
    for (int round = 0; round < 2; ++round) {
      // The second round is of the same connection: no preface.
      const std::string_view bytes = std::string_view(sent).substr(round == 0 ? 0 : kPreface.size());
      for (size_t at = 0; at < bytes.size(); at += piece) {
        ASSERT_EQ(guard.Follow(bytes.substr(at, piece)), nullptr) << piece << " at " << at;
      }
    }
  }
}

TEST(FrameGuardTest, AHeaderBlockEnds) {
  FrameGuard guard;
  ASSERT_EQ(guard.Follow(kPreface + Frame(kHeaders, 0, 10'000) + Frame(kContinuation, 0, 6'000)), nullptr);
  EXPECT_NE(guard.Follow(Frame(kContinuation, 0, 1'000)), nullptr);
  EXPECT_NE(guard.Follow(""), nullptr) << "and stays wrong";
}

TEST(FrameGuardTest, AHeaderBlockOfEmptyFramesEndsToo) {
  FrameGuard guard;
  std::string sent = kPreface + Frame(kHeaders, 0, 1);
  for (int i = 1; i < FrameGuard::kMaxHeaderFrames; ++i) sent += Frame(kContinuation, 0, 0);
  ASSERT_EQ(guard.Follow(sent), nullptr);
  EXPECT_NE(guard.Follow(Frame(kContinuation, 0, 0)), nullptr);
}

TEST(FrameGuardTest, ManyBlocksThatEndAreNoFlood) {
  FrameGuard guard;
  ASSERT_EQ(guard.Follow(kPreface + Frame(kSettings, kAck, 0)), nullptr);
  for (int i = 0; i < 2 * FrameGuard::kMaxCalls; ++i) {
    ASSERT_EQ(guard.Follow(Frame(kHeaders, kEndHeaders, 50) + Frame(kReset, 0, 4)), nullptr) << i;
  }
}

TEST(FrameGuardTest, CallsBeforeTheSettingsAreAcknowledgedAreCounted) {
  FrameGuard guard;
  ASSERT_EQ(guard.Follow(kPreface + Frame(kSettings, 0, 0)), nullptr);
  for (int i = 0; i < FrameGuard::kMaxCalls; ++i) {
    ASSERT_EQ(guard.Follow(Frame(kHeaders, kEndHeaders, 10)), nullptr) << i;
  }
  EXPECT_NE(guard.Follow(Frame(kHeaders, kEndHeaders, 10)), nullptr);
}

}  // namespace
}  // namespace baton::rpc
