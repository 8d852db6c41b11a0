#include <fmt/format.h>

#include <cstring>
#include <deque>
#include <span>
#include <utility>

#include "common/base/digest.h"
#include "transfer/nccl/payload.h"

namespace baton::transfer {
namespace {

class HostPayload final : public Payload {
 public:
  absl::StatusOr<device::Memory::Buffer> Stage(int64_t bytes) override {
    return device::HostMemory().Allocate(bytes);
  }
  int64_t TrailerBytes(int64_t) const override { return sizeof(uint32_t); }

  uint64_t Pack(ConstPieces pieces, std::byte* staging) override {
    std::byte* to = staging;
    for (const auto piece : pieces) {
      std::memcpy(to, piece.data(), piece.size());
      to += piece.size();
    }
    const uint32_t crc = Crc32c(std::span<const std::byte>(staging, to));
    std::memcpy(to, &crc, sizeof crc);
    return 0;
  }
  bool Packed(uint64_t) override { return true; }

  uint64_t Unpack(const std::byte* staging, int64_t bytes, Pieces pieces) override {
    ended_.push_back(Copy(staging, bytes, pieces));
    return ++unpacks_;
  }
  std::optional<absl::Status> Unpacked(uint64_t) override {
    absl::Status status = std::move(ended_.front());
    ended_.pop_front();
    return status;
  }

 private:
  static absl::Status Copy(const std::byte* staging, int64_t bytes, Pieces pieces) {
    uint32_t expected;
    std::memcpy(&expected, staging + bytes, sizeof expected);
    const uint32_t crc = Crc32c(std::span(staging, static_cast<size_t>(bytes)));
    if (crc != expected) {
      return absl::DataLossError(fmt::format("payload checksum {:08x}, expected {:08x}", crc, expected));
    }
    for (const auto piece : pieces) {
      std::memcpy(piece.data(), staging, piece.size());
      staging += piece.size();
    }
    return absl::OkStatus();
  }

  uint64_t unpacks_ = 0;
  std::deque<absl::Status> ended_;  // not asked for yet
};

}  // namespace

std::unique_ptr<Payload> MakeHostPayload() { return std::make_unique<HostPayload>(); }

}  // namespace baton::transfer
