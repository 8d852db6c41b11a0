// StoredTensor: a tensor as a file of weights has it, safetensors or GGUF. Plain data; a view of the file's
// bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/tensor/dtype.h"
#include "text/gguf/block_format.h"

namespace baton::model {

// The type of a tensor's values in a file.
enum class StoredType : uint8_t {
  kF32,
  kF16,
  kBF16,
  kF8,  // e4m3, which a scale makes a number
  // Integers, which a quantization_config makes numbers.
  kI8,
  kU8,
  kI32,
  kI64,
  kBlocks,  // a GGUF file's rows of blocks
};

// Numbers that need nothing beside them.
constexpr bool IsFloat(StoredType type) { return type <= StoredType::kBF16; }
// "F8_E4M3": as safetensors names it, which does not know kBlocks: "".
std::string_view SafetensorsName(StoredType type);
// Bytes of a value; 0 of kBlocks.
int64_t SizeOf(StoredType type);
// Inverse of SafetensorsName; null: not known.
std::optional<StoredType> StoredTypeOf(std::string_view safetensors_name);

// The bytes may be unaligned for the type.
struct StoredTensor {
  std::string name;
  StoredType type = StoredType::kF32;
  const gguf::BlockFormat* blocks = nullptr;  // of kBlocks
  // In a GGUF file, the rows of each of so many heads lie in pairs, row i of the first half of the head
  // before row i of its second half. 0: all rows are in order.
  int64_t paired_heads = 0;
  std::vector<int64_t> shape;
  std::span<const std::byte> bytes;  // exactly shape x SizeOf(type), but of blocks

  // The type must be a float or kF8.
  tensor::DType dtype() const;
  // How many, by the shape.
  int64_t values() const;
  // Where row `row` of the tensor lies in the file: among shape[0] rows, which paired heads divide.
  int64_t FileRow(int64_t row) const;
  // "bf16", "f8", "i32", "q4_k": for people, and for digests.
  std::string TypeName() const;
};

// "[2048, 64]"
std::string ShapeText(std::span<const int64_t> shape);

}  // namespace baton::model
