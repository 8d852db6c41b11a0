#include "router/api/inflate.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "common/rpc/channel.h"

namespace baton::router {
namespace {

constexpr std::string_view kMagic = "\x1f\x8b";
// Header and trailer, and the shortest data.
constexpr size_t kShortest = 20;
// A byte of deflate's data stands for no more (a match of 258 bytes takes two bits at least).
constexpr size_t kMostRatio = 1032;

absl::Status Corrupt(std::string_view why) {
  return absl::InvalidArgumentError(fmt::format("the request's gzip data are {}", why));
}

}  // namespace

bool IsGzip(std::string_view bytes) { return bytes.starts_with(kMagic); }

size_t StatedBytes(std::string_view gzip) {
  if (gzip.size() < kShortest) return 0;
  size_t stated = 0;
  for (size_t i = 0; i < sizeof(uint32_t); ++i) {
    stated = stated << 8 | static_cast<unsigned char>(gzip[gzip.size() - 1 - i]);
  }
  return stated;
}

bool CanHold(size_t gzip, size_t stated) { return stated <= gzip * kMostRatio; }

absl::StatusOr<std::string> Inflate(std::string_view gzip) {
  const size_t stated = StatedBytes(gzip);
  if (gzip.size() < kShortest || !CanHold(gzip.size(), stated)) return Corrupt("cut short or corrupt");
  z_stream stream = {};
  constexpr int kGzipAlone = 16;
  if (inflateInit2(&stream, kGzipAlone + MAX_WBITS) != Z_OK) return absl::InternalError("zlib has no memory");
  std::string inflated(stated + 1, '\0');  // a byte more than stated is one too many
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(gzip.data()));
  stream.avail_in = static_cast<uInt>(gzip.size());
  stream.next_out = reinterpret_cast<Bytef*>(inflated.data());
  stream.avail_out = static_cast<uInt>(inflated.size());
  const int end = inflate(&stream, Z_FINISH);
  const bool all = stream.avail_in == 0, full = stream.avail_out == 0;
  inflateEnd(&stream);
  if (full) return Corrupt(fmt::format("more than the {} bytes that they state at their end", stated));
  if (end == Z_STREAM_END && !all) return Corrupt("followed by others: send one member");
  if (end != Z_STREAM_END) return Corrupt("cut short or corrupt");
  inflated.pop_back();
  return inflated;
}

size_t RequestBytes(const grpc::ByteBuffer& bytes) {
  const size_t length = bytes.Length();
  std::vector<grpc::Slice> slices;
  if (length < kShortest || !bytes.Dump(&slices).ok()) return length;
  const auto text = [](const grpc::Slice& slice) {
    return std::string_view(reinterpret_cast<const char*>(slice.begin()), slice.size());
  };
  std::string ends;
  for (auto slice = slices.begin(); slice != slices.end() && ends.size() < kMagic.size(); ++slice) {
    ends += text(*slice).substr(0, kMagic.size() - ends.size());
  }
  if (!IsGzip(ends)) return length;
  std::string last;
  for (auto slice = slices.rbegin(); slice != slices.rend() && last.size() < kShortest; ++slice) {
    const std::string_view all = text(*slice);
    last.insert(0, all.substr(all.size() - std::min(all.size(), kShortest - last.size())));
  }
  const size_t stated = StatedBytes(last);
  const bool taken = CanHold(length, stated) && stated <= size_t{rpc::kMaxMessageBytes};
  return taken ? std::max(length, stated) : length;
}

}  // namespace baton::router
