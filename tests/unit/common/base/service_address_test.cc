#include "common/base/service_address.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace baton {
namespace {

using ::testing::HasSubstr;

TEST(ServiceAddressTest, ReadsAddressesAndNames) {
  for (const char* text : {"host:80", "10.0.0.1:65535", "[::1]:80", "dns:///a.b-c.svc:8470"}) {
    const auto entry = ServiceAddress::Parse(text);
    ASSERT_TRUE(entry.ok()) << entry.status();
    EXPECT_EQ(entry->text(), text);
    EXPECT_EQ(entry->is_name, text[0] == 'd');
  }
  EXPECT_EQ(ServiceAddress::Parse("[0:0::1]:80")->text(), "[::1]:80");
}

TEST(ServiceAddressTest, RefusesWhatIsNeither) {
  for (const char* text :
       {"", "host", ":80", "host:", "host:0", "host:65536", "host:8x", "::1:80", "[::1]", "[]:80", "[::1:80",
        "dns:///host", "dns:///:80", "dns://8.8.8.8/host:80", "http://host:80", "a b:80", "host:80/"}) {
    const auto entry = ServiceAddress::Parse(text);
    EXPECT_TRUE(absl::IsInvalidArgument(entry.status())) << text;
    EXPECT_THAT(std::string(entry.status().message()), HasSubstr("dns:///NAME:PORT"));
  }
}

}  // namespace
}  // namespace baton
