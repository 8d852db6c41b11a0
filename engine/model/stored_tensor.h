// StoredTensor: a tensor as a file of weights has it, safetensors or GGUF. Plain data; a view of the file's
// bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/tensor/dtype.h"
#include "text/gguf/block_format.h"

namespace baton::model {

// The bytes may be unaligned for the dtype.
struct StoredTensor {
  std::string name;
  tensor::DType dtype = tensor::DType::kF32;
  // Bytes of a value, if it is an integer (I8, U8, I32, I64): dtype is kI8 then. Else 0.
  int integer_bytes = 0;
  bool unsigned_bytes = false;  // U8, which is read as I8 is
  // Format of a GGUF file's rows of blocks; dtype is kI8 then. Else null.
  const gguf::BlockFormat* blocks = nullptr;
  // In a GGUF file, the rows of each of so many heads lie in pairs, row i of the first half of the head
  // before row i of its second half. 0: all rows are in order.
  int64_t paired_heads = 0;
  std::vector<int64_t> shape;
  std::span<const std::byte> bytes;  // exactly shape x ValueBytes, but of blocks

  int64_t ValueBytes() const { return integer_bytes != 0 ? integer_bytes : tensor::SizeOf(dtype); }
  // How many, by the shape.
  int64_t values() const;
  // Where row `row` of the tensor lies in the file: among shape[0] rows, which paired heads divide.
  int64_t FileRow(int64_t row) const;
  // "bf16", "i32", "q4_k".
  std::string TypeName() const;
};

// "[2048, 64]"
std::string ShapeText(std::span<const int64_t> shape);

}  // namespace baton::model
