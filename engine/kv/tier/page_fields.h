// Fields of the pages that describe what lies in a file of the disk tier: a magic word, the version, fields
// one after the other, and the page's own checksum last. Numbers are little-endian. Plain, any thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

#include "common/base/check.h"
#include "common/base/digest.h"
#include "engine/kv/tier/record.h"
#include "protocol/block_hash.h"

namespace baton::kv::tier {

class PageWriter {
 public:
  PageWriter(std::span<std::byte> page, std::string_view magic) : page_(page) {
    BATON_CHECK_EQ(page.size(), static_cast<size_t>(kPage));
    std::fill(page.begin(), page.end(), std::byte{0});
    Bytes(magic.data(), magic.size());
    Number(kVersion, sizeof(kVersion));
  }
  void Bytes(const void* bytes, size_t count) {
    std::memcpy(page_.data() + at_, bytes, count);
    at_ += count;
  }
  void Number(uint64_t value, size_t bytes) {
    for (size_t i = 0; i < bytes; ++i) page_[at_++] = static_cast<std::byte>(value >> (8 * i));
  }
  // Where a seal lies, and what lies before it.
  void Surroundings(const Seal& seal) {
    BATON_CHECK(seal.earlier.size() <= Seal::kMostEarlier);
    Number(seal.segment, sizeof(seal.segment));
    Number(seal.slot, sizeof(seal.slot));
    Number(seal.earlier.size(), sizeof(uint16_t));
    for (const Seal::Earlier& earlier : seal.earlier) {
      Bytes(earlier.hash.bytes().data(), BlockHash::kBytes);
      Number(earlier.sequence, sizeof(earlier.sequence));
    }
    BATON_CHECK(at_ <= kPage - kSum);
  }
  // Where the next field goes.
  size_t at() const { return at_; }
  void End() {
    at_ = kPage - kSum;
    Number(Crc32c(page_.first(kPage - kSum)), kSum);
  }

  static constexpr size_t kSum = sizeof(uint32_t);

 private:
  std::span<std::byte> page_;
  size_t at_ = 0;
};

class PageReader {
 public:
  PageReader(std::span<const std::byte> page, std::string_view magic) : page_(page) {
    BATON_CHECK_EQ(page.size(), static_cast<size_t>(kPage));
    good_ = std::memcmp(page.data(), magic.data(), magic.size()) == 0;
    at_ = magic.size();
    good_ = good_ && Number(sizeof(kVersion)) == kVersion;
    const size_t fields = at_;
    at_ = kPage - PageWriter::kSum;
    good_ = good_ && Number(PageWriter::kSum) == Crc32c(page.first(kPage - PageWriter::kSum));
    at_ = fields;
  }
  // A page that is known to be whole, from `at` on.
  PageReader(std::span<const std::byte> page, size_t at) : page_(page), at_(at), good_(true) {}
  bool good() const { return good_; }
  void Bytes(void* bytes, size_t count) {
    std::memcpy(bytes, page_.data() + at_, count);
    at_ += count;
  }
  BlockHash Hash() {
    const std::string_view bytes(reinterpret_cast<const char*>(page_.data()) + at_, BlockHash::kBytes);
    at_ += BlockHash::kBytes;
    return BlockHash::FromBytes(bytes);
  }
  uint64_t Number(size_t bytes) {
    uint64_t value = 0;
    for (size_t i = 0; i < bytes; ++i) value |= std::to_integer<uint64_t>(page_[at_++]) << (8 * i);
    return value;
  }
  void Surroundings(Seal* seal) {
    seal->segment = Number(sizeof(seal->segment));
    seal->slot = static_cast<uint32_t>(Number(sizeof(seal->slot)));
    seal->earlier.resize(std::min<size_t>(Number(sizeof(uint16_t)), Seal::kMostEarlier));
    for (Seal::Earlier& earlier : seal->earlier) {
      earlier.hash = Hash();
      earlier.sequence = Number(sizeof(earlier.sequence));
    }
  }

 private:
  std::span<const std::byte> page_;
  size_t at_ = 0;
  bool good_ = false;
};

}  // namespace baton::kv::tier
