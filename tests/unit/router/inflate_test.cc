// Compressed requests, and data that only look like one.
#include "router/api/inflate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "baton/v1/inference.pb.h"
#include "common/rpc/channel.h"
#include "common/rpc/status.h"
#include "router/api/wire.h"

namespace baton::router {
namespace {

using ::testing::HasSubstr;

std::string Gzip(const std::string& text) {
  z_stream stream = {};
  EXPECT_EQ(deflateInit2(&stream, 9, Z_DEFLATED, 16 + MAX_WBITS, 9, Z_DEFAULT_STRATEGY), Z_OK);
  std::string gzip(deflateBound(&stream, text.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(gzip.data());
  stream.avail_out = static_cast<uInt>(gzip.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  gzip.resize(stream.total_out);
  deflateEnd(&stream);
  return gzip;
}

// The data say that they hold so many bytes.
std::string Stating(std::string gzip, uint32_t bytes) {
  for (size_t i = 0; i < 4; ++i) gzip[gzip.size() - 4 + i] = static_cast<char>(bytes >> (8 * i));
  return gzip;
}

grpc::ByteBuffer InPieces(const std::string& bytes, size_t piece) {
  std::vector<grpc::Slice> slices;
  for (size_t i = 0; i < bytes.size(); i += piece) slices.emplace_back(bytes.substr(i, piece));
  return {slices.data(), slices.size()};
}

std::string Request(size_t text) {
  v1::GenerateRequest request;
  request.set_text(std::string(text, 'x'));
  return request.SerializeAsString();
}

void ExpectCorrupt(const std::string& gzip, const char* words) {
  const absl::Status status = Inflate(gzip).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(words));
}

TEST(InflateTest, GivesBackTheBytes) {
  for (const std::string text : {"", "a", "abcabcabc"}) EXPECT_EQ(Inflate(Gzip(text)).value(), text);
  std::string mixed;
  for (int64_t i = 0; i < 100'000; ++i) mixed += static_cast<char>(i * i >> 7);
  EXPECT_EQ(Inflate(Gzip(mixed)).value(), mixed);
  EXPECT_TRUE(IsGzip(Gzip("")));
  EXPECT_FALSE(IsGzip(""));
  EXPECT_FALSE(IsGzip("\x1f"));
}

TEST(InflateTest, RefusesEveryDataCutShort) {
  const std::string gzip = Gzip("a text of some words, some words and more words");
  for (size_t size = 0; size < gzip.size(); ++size) {
    EXPECT_TRUE(absl::IsInvalidArgument(Inflate(gzip.substr(0, size)).status())) << size;
  }
}

TEST(InflateTest, RefusesEveryFlippedByteOfDataAndTrailer) {
  const std::string text = "a text of some words, some words and more words";
  const std::string gzip = Gzip(text);
  constexpr size_t kHeader = 10;  // has fields that nothing depends on
  for (size_t at = kHeader; at < gzip.size(); ++at) {
    std::string flipped = gzip;
    flipped[at] = static_cast<char>(flipped[at] ^ 0x55);
    EXPECT_FALSE(Inflate(flipped).ok()) << at;
  }
}

TEST(InflateTest, InflatesNoMoreThanIsStated) {
  const std::string gzip = Gzip(std::string(16 << 20, 'x'));
  ExpectCorrupt(Stating(gzip, 10), "more than the 10 bytes that they state");
  ExpectCorrupt(Stating(gzip, (16 << 20) - 1), "more than the 16777215 bytes");
  ExpectCorrupt(Stating(gzip, (16 << 20) + 1), "cut short or corrupt");
  // No room is made for more than the data can hold.
  ExpectCorrupt(Stating(gzip, 0xffffffff), "cut short or corrupt");
  ExpectCorrupt(Gzip("a") + Gzip("a"), "send one member");
}

TEST(InflateTest, CountsARequestByItsInflatedBytes) {
  const std::string plain = Request(100'000), gzip = Gzip(plain);
  ASSERT_LT(gzip.size(), 1'000u);
  for (const size_t piece : {size_t{1}, size_t{3}, gzip.size()}) {
    EXPECT_EQ(RequestBytes(InPieces(gzip, piece)), plain.size()) << piece;
    EXPECT_EQ(RequestBytes(InPieces(plain, piece * 1'000)), plain.size()) << piece;
  }
  EXPECT_EQ(RequestBytes(grpc::ByteBuffer()), 0u);
  // It is refused, whatever it says, and nothing is kept free for it.
  for (const uint32_t lie : {200u << 20, 1u << 30}) {
    EXPECT_EQ(RequestBytes(InPieces(Stating(gzip, lie), gzip.size())), gzip.size()) << lie;
  }
}

TEST(InflateTest, AMessageIsParsedOfThem) {
  const std::string plain = Request(100'000), gzip = Gzip(plain);
  for (const size_t piece : {size_t{7}, gzip.size()}) {
    v1::GenerateRequest request;
    ASSERT_TRUE(ParseMessage(InPieces(gzip, piece), &request).ok());
    EXPECT_EQ(request.text().size(), 100'000u);
  }
  v1::GenerateRequest request;
  const absl::Status large = ParseMessage(InPieces(Gzip(Request(rpc::kMaxMessageBytes)), 1 << 20), &request);
  EXPECT_EQ(rpc::ReasonOf(large), "REQUEST_TOO_LARGE") << large;
  const absl::Status corrupt = ParseMessage(InPieces(gzip.substr(0, gzip.size() / 2), 1 << 20), &request);
  EXPECT_TRUE(absl::IsInvalidArgument(corrupt)) << corrupt;
  const absl::Status inner = ParseMessage(InPieces(Gzip("\x0a\xff no message"), 1 << 20), &request);
  EXPECT_THAT(std::string(inner.message()), HasSubstr("not a well-formed baton.v1.GenerateRequest"));
}

}  // namespace
}  // namespace baton::router
