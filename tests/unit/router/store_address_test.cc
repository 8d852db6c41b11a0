#include "router/store/store_address.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace baton::router::store {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(StoreAddressTest, ReadsWhatItWrites) {
  EXPECT_EQ(*ParseStoreAddress("redis://store"), (StoreAddress{.host = "store"}));
  EXPECT_EQ(*ParseStoreAddress("redis://store:1234/7"),
            (StoreAddress{.host = "store", .port = 1234, .database = 7}));
  EXPECT_EQ(*ParseStoreAddress("redis://baton@10.0.0.1/"),
            (StoreAddress{.host = "10.0.0.1", .user = "baton"}));
  EXPECT_EQ(*ParseStoreAddress("redis://[::1]:7"), (StoreAddress{.host = "::1", .port = 7}));
  EXPECT_EQ(*ParseStoreAddress("unix:///run/store.sock"), (StoreAddress{.socket = "/run/store.sock"}));
  for (const char* const text : {"redis://store:1234/7", "redis://[::1]:7/0", "unix:///run/store.sock"}) {
    EXPECT_EQ(ParseStoreAddress(text)->Text(), text);
  }
}

TEST(StoreAddressTest, RefusesTheRestWithAReason) {
  for (const char* const text : {"", "store:6379", "http://store", "redis://", "redis://:6379", "redis://a:0",
                                 "redis://a:65536", "redis://a:b", "redis://a/x", "redis://a/-1",
                                 "redis://[::1", "redis://[::1]7", "unix://", "unix://relative"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(ParseStoreAddress(text).status())) << text;
  }
  EXPECT_THAT(std::string(ParseStoreAddress("rediss://store").status().message()), HasSubstr("TLS"));
  EXPECT_THAT(std::string(ParseStoreAddress("redis://me:secret@store").status().message()),
              AllOf(HasSubstr("--store-password-file"), Not(HasSubstr("secret"))));
}

}  // namespace
}  // namespace baton::router::store
