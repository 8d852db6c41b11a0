#include "decode_service/drafting/ngram_index.h"

#include <algorithm>

namespace baton::decode_service::drafting {
namespace {

constexpr size_t kFirstPlaces = 256;

}  // namespace

// Steele and Vigna's 64-bit multiplier over the ids; the high bits are the good ones.
uint64_t NgramIndex::Hash(std::span<const TokenId> tokens) {
  uint64_t hash = tokens.size();
  for (const TokenId token : tokens) {
    hash = (hash ^ static_cast<uint32_t>(token.value())) * 0xd1342543de82ef95u;
    hash ^= hash >> 32;
  }
  return hash;
}

void NgramIndex::Add(std::span<const TokenId> text, size_t place) {
  for (size_t i = 0; i < kLengths.size(); ++i) {
    if (place < kLengths[i]) continue;
    const uint64_t hash = Hash(text.subspan(place - kLengths[i], kLengths[i]));
    places_[i][hash & (places_[i].size() - 1)] = static_cast<uint32_t>(place);
  }
}

void NgramIndex::Grow(std::span<const TokenId> text) {
  const size_t size = std::max(kFirstPlaces, 2 * places_.front().size());
  for (std::vector<uint32_t>& places : places_) places.assign(size, 0);
  for (size_t place = 1; place <= taken_; ++place) Add(text, place);
}

void NgramIndex::Extend(std::span<const TokenId> text, size_t most) {
  // A place is in once there is a token at it.
  for (; taken_ + 1 < text.size() && most > 0; --most) {
    if (2 * (taken_ + 1) > places_.front().size()) Grow(text);
    Add(text, ++taken_);
  }
}

NgramIndex::Match NgramIndex::Find(std::span<const TokenId> text, std::span<const TokenId> context,
                                   size_t longer_than) const {
  if (taken_ == 0) return {};
  for (size_t i = 0; i < kLengths.size(); ++i) {
    const size_t length = kLengths[i];
    if (length <= longer_than || context.size() < length) continue;
    const auto end = context.last(length);
    const size_t place = places_[i][Hash(end) & (places_[i].size() - 1)];
    if (place == 0) continue;
    if (std::ranges::equal(text.subspan(place - length, length), end)) return {place, length};
  }
  return {};
}

size_t NgramIndex::bytes() const { return places_.size() * places_.front().size() * sizeof(uint32_t); }

}  // namespace baton::decode_service::drafting
