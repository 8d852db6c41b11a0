#include <gtest/gtest.h>

#include "cli/client/inference_client.h"
#include "cli/serve/supervisor.h"

namespace baton::cli {
namespace {

TEST(ParseServerTest, FillsInWhatIsMissing) {
  EXPECT_EQ(*ParseServer("host:123"), "host:123");
  EXPECT_EQ(*ParseServer("host"), "host:8470");
  EXPECT_EQ(*ParseServer(":9"), "127.0.0.1:9");
  EXPECT_EQ(*ParseServer("[::1]:9"), "[::1]:9");
  EXPECT_EQ(*ParseServer("[::1]"), "[::1]:8470");
}

TEST(ParseServerTest, RefusesWhatIsNoAddress) {
  for (const char* bad :
       {"", "host:", "host:0", "host:65536", "host:12x", "http://host:1", "a b", "::1", "::1:9"}) {
    EXPECT_EQ(ParseServer(bad).status().code(), absl::StatusCode::kInvalidArgument) << bad;
  }
}

TEST(ParseReadyLineTest, TakesReadyLinesAlone) {
  EXPECT_EQ(*ParseReadyLine("ready grpc=127.0.0.1:4000 metrics=127.0.0.1:4001"),
            (Endpoints{{"grpc", "127.0.0.1:4000"}, {"metrics", "127.0.0.1:4001"}}));
  EXPECT_EQ(*ParseReadyLine("ready"), Endpoints());
  for (const char* other : {"", "almost ready grpc=a", "ready or not", "ready =x", "readygrpc=a"}) {
    EXPECT_FALSE(ParseReadyLine(other).has_value()) << other;
  }
}

TEST(ExitStatusTest, NamesSignals) {
  EXPECT_EQ((ExitStatus{true, 9}).Describe(), "killed by SIGKILL");
  EXPECT_EQ((ExitStatus{false, 3}).Describe(), "exit code 3");
  EXPECT_EQ((ExitStatus{true, 200}).Describe(), "killed by signal 200");
}

}  // namespace
}  // namespace baton::cli
