#include "common/base/mailbox.h"

#include <gtest/gtest.h>

#include <thread>

namespace baton {
namespace {

TEST(MailboxTest, RefusesWhenFullButTakesWhatMustNotBeLost) {
  Mailbox<int> mailbox(2);
  EXPECT_TRUE(mailbox.TryPost(1));
  EXPECT_TRUE(mailbox.TryPost(2));
  EXPECT_FALSE(mailbox.TryPost(3));
  EXPECT_TRUE(mailbox.PostAlways(4));
  EXPECT_EQ(mailbox.TakeAll(), (std::vector<int>{1, 2, 4}));
  EXPECT_TRUE(mailbox.TryPost(5));
}

TEST(MailboxTest, WakesTheOwnerAndKeepsTheOrder) {
  Mailbox<int> mailbox(1000);
  std::thread poster([&] {
    for (int i = 0; i < 1000; ++i) ASSERT_TRUE(mailbox.TryPost(i));
    mailbox.Close();
  });
  std::vector<int> taken;
  while (taken.size() < 1000) {
    for (int i : mailbox.WaitAndTakeAll(absl::Seconds(10))) taken.push_back(i);
  }
  poster.join();
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(taken[i], i);
  EXPECT_FALSE(mailbox.TryPost(1));
}

}  // namespace
}  // namespace baton
