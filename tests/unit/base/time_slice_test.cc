#include "common/base/time_slice.h"

#include <gtest/gtest.h>

#include <thread>

namespace baton {
namespace {

TEST(TimeSliceTest, IsTheThreadsOwnAndInheritedByThoseThatItStarts) {
  std::thread([] {
    const absl::Duration kernels = TimeSlice();
    SetTimeSlice(kMessengerSlice);
    if (TimeSlice() == kernels) GTEST_SKIP() << "this kernel knows no slices of a thread's own";
    EXPECT_EQ(TimeSlice(), kMessengerSlice);
    std::thread([kernels] {
      EXPECT_EQ(TimeSlice(), kMessengerSlice);
      SetTimeSlice(absl::ZeroDuration());
      EXPECT_EQ(TimeSlice(), kernels);
    }).join();
    EXPECT_EQ(TimeSlice(), kMessengerSlice) << "what a thread takes back is its own";
  }).join();
}

}  // namespace
}  // namespace baton
