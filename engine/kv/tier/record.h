// How blocks lie in the files of the disk tier. A segment file is one page of header and then slots of one
// size; a slot is the block's bytes as the pool holds them, padded to pages, and one page more, the seal,
// which says whose bytes they are and sums them up:
//
//   segment := header[4096] slot[]         slot := block, padded to 4096   seal[4096]
//
// The seal lies behind the block: one write in ascending order completes the block before its seal, so a
// process that dies in the middle leaves no seal. A machine that dies may leave anything; the checksums find
// it. What is left of a seal's page tells which records lie in the slots before it, so that a start reads one
// seal of many. Numbers are little-endian. Plain functions over bytes, any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/base/digest.h"
#include "protocol/block_hash.h"

namespace baton::kv::tier {

inline constexpr int64_t kPage = 4096;
// Version of the files' format. Files of another version are dropped.
inline constexpr uint32_t kVersion = 2;

// Properties common to a worker's blocks: only blocks of an equal identity are ever read.
struct Identity {
  Sha256Digest fingerprint{};  // model, weights, numerics (protocol::Fingerprint)
  Sha256Digest layout{};       // of a block's bytes (kv::KvLayout)
  int64_t block_bytes = 0;

  // Size of a slot: the block in whole pages, and its seal.
  int64_t slot_bytes() const { return (block_bytes + kPage - 1) / kPage * kPage + kPage; }
  friend bool operator==(const Identity&, const Identity&) = default;
};

// Id of the key that encrypts a segment's records (record_cipher.h). All zeros: they are in the clear.
using KeyId = std::array<std::byte, 16>;

struct SegmentHeader {
  Identity identity;
  uint64_t number = 0;  // among the segments of a folder, in the order in which they were begun
  KeyId key{};

  // Fills `page`, which has kPage bytes.
  void Write(std::span<std::byte> page) const;
  // Nothing if that is no header of this version.
  static std::optional<SegmentHeader> Read(std::span<const std::byte> page);
};

struct Seal {
  // A slot's content when this record was written; a hash of zeros: no block.
  struct Earlier {
    BlockHash hash;
    uint64_t sequence = 0;
    friend bool operator==(const Earlier&, const Earlier&) = default;
  };
  static constexpr size_t kMostEarlier = 160;

  BlockHash hash;
  // Root of the chain, a digest of the model's fingerprint and the tenant's salt: which blocks are a
  // tenant's.
  BlockHash root;
  uint64_t sequence = 0;    // of the record, among all of the folder
  uint32_t block_crc = 0;   // CRC-32C of the block's bytes, in the clear
  Sha256Digest identity{};  // digest of Identity
  // Where it was written.
  uint64_t segment = 0;
  uint32_t slot = 0;
  // The slots before it, the nearest first, kMostEarlier at most. Hints, as the index is: only a slot's own
  // seal vouches for its block.
  std::vector<Earlier> earlier = {};

  void Write(std::span<std::byte> page) const;
  static std::optional<Seal> Read(std::span<const std::byte> page);
};

// SHA-256 over all fields.
Sha256Digest DigestOf(const Identity& identity);

}  // namespace baton::kv::tier
