#include "text/gguf/block_format.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

namespace baton::gguf {
namespace {

// The goldens (tests/golden/gguf) have random blocks; here is what can be followed by hand.
constexpr uint16_t kHalfOfTwo = 0x4000, kHalfOfHalf = 0x3800;  // 2 and 0.5 in float16

std::vector<std::byte> Block(std::string_view name) {
  return std::vector<std::byte>(static_cast<size_t>(FindFormat(name)->bytes));
}

std::vector<float> Expanded(std::string_view name, const std::vector<std::byte>& block) {
  const BlockFormat& format = *FindFormat(name);
  std::vector<float> values(block.size() / static_cast<size_t>(format.bytes) *
                            static_cast<size_t>(format.values));
  ExpandRow(format, block, values);
  return values;
}

void PutHalf(std::vector<std::byte>& block, size_t at, uint16_t bits) {
  std::memcpy(block.data() + at, &bits, sizeof bits);
}

TEST(BlockFormatTest, FindsFormatsByIdAndName) {
  EXPECT_EQ(FindFormat(12)->name, "q4_k");
  EXPECT_EQ(FindFormat("q6_k")->id, 14u);
  EXPECT_EQ(FindFormat(4), nullptr);  // was taken out of the format
  EXPECT_EQ(FindFormat("q9"), nullptr);
  EXPECT_EQ(FindFormat("q2_k")->expand, nullptr);
  EXPECT_EQ(ReadableFormats(), "f32, f16, bf16, q8_0, q4_0, q4_1, q5_0, q5_1, q4_k, q5_k, q6_k");
  EXPECT_EQ(FindFormat("q4_k")->RowBytes(512), 288);
}

TEST(BlockFormatTest, ExpandsQ8_0) {
  std::vector<std::byte> block = Block("q8_0");
  PutHalf(block, 0, kHalfOfTwo);
  block[2] = std::byte(3);
  block[33] = std::byte(0x80);  // -128
  const std::vector<float> values = Expanded("q8_0", block);
  EXPECT_EQ(values[0], 6);
  EXPECT_EQ(values[1], 0);
  EXPECT_EQ(values[31], -256);
}

TEST(BlockFormatTest, ExpandsQ4_0InHalves) {
  std::vector<std::byte> block = Block("q4_0");
  PutHalf(block, 0, kHalfOfTwo);
  block[2] = std::byte(0xF1);  // value 0: 1, value 16: 15
  const std::vector<float> values = Expanded("q4_0", block);
  EXPECT_EQ(values[0], -14);
  EXPECT_EQ(values[16], 14);
  EXPECT_EQ(values[1], -16);
}

TEST(BlockFormatTest, ExpandsQ4_KWithScalesOfSixBits) {
  std::vector<std::byte> block = Block("q4_k");
  PutHalf(block, 0, kHalfOfTwo);
  PutHalf(block, 2, kHalfOfHalf);
  block[4 + 1] = std::byte(5 | 2 << 6);  // scale of group 1: 5; upper bits of scale 5: 2
  block[4 + 5] = std::byte(7 | 1 << 6);  // minimum of group 1: 7; upper bits of minimum 5: 1
  block[4 + 9] = std::byte(3 | 9 << 4);  // lower bits of scale and minimum 5: 3 and 9
  block[16] = std::byte(0xB0);           // the first value of group 1: 11
  block[16 + 64] = std::byte(0x40);      // and of group 5: 4
  const std::vector<float> values = Expanded("q4_k", block);
  EXPECT_EQ(values[0], 0);
  EXPECT_EQ(values[32], 2 * 5 * 11 - 0.5f * 7);
  EXPECT_EQ(values[33], -0.5f * 7);
  EXPECT_EQ(values[160], 2 * 35 * 4 - 0.5f * 25);
}

TEST(BlockFormatTest, ExpandsQ6_K) {
  std::vector<std::byte> block = Block("q6_k");
  PutHalf(block, 208, kHalfOfTwo);
  block[192 + 15] = std::byte(0xFF);  // the last group's scale: -1
  block[127] = std::byte(0x60);       // the last value: 6, and
  block[191] = std::byte(0xC0);       // its upper bits: 3
  const std::vector<float> values = Expanded("q6_k", block);
  EXPECT_EQ(values[255], 2 * -1 * (54 - 32));
  EXPECT_EQ(values[254], 2 * -1 * -32);
  EXPECT_EQ(values[0], 0);  // scale 0
}

TEST(BlockFormatTest, ExpandsARowOfBlocks) {
  std::vector<std::byte> row = Block("q8_0");
  PutHalf(row, 0, kHalfOfTwo);
  row[2] = std::byte(1);
  std::vector<std::byte> next = Block("q8_0");
  PutHalf(next, 0, kHalfOfHalf);
  next[2] = std::byte(1);
  row.insert(row.end(), next.begin(), next.end());
  const std::vector<float> values = Expanded("q8_0", row);
  ASSERT_EQ(values.size(), 64u);
  EXPECT_EQ(values[0], 2);
  EXPECT_EQ(values[32], 0.5f);
}

}  // namespace
}  // namespace baton::gguf
