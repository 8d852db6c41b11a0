#include "common/transfer/host_link.h"

#include <fmt/format.h>

#include <utility>
#include <vector>

#include "common/base/digest.h"
#include "common/base/status.h"

namespace baton::transfer {

absl::Status HostLinkSender::Ship(ConstPieces pieces, v1::KvChunk& chunk) {
  size_t size = 0;
  for (const auto piece : pieces) size += piece.size();
  std::string& data = *chunk.mutable_data();
  data.clear();
  if (memory_->host()) {
    data.reserve(size);
    for (const auto piece : pieces) data.append(reinterpret_cast<const char*>(piece.data()), piece.size());
  } else {
    data.resize(size);
    auto* to = reinterpret_cast<std::byte*>(data.data());
    std::vector<device::Memory::Piece> downloads;
    downloads.reserve(pieces.size());
    for (const auto piece : pieces) {
      downloads.push_back({piece.data(), to, static_cast<int64_t>(piece.size())});
      to += piece.size();
    }
    BATON_RETURN_IF_ERROR(memory_->DownloadMarked(memory_->announced(), downloads));
  }
  chunk.set_crc32c(Crc32c(data));
  return absl::OkStatus();
}

void HostLinkReceiver::Receive(const v1::KvChunk& chunk, std::string_view /*from*/, Pieces pieces,
                               Done done) {
  size_t size = 0;
  for (const auto piece : pieces) size += piece.size();
  if (chunk.data().size() != size) {
    done(absl::DataLossError(
        fmt::format("chunk of ticket {} at block {} has {} bytes where its blocks take {}", chunk.ticket_id(),
                    chunk.first_block(), chunk.data().size(), size)));
    return;
  }
  if (const uint32_t crc = Crc32c(chunk.data()); crc != chunk.crc32c()) {
    done(absl::DataLossError(fmt::format("chunk of ticket {} at block {}: checksum {:08x}, expected {:08x}",
                                         chunk.ticket_id(), chunk.first_block(), crc, chunk.crc32c())));
    return;
  }
  const char* from = chunk.data().data();
  for (const auto piece : pieces) {
    if (absl::Status copied = memory_->Upload(from, piece.data(), static_cast<int64_t>(piece.size()));
        !copied.ok()) {
      done(std::move(copied));
      return;
    }
    from += piece.size();
  }
  done(absl::OkStatus());
}

}  // namespace baton::transfer
