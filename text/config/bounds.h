// Bounds of what a config.json may say, which no model of today comes near; they keep products of sizes far
// from overflow.
#pragma once

#include <cstdint>

namespace baton::model {

inline constexpr int64_t kMaxVocabulary = 1 << 24;
inline constexpr int64_t kMaxWidth = 1 << 20;
inline constexpr int64_t kMaxHeads = 1 << 14;
inline constexpr int64_t kMaxHeadDim = 1 << 12;
inline constexpr int64_t kMaxLayers = 1 << 12;
inline constexpr int64_t kMaxContext = 1 << 26;

}  // namespace baton::model
