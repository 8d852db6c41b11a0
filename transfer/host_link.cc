#include "transfer/host_link.h"

#include <fmt/format.h>

#include <cstring>
#include <string>

#include "common/base/digest.h"

namespace baton::transfer {

absl::Status CheckPayloadSize(const fleet::v1::KvChunk& chunk, size_t bytes) {
  if (chunk.data().size() == bytes) return absl::OkStatus();
  return absl::DataLossError(
      fmt::format("chunk of ticket {} at block {} has {} bytes where its blocks take {}", chunk.ticket_id(),
                  chunk.first_block(), chunk.data().size(), bytes));
}

absl::Status CheckPayloadSum(const fleet::v1::KvChunk& chunk) {
  const uint32_t crc = Crc32c(chunk.data());
  if (crc == chunk.crc32c()) return absl::OkStatus();
  return absl::DataLossError(fmt::format("chunk of ticket {} at block {}: checksum {:08x}, expected {:08x}",
                                         chunk.ticket_id(), chunk.first_block(), crc, chunk.crc32c()));
}

absl::Status HostLinkSender::Ship(ConstPieces pieces, fleet::v1::KvChunk& chunk) {
  size_t size = 0;
  for (const auto piece : pieces) size += piece.size();
  std::string& data = *chunk.mutable_data();
  data.clear();
  data.reserve(size);
  for (const auto piece : pieces) data.append(reinterpret_cast<const char*>(piece.data()), piece.size());
  chunk.set_crc32c(Crc32c(data));
  return absl::OkStatus();
}

void HostLinkReceiver::Receive(const fleet::v1::KvChunk& chunk, std::string_view /*from*/, Pieces pieces,
                               Done done) {
  size_t size = 0;
  for (const auto piece : pieces) size += piece.size();
  absl::Status checked = CheckPayloadSize(chunk, size);
  if (checked.ok()) checked = CheckPayloadSum(chunk);
  if (checked.ok()) {
    const char* from = chunk.data().data();
    for (const auto piece : pieces) {
      std::memcpy(piece.data(), from, piece.size());
      from += piece.size();
    }
  }
  done(std::move(checked));
}

}  // namespace baton::transfer
