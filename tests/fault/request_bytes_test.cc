// Requests with any bytes in them, through the workers' real checks and schedulers.
#include "tests/fuzz/request_bytes.h"

#include <gtest/gtest.h>

#include <vector>

#include "common/base/random.h"
#include "google/protobuf/stubs/logging.h"
#include "spdlog/spdlog.h"
#include "tests/seed.h"

namespace baton {
namespace {

TEST(RequestBytesTest, AnyBytesAreRefusedOrServedAndLeaveThePoolWhole) {
  spdlog::set_level(spdlog::level::off);
  const google::protobuf::LogSilencer quiet;  // of strings that are not UTF-8
  const uint64_t seed = TestSeed();
  uint64_t draws = 0;
  const auto draw = [&](size_t below) {
    return static_cast<size_t>(UniformAt(seed, draws++) * static_cast<double>(below));
  };
  for (int round = 0; round < 1500; ++round) {
    SCOPED_TRACE(testing::Message() << "seed " << seed << " round " << round);
    const bool decode = draw(2) == 0, fetch = draw(3) == 0;
    std::string request = fetch ? GoodFetchRequestBytes() : GoodRequestBytes(decode);
    for (size_t changes = draw(6); changes > 0; --changes) {
      const size_t at = draw(request.size());
      switch (draw(3)) {
        case 0:
          request[at] = static_cast<char>(draw(256));
          break;
        case 1:
          request.insert(at, 1, static_cast<char>(draw(256)));
          break;
        default:
          request.erase(at, 1 + draw(3));
      }
    }
    std::vector<uint8_t> bytes = {
        static_cast<uint8_t>((decode ? 1 : 0) | (fetch ? 8 : 0) | (draw(8) == 0 ? 0 : 2))};
    bytes.insert(bytes.end(), request.begin(), request.end());
    const absl::Status status = RunRequestBytes(bytes);
    ASSERT_TRUE(status.ok()) << status;
  }
}

}  // namespace
}  // namespace baton
