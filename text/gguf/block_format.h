// BlockFormat: how the numbers of a GGUF tensor lie in its bytes. A row is a sequence of blocks: of some
// numbers each, with scales of their own, or of one. Definitions as in ggml
// (https://github.com/ggml-org/ggml), results bit for bit as its reference code has them. Pure
// functions, any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace baton::gguf {

// d and m are float16, q are unsigned integers unless said otherwise.
struct BlockFormat {
  uint32_t id = 0;        // in files
  std::string_view name;  // "q4_k"
  int64_t values = 0;     // of a block
  int64_t bytes = 0;
  // Numbers of a whole block; null: this format is not read.
  void (*expand)(const std::byte* block, float* values) = nullptr;

  int64_t RowBytes(int64_t columns) const { return columns / values * bytes; }
};

inline constexpr uint32_t kIdF32 = 0, kIdF16 = 1, kIdBF16 = 30;

// Null if no format has this id.
const BlockFormat* FindFormat(uint32_t id);
// Null if no format has this name ("q4_k").
const BlockFormat* FindFormat(std::string_view name);
// "f32, f16, bf16, ...": the formats that are read.
std::string ReadableFormats();

// Numbers of a row of whole blocks: row.size() is a multiple of format.bytes, and numbers.size() is that of
// its values. The format is one that is read.
void ExpandRow(const BlockFormat& format, std::span<const std::byte> row, std::span<float> numbers);

}  // namespace baton::gguf
