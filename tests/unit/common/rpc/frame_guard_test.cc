// Bytes of a client before gRPC sees them: real shapes pass however they are cut, and the two floods don't.
#include "common/rpc/frame_guard.h"

#include <gtest/gtest.h>

#include <string>

namespace baton::rpc {
namespace {

constexpr uint8_t kSentData = 0, kSentHeaders = 1, kSentReset = 3, kSentSettings = 4, kSentPing = 6,
                  kSentContinuation = 9;
constexpr uint8_t kFlagAck = 1, kFlagEndHeaders = 4;
const std::string kSentPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

std::string Sent(uint8_t type, uint8_t flags, size_t payload) {
  std::string frame = {static_cast<char>(payload >> 16),
                       static_cast<char>(payload >> 8),
                       static_cast<char>(payload),
                       static_cast<char>(type),
                       static_cast<char>(flags),
                       0,
                       0,
                       0,
                       1};
  // The payload would be a flood if it were taken for headers of frames.
  return frame + std::string(payload, kSentContinuation);
}

TEST(FrameGuardTest, PassesWhatClientsSendHoweverItIsCut) {
  const std::string sent = kSentPreface + Sent(kSentSettings, 0, 36) +
                           Sent(kSentHeaders, kFlagEndHeaders, 300) + Sent(kSentData, 0, 16384) +
                           Sent(kSentSettings, kFlagAck, 0) + Sent(kSentPing, kFlagAck, 8) +
                           Sent(kSentHeaders, 0, FrameGuard::kMaxHeaderBlock - 100) +
                           Sent(kSentContinuation, kFlagEndHeaders, 100) + Sent(kSentData, 1, 100'000);
  for (const size_t piece : {size_t{1}, size_t{7}, size_t{1000}, sent.size()}) {
    FrameGuard guard;
    for (int round = 0; round < 2; ++round) {
      // The second round is of the same connection: no preface.
      const std::string_view bytes = std::string_view(sent).substr(round == 0 ? 0 : kSentPreface.size());
      for (size_t at = 0; at < bytes.size(); at += piece) {
        ASSERT_EQ(guard.Follow(bytes.substr(at, piece)), nullptr) << piece << " at " << at;
      }
    }
  }
}

TEST(FrameGuardTest, AHeaderBlockEnds) {
  FrameGuard guard;
  ASSERT_EQ(guard.Follow(kSentPreface + Sent(kSentHeaders, 0, 40'000) + Sent(kSentContinuation, 0, 24'000)),
            nullptr);
  EXPECT_NE(guard.Follow(Sent(kSentContinuation, 0, 2'000)), nullptr);
  EXPECT_NE(guard.Follow(""), nullptr) << "and stays wrong";
}

TEST(FrameGuardTest, AHeaderBlockOfEmptyFramesEndsToo) {
  FrameGuard guard;
  std::string sent = kSentPreface + Sent(kSentHeaders, 0, 1);
  for (int i = 1; i < FrameGuard::kMaxHeaderFrames; ++i) sent += Sent(kSentContinuation, 0, 0);
  ASSERT_EQ(guard.Follow(sent), nullptr);
  EXPECT_NE(guard.Follow(Sent(kSentContinuation, 0, 0)), nullptr);
}

TEST(FrameGuardTest, ManyBlocksThatEndAreNoFlood) {
  FrameGuard guard;
  ASSERT_EQ(guard.Follow(kSentPreface + Sent(kSentSettings, kFlagAck, 0)), nullptr);
  for (int i = 0; i < 2 * FrameGuard::kMaxCalls; ++i) {
    ASSERT_EQ(guard.Follow(Sent(kSentHeaders, kFlagEndHeaders, 50) + Sent(kSentReset, 0, 4)), nullptr) << i;
  }
}

TEST(FrameGuardTest, CallsBeforeTheSettingsAreAcknowledgedAreCounted) {
  FrameGuard guard;
  ASSERT_EQ(guard.Follow(kSentPreface + Sent(kSentSettings, 0, 0)), nullptr);
  for (int i = 0; i < FrameGuard::kMaxCalls; ++i) {
    ASSERT_EQ(guard.Follow(Sent(kSentHeaders, kFlagEndHeaders, 10)), nullptr) << i;
  }
  EXPECT_NE(guard.Follow(Sent(kSentHeaders, kFlagEndHeaders, 10)), nullptr);
}

}  // namespace
}  // namespace baton::rpc
