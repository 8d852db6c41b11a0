#include "engine/kv/tier/record.h"

#include <string_view>

#include "engine/kv/tier/page_fields.h"

namespace baton::kv::tier {
namespace {

constexpr std::string_view kSegmentMagic = "BATONKVS", kSealMagic = "BATONKVR";

}  // namespace

void SegmentHeader::Write(std::span<std::byte> page) const {
  PageWriter writer(page, kSegmentMagic);
  writer.Bytes(identity.fingerprint.data(), identity.fingerprint.size());
  writer.Bytes(identity.layout.data(), identity.layout.size());
  writer.Number(static_cast<uint64_t>(identity.block_bytes), sizeof(uint64_t));
  writer.Number(number, sizeof(number));
  writer.Bytes(key.data(), key.size());
  writer.End();
}

std::optional<SegmentHeader> SegmentHeader::Read(std::span<const std::byte> page) {
  PageReader reader(page, kSegmentMagic);
  if (!reader.good()) return std::nullopt;
  SegmentHeader header;
  reader.Bytes(header.identity.fingerprint.data(), header.identity.fingerprint.size());
  reader.Bytes(header.identity.layout.data(), header.identity.layout.size());
  header.identity.block_bytes = static_cast<int64_t>(reader.Number(sizeof(uint64_t)));
  header.number = reader.Number(sizeof(header.number));
  reader.Bytes(header.key.data(), header.key.size());
  return header;
}

void Seal::Write(std::span<std::byte> page) const {
  PageWriter writer(page, kSealMagic);
  writer.Bytes(hash.bytes().data(), BlockHash::kBytes);
  writer.Bytes(root.bytes().data(), BlockHash::kBytes);
  writer.Number(sequence, sizeof(sequence));
  writer.Number(block_crc, sizeof(block_crc));
  writer.Bytes(identity.data(), identity.size());
  writer.Surroundings(*this);
  writer.End();
}

std::optional<Seal> Seal::Read(std::span<const std::byte> page) {
  PageReader reader(page, kSealMagic);
  if (!reader.good()) return std::nullopt;
  Seal seal;
  seal.hash = reader.Hash();
  seal.root = reader.Hash();
  seal.sequence = reader.Number(sizeof(seal.sequence));
  seal.block_crc = static_cast<uint32_t>(reader.Number(sizeof(seal.block_crc)));
  reader.Bytes(seal.identity.data(), seal.identity.size());
  reader.Surroundings(&seal);
  return seal;
}

Sha256Digest DigestOf(const Identity& identity) {
  Sha256 digest;
  digest.Update("baton/kv/tier/2");
  digest.Update(std::as_bytes(std::span(identity.fingerprint)));
  digest.Update(std::as_bytes(std::span(identity.layout)));
  std::array<std::byte, sizeof(uint64_t)> bytes;
  for (size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<std::byte>(static_cast<uint64_t>(identity.block_bytes) >> (8 * i));
  }
  digest.Update(bytes);
  return digest.Finish();
}

}  // namespace baton::kv::tier
