#include "text/gguf/block_format.h"

#include <cstring>

#include "common/base/check.h"
#include "common/tensor/dtype.h"

namespace baton::gguf {
namespace {

constexpr int kBlock = 32, kSuperBlock = 256;

uint8_t ByteAt(const std::byte* at, int i) { return std::to_integer<uint8_t>(at[i]); }
int8_t SignedAt(const std::byte* at, int i) { return static_cast<int8_t>(at[i]); }
int LowerHalf(uint8_t byte) { return byte & 15; }
int UpperHalf(uint8_t byte) { return byte >> 4; }

float HalfAt(const std::byte* at) {
  uint16_t bits;
  std::memcpy(&bits, at, sizeof bits);
  return tensor::FromF16(bits);
}

void ExpandF32(const std::byte* block, float* values) { std::memcpy(values, block, sizeof *values); }
void ExpandF16(const std::byte* block, float* values) { *values = HalfAt(block); }
void ExpandBF16(const std::byte* block, float* values) {
  *values = tensor::ValueAt(block, tensor::DType::kBF16, 0);
}

// d, 32 signed bytes: q d.
void ExpandQ8_0(const std::byte* block, float* values) {
  const float d = HalfAt(block);
  for (int i = 0; i < kBlock; ++i) values[i] = static_cast<float>(SignedAt(block + 2, i)) * d;
}

// d, 16 bytes: (q - 8) d. The lower halves of the bytes come first.
void ExpandQ4_0(const std::byte* block, float* values) {
  const float d = HalfAt(block);
  for (int i = 0; i < kBlock / 2; ++i) {
    const uint8_t both = ByteAt(block + 2, i);
    values[i] = static_cast<float>(LowerHalf(both) - 8) * d;
    values[i + kBlock / 2] = static_cast<float>(UpperHalf(both) - 8) * d;
  }
}

// d, m, 16 bytes: q d + m.
void ExpandQ4_1(const std::byte* block, float* values) {
  const float d = HalfAt(block), m = HalfAt(block + 2);
  for (int i = 0; i < kBlock / 2; ++i) {
    const uint8_t both = ByteAt(block + 4, i);
    values[i] = static_cast<float>(LowerHalf(both)) * d + m;
    values[i + kBlock / 2] = static_cast<float>(UpperHalf(both)) * d + m;
  }
}

// The five bits of 32 values: four in the halves of 16 bytes, as of q4_0, the fifth of value i in bit i of
// the word in front of them.
void FiveBits(const std::byte* at, int* values) {
  uint32_t fifth;
  std::memcpy(&fifth, at, sizeof fifth);
  for (int i = 0; i < kBlock / 2; ++i) {
    const uint8_t both = ByteAt(at + 4, i);
    values[i] = LowerHalf(both) | static_cast<int>((fifth >> i) & 1) << 4;
    values[i + kBlock / 2] = UpperHalf(both) | static_cast<int>((fifth >> (i + kBlock / 2)) & 1) << 4;
  }
}

// d, 32 values of 5 bits: (q - 16) d.
void ExpandQ5_0(const std::byte* block, float* values) {
  const float d = HalfAt(block);
  int q[kBlock];
  FiveBits(block + 2, q);
  for (int i = 0; i < kBlock; ++i) values[i] = static_cast<float>(q[i] - 16) * d;
}

// d, m, 32 values of 5 bits: q d + m.
void ExpandQ5_1(const std::byte* block, float* values) {
  const float d = HalfAt(block), m = HalfAt(block + 2);
  int q[kBlock];
  FiveBits(block + 4, q);
  for (int i = 0; i < kBlock; ++i) values[i] = static_cast<float>(q[i]) * d + m;
}

// Scale and minimum of group j of 8, of 6 bits each in 12 bytes: groups 0 to 3 in the lower bits of bytes j
// and 4 + j; the others have their lower four bits in byte 4 + j, and their upper two bits above those of
// group j - 4.
struct GroupScale {
  int scale, minimum;
};
GroupScale GroupScaleAt(const std::byte* scales, int j) {
  const auto byte = [scales](int i) { return int{ByteAt(scales, i)}; };
  if (j < 4) return {byte(j) & 63, byte(j + 4) & 63};
  return {(byte(j + 4) & 15) | (byte(j - 4) >> 6) << 4, byte(j + 4) >> 4 | (byte(j) >> 6) << 4};
}

// Values of q4_k and q5_k: d, m, 12 bytes of scales of 8 groups of 32 values: q (d scale) - m minimum. Two
// groups share 32 bytes, the first in their lower halves. `upper`: the fifth bits, of group j in bit j of 32
// bytes; null: there are none.
void ExpandGroups(const std::byte* block, const std::byte* upper, const std::byte* lower, float* values) {
  const float d = HalfAt(block), m = HalfAt(block + 2);
  for (int j = 0; j < kSuperBlock / kBlock; ++j) {
    const auto [scale, minimum] = GroupScaleAt(block + 4, j);
    const float group_scale = d * static_cast<float>(scale), offset = m * static_cast<float>(minimum);
    for (int i = 0; i < kBlock; ++i) {
      const uint8_t both = ByteAt(lower + j / 2 * kBlock, i);
      int q = j % 2 == 0 ? LowerHalf(both) : UpperHalf(both);
      if (upper != nullptr) q |= (ByteAt(upper, i) >> j & 1) << 4;
      values[j * kBlock + i] = group_scale * static_cast<float>(q) - offset;
    }
  }
}

void ExpandQ4_K(const std::byte* block, float* values) { ExpandGroups(block, nullptr, block + 16, values); }
void ExpandQ5_K(const std::byte* block, float* values) {
  ExpandGroups(block, block + 16, block + 48, values);
}

// 128 bytes of the lower four bits, 64 bytes of the upper two, 16 signed scales of 16 values each, d:
// (q - 32) (d scale). Of each half of 128 values, values 0 to 63 are the lower halves of 64 bytes, the others
// the upper ones; and value i has its upper bits in byte i mod 32, in the (i / 32)-th pair from the lowest.
void ExpandQ6_K(const std::byte* block, float* values) {
  const std::byte *lower = block, *upper = block + 128, *scales = block + 192;
  const float d = HalfAt(block + 208);
  for (int i = 0; i < kSuperBlock; ++i) {
    const int half = i / 128, in_half = i % 128;
    const uint8_t both = ByteAt(lower + half * 64, in_half % 64);
    const int two = ByteAt(upper + half * 32, in_half % 32) >> (in_half / 32 * 2) & 3;
    const int q = (in_half < 64 ? LowerHalf(both) : UpperHalf(both)) | two << 4;
    values[i] = d * static_cast<float>(SignedAt(scales, i / 16)) * static_cast<float>(q - 32);
  }
}

// Formats without a function are known by name and size alone.
constexpr BlockFormat kFormats[] = {
    {kIdF32, "f32", 1, 4, ExpandF32},
    {kIdF16, "f16", 1, 2, ExpandF16},
    {kIdBF16, "bf16", 1, 2, ExpandBF16},
    {8, "q8_0", 32, 34, ExpandQ8_0},
    {2, "q4_0", 32, 18, ExpandQ4_0},
    {3, "q4_1", 32, 20, ExpandQ4_1},
    {6, "q5_0", 32, 22, ExpandQ5_0},
    {7, "q5_1", 32, 24, ExpandQ5_1},
    {12, "q4_k", 256, 144, ExpandQ4_K},
    {13, "q5_k", 256, 176, ExpandQ5_K},
    {14, "q6_k", 256, 210, ExpandQ6_K},
    {9, "q8_1", 32, 40},
    {10, "q2_k", 256, 84},
    {11, "q3_k", 256, 110},
    {15, "q8_k", 256, 292},
    {16, "iq2_xxs", 256, 66},
    {17, "iq2_xs", 256, 74},
    {18, "iq3_xxs", 256, 98},
    {19, "iq1_s", 256, 50},
    {20, "iq4_nl", 32, 18},
    {21, "iq3_s", 256, 110},
    {22, "iq2_s", 256, 82},
    {23, "iq4_xs", 256, 136},
    {24, "i8", 1, 1},
    {25, "i16", 1, 2},
    {26, "i32", 1, 4},
    {27, "i64", 1, 8},
    {28, "f64", 1, 8},
    {29, "iq1_m", 256, 56},
    {34, "tq1_0", 256, 54},
    {35, "tq2_0", 256, 66},
    {39, "mxfp4", 32, 17},
};

}  // namespace

const BlockFormat* FindFormat(uint32_t id) {
  for (const BlockFormat& format : kFormats) {
    if (format.id == id) return &format;
  }
  return nullptr;
}

const BlockFormat* FindFormat(std::string_view name) {
  for (const BlockFormat& format : kFormats) {
    if (format.name == name) return &format;
  }
  return nullptr;
}

std::string ReadableFormats() {
  std::string names;
  for (const BlockFormat& format : kFormats) {
    if (format.expand == nullptr) continue;
    if (!names.empty()) names += ", ";
    names += format.name;
  }
  return names;
}

void ExpandRow(const BlockFormat& format, std::span<const std::byte> row, std::span<float> numbers) {
  const int64_t blocks = static_cast<int64_t>(row.size()) / format.bytes;
  BATON_CHECK_EQ(static_cast<int64_t>(numbers.size()), blocks * format.values);
  for (int64_t i = 0; i < blocks; ++i) {
    format.expand(row.data() + i * format.bytes, numbers.data() + i * format.values);
  }
}

}  // namespace baton::gguf
